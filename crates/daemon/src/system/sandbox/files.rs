//! Landlock: the file system, and what else it can deny.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, LandlockStatus, Ruleset, RulesetAttr,
    RulesetCreatedAttr, Scope, make_bitflags, path_beneath_rules,
};

use super::{KernelNeeds, SandboxError};
use crate::system::manager;

/// The newest version that is known here. Of an older kernel, what it has is used.
const NEWEST: ABI = ABI::V9;

/// What came with each version of Landlock since the first.
const SINCE: [(ABI, &str); 4] = [
    (ABI::V3, "truncating files"),
    (ABI::V5, "ioctls of devices"),
    (ABI::V6, "abstract UNIX sockets and signals"),
    (ABI::V9, "UNIX sockets by their paths"),
];

/// In folders: sockets and capture files are made, used and removed there. Nothing is executed.
const IN_FOLDERS: BitFlags<AccessFs> = make_bitflags!(AccessFs::{
    ReadFile | WriteFile | ReadDir | RemoveFile | MakeReg | MakeSock | Truncate | ResolveUnix
});
const OF_DEVICES: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | WriteFile | IoctlDev});

/// Restricts this thread and those that it will start, as far as the kernel's Landlock can; what it cannot is logged.
pub(super) fn restrict(
    run_dir: &Path,
    dirs: &[PathBuf],
    config: Option<&Path>,
    kinds: &[&KernelNeeds],
) -> Result<(), SandboxError> {
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        // Not TCP: ports have sockets of it, at any address, and the filter of system calls knows of no others.
        .handle_access(AccessFs::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?
        .create()?
        .add_rules(path_beneath_rules([run_dir], IN_FOLDERS))?
        .add_rules(path_beneath_rules(dirs, IN_FOLDERS))?
        .add_rules(path_beneath_rules(kinds.iter().flat_map(|kind| (kind.devices)()), OF_DEVICES))?
        .add_rules(path_beneath_rules(kinds.iter().flat_map(|kind| kind.listed), AccessFs::ReadDir))?
        .add_rules(path_beneath_rules(kinds.iter().flat_map(|kind| kind.read), AccessFs::ReadFile))?
        .add_rules(path_beneath_rules(kinds.iter().flat_map(|kind| kind.sockets), AccessFs::ResolveUnix))?
        // The names of users and groups who may connect to a device's socket.
        .add_rules(path_beneath_rules(["/etc/passwd", "/etc/group"], AccessFs::ReadFile))?
        .add_rules(path_beneath_rules(config.into_iter().flat_map(to_read_again), AccessFs::ReadFile))?
        // The service manager.
        .add_rules(path_beneath_rules(
            manager::place().filter(|place| !place.as_encoded_bytes().starts_with(b"@")),
            AccessFs::ResolveUnix,
        ))?
        .restrict_self()?;
    report(status.landlock);
    Ok(())
}

/// What has to be reachable for a configuration file to be read again: the file, and its folder if that is the file's
/// own. An editor that replaces the file makes a new one, which is found by its folder only.
fn to_read_again(config: &Path) -> Vec<PathBuf> {
    let folder = config.parent().filter(|folder| has_only_configurations(folder));
    folder.into_iter().chain([config]).map(Path::to_owned).collect()
}

/// Whether a folder has nothing but TOML files in it, and what editors and packages leave beside them.
fn has_only_configurations(folder: &Path) -> bool {
    let is_one = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.is_ok_and(|entry| {
            entry.file_name().to_string_lossy().contains(".toml") && entry.file_type().is_ok_and(|kind| kind.is_file())
        })
    };
    std::fs::read_dir(folder).is_ok_and(|mut entries| entries.all(is_one))
}

/// Says what the kernel cannot deny.
fn report(landlock: LandlockStatus) {
    match missing(landlock) {
        Some(missing) if missing.is_empty() => {}
        Some(missing) => tracing::debug!("this kernel's Landlock is old: it does not restrict {}", missing.join(", ")),
        None => tracing::warn!("this kernel has no Landlock: the file system stays reachable"),
    }
}

fn missing(landlock: LandlockStatus) -> Option<Vec<&'static str>> {
    let LandlockStatus::Available { effective_abi, .. } = landlock else { return None };
    Some(SINCE.iter().filter(|(since, _)| *since > effective_abi).map(|(_, what)| *what).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: the folder of a configuration file is reachable if there are such files in it only; otherwise the
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

    /// Objective: the log names what a kernel's Landlock lacks, and nothing for the newest.
    #[test]
    fn names_what_is_missing() {
        let of = |effective_abi| missing(LandlockStatus::Available { effective_abi, kernel_abi: None });
        assert_eq!(of(NEWEST), Some(Vec::new()));
        assert_eq!(of(ABI::V6), Some(vec!["UNIX sockets by their paths"]));
        assert_eq!(of(ABI::V1).map(|all| all.len()), Some(SINCE.len()));
        assert_eq!(missing(LandlockStatus::NotEnabled), None);
    }
}
