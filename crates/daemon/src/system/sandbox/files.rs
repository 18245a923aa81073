//! The files and folders that the daemon may access.

use std::path::{Path, PathBuf};

use netvale_confine::files::{self, AccessFs, BitFlags, FileRights};

use super::{KernelNeeds, SandboxError};
use crate::system::manager;

/// Restricts this thread, and the threads that it starts later, as far as the kernel's version of Landlock can.
pub(super) fn restrict(
    run_dir: &Path,
    dirs: &[PathBuf],
    config: Option<&Path>,
    kinds: &[&KernelNeeds],
) -> Result<(), SandboxError> {
    let to_manager = manager::place().filter(|place| !place.as_encoded_bytes().starts_with(b"@"));
    files::restrict(&[
        FileRights::new([run_dir], in_folders()),
        FileRights::new(dirs, in_folders()),
        FileRights::new(kinds.iter().flat_map(|kind| (kind.devices)()), of_devices()),
        FileRights::new(kinds.iter().flat_map(|kind| kind.listed), AccessFs::ReadDir),
        FileRights::new(kinds.iter().flat_map(|kind| kind.read), AccessFs::ReadFile),
        FileRights::new(kinds.iter().flat_map(|kind| kind.sockets), AccessFs::ResolveUnix),
        // These files are read to resolve names of users and groups, for the access to a device's socket.
        FileRights::new(["/etc/passwd", "/etc/group"], AccessFs::ReadFile),
        FileRights::new(config.into_iter().flat_map(to_read_again), AccessFs::ReadFile),
        // This is needed to connect to the service manager if its socket has a path.
        FileRights::new(to_manager, AccessFs::ResolveUnix),
    ])
}

/// Returns the rights in folders: to create, use and remove sockets and capture files, but not to execute files.
fn in_folders() -> BitFlags<AccessFs> {
    use AccessFs::{MakeReg, MakeSock, ReadDir, ReadFile, RemoveFile, ResolveUnix, Truncate, WriteFile};
    ReadFile | WriteFile | ReadDir | RemoveFile | MakeReg | MakeSock | Truncate | ResolveUnix
}

fn of_devices() -> BitFlags<AccessFs> {
    AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev
}

/// Returns the paths to permit for reloading a configuration file: the file, and its folder as well if that contains
/// only configuration files. An editor may replace the file by a new file, which only a rule for the folder covers.
fn to_read_again(config: &Path) -> Vec<PathBuf> {
    let folder = config.parent().filter(|folder| has_only_configurations(folder));
    folder.into_iter().chain([config]).map(Path::to_owned).collect()
}

/// Whether a folder contains only files named `*.toml*`: TOML files, and the copies that editors and packages leave.
fn has_only_configurations(folder: &Path) -> bool {
    let is_one = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.is_ok_and(|entry| {
            entry.file_name().to_string_lossy().contains(".toml") && entry.file_type().is_ok_and(|kind| kind.is_file())
        })
    };
    std::fs::read_dir(folder).is_ok_and(|mut entries| entries.all(is_one))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: the folder of a configuration file is reachable only if it contains no other files; otherwise, only
    /// the file is reachable.
    #[test]
    fn a_folder_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("netvale.toml");
        for name in ["netvale.toml", "netvale.toml.dpkg-old", ".netvale.toml.swp"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        assert_eq!(to_read_again(&file), [dir.path().to_owned(), file.clone()]);
        std::fs::write(dir.path().join("secret"), "").unwrap();
        assert_eq!(to_read_again(&file), [file]);
    }
}
