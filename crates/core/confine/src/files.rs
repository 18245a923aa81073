//! Landlock: the part of the file system that a process can access, with the *rights* to the files in it (what the
//! process may do with files, [`AccessFs`]), and the other operations that Landlock can deny.

use std::path::PathBuf;

pub use landlock::AccessFs;
pub use landlock::BitFlags;
use landlock::{
    ABI, Access, CompatLevel, Compatible, LandlockStatus, Ruleset, RulesetAttr, RulesetCreatedAttr, Scope,
    path_beneath_rules,
};

use crate::SandboxError;

/// Newest known version of Landlock. On an older kernel, the part that the kernel supports is used.
const NEWEST: ABI = ABI::V9;

/// Operations that later versions of Landlock restrict in addition to the operations that the first version restricts.
const SINCE: [(ABI, &str); 4] = [
    (ABI::V3, "truncating files"),
    (ABI::V5, "ioctls of devices"),
    (ABI::V6, "abstract UNIX sockets and signals"),
    (ABI::V9, "UNIX sockets by their paths"),
];

/// Files and folders, with the rights in them. Paths that do not exist are ignored.
#[derive(Clone, Debug)]
pub struct FileRights {
    /// The files, and the folders with everything in them.
    pub paths: Vec<PathBuf>,
    /// What the process may do with them.
    pub rights: BitFlags<AccessFs>,
}

impl FileRights {
    /// Returns rights in these files and folders.
    pub fn new<P: Into<PathBuf>>(
        paths: impl IntoIterator<Item = P>,
        rights: impl Into<BitFlags<AccessFs>>,
    ) -> FileRights {
        FileRights { paths: paths.into_iter().map(Into::into).collect(), rights: rights.into() }
    }
}

/// Restricts this thread and the threads that it will start to these files, as far as the kernel's version of Landlock
/// supports this. Logs what remains unrestricted.
///
/// # Errors
/// [`SandboxError::Landlock`] if the kernel refuses the rules.
pub fn restrict(all: &[FileRights]) -> Result<(), SandboxError> {
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        // TCP is not restricted: all users of this crate have TCP sockets at any address, and the filter of system
        // calls permits no other protocols.
        .handle_access(AccessFs::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?
        .create()?;
    for FileRights { paths, rights } in all {
        rules = rules.add_rules(path_beneath_rules(paths, *rights))?;
    }
    report(rules.restrict_self()?.landlock);
    Ok(())
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

    /// Objective: the log names the gaps of a kernel's Landlock; the newest version has no gaps.
    #[test]
    fn names_what_is_missing() {
        let of = |effective_abi| missing(LandlockStatus::Available { effective_abi, kernel_abi: None });
        assert_eq!(of(NEWEST), Some(Vec::new()));
        assert_eq!(of(ABI::V6), Some(vec!["UNIX sockets by their paths"]));
        assert_eq!(of(ABI::V1).map(|all| all.len()), Some(SINCE.len()));
        assert_eq!(missing(LandlockStatus::NotEnabled), None);
    }
}
