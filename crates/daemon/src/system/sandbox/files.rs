//! Rules of Landlock, which restrict access to the file system, and the other operations that Landlock can deny.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, LandlockStatus, Ruleset, RulesetAttr, RulesetCreatedAttr,
    Scope, make_bitflags, path_beneath_rules,
};

use super::{KernelNeeds, SandboxError};
use crate::system::manager;

/// Newest known version. On an older kernel, the part that it supports is used.
const NEWEST: ABI = ABI::V9;

/// Operations that later versions of Landlock restrict in addition to those of the first.
const SINCE: [(ABI, &str); 4] = [
    (ABI::V3, "truncating files"),
    (ABI::V5, "ioctls of devices"),
    (ABI::V6, "abstract UNIX sockets and signals"),
    (ABI::V9, "UNIX sockets by their paths"),
];

/// Rights in folders, to create, use and remove sockets and capture files. No execution.
const IN_FOLDERS: BitFlags<AccessFs> = make_bitflags!(AccessFs::{
    ReadFile | WriteFile | ReadDir | RemoveFile | MakeReg | MakeSock | Truncate | ResolveUnix
});
const OF_DEVICES: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | WriteFile | IoctlDev});

/// Restricts this thread and the threads that it will start, as far as the kernel's Landlock can. Logs the gaps.
pub(super) fn restrict(
    run_dir: &Path,
    dirs: &[PathBuf],
    config: Option<&Path>,
    kinds: &[&KernelNeeds],
) -> Result<(), SandboxError> {
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        // TCP is not restricted: ports have TCP sockets at any address, and the system call filter permits no other
        // protocols.
        .handle_access(AccessFs::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?
        .create()?
        .add_rules(path_beneath_rules([run_dir], IN_FOLDERS))?
        .add_rules(path_beneath_rules(dirs, IN_FOLDERS))?
        .add_rules(path_beneath_rules(kinds.iter().flat_map(|kind| (kind.devices)()), OF_DEVICES))?
        .add_rules(path_beneath_rules(kinds.iter().flat_map(|kind| kind.listed), AccessFs::ReadDir))?
        .add_rules(path_beneath_rules(kinds.iter().flat_map(|kind| kind.read), AccessFs::ReadFile))?
        .add_rules(path_beneath_rules(kinds.iter().flat_map(|kind| kind.sockets), AccessFs::ResolveUnix))?
        // To resolve names of users and groups, for the access to a device's socket.
        .add_rules(path_beneath_rules(["/etc/passwd", "/etc/group"], AccessFs::ReadFile))?
        .add_rules(path_beneath_rules(config.into_iter().flat_map(to_read_again), AccessFs::ReadFile))?
        // To connect to the service manager, if its socket has a path.
        .add_rules(path_beneath_rules(
            manager::place().filter(|place| !place.as_encoded_bytes().starts_with(b"@")),
            AccessFs::ResolveUnix,
        ))?
        .restrict_self()?;
    report(status.landlock);
    Ok(())
}

/// Returns the paths to permit for reloading a configuration file: the file, and also its folder if that contains only
/// configuration files. An editor may replace the file by a new one, which only a rule for the folder covers.
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

/// Logs the operations that this kernel's Landlock cannot deny.
fn report(landlock: LandlockStatus) {
    match missing(landlock) {
        Some(missing) if missing.is_empty() => {}
        Some(missing) => tracing::debug!("the Landlock of this kernel does not restrict {}", missing.join(", ")),
        None => tracing::warn!("this kernel has no Landlock; access to the file system is not restricted"),
    }
}

fn missing(landlock: LandlockStatus) -> Option<Vec<&'static str>> {
    let LandlockStatus::Available { effective_abi, .. } = landlock else { return None };
    Some(SINCE.iter().filter(|(since, _)| *since > effective_abi).map(|(_, what)| *what).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: the folder of a configuration file is reachable only if it holds no other files; otherwise just the
    /// file is.
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

    /// Objective: the log names the gaps of a kernel's Landlock; the newest has no gaps.
    #[test]
    fn names_what_is_missing() {
        let of = |effective_abi| missing(LandlockStatus::Available { effective_abi, kernel_abi: None });
        assert_eq!(of(NEWEST), Some(Vec::new()));
        assert_eq!(of(ABI::V6), Some(vec!["UNIX sockets by their paths"]));
        assert_eq!(of(ABI::V1).map(|all| all.len()), Some(SINCE.len()));
        assert_eq!(missing(LandlockStatus::NotEnabled), None);
    }
}
