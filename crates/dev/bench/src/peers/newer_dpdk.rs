//! DPDK of newer Debian releases, each in a tree of its own on this system.

use std::fs;

use crate::prelude::*;
use crate::sys::trees;

const MISSING: &str = "needs a newer Debian's DPDK: run scripts/newer-dpdk.sh";

/// A newer Debian's DPDK.
#[derive(Debug)]
pub struct NewerDpdk {
    tree: PathBuf,
    drivers: PathBuf,
}

impl NewerDpdk {
    /// Finds the DPDK of a suite.
    pub fn find(suite: &str) -> std::result::Result<NewerDpdk, Skip> {
        let found = || {
            let tree = trees::newest(&format!("dpdk-{suite}-"))?;
            let drivers = drivers(&tree)?;
            Some(NewerDpdk { tree, drivers })
        };
        found().ok_or(Skip::NotBuilt(MISSING))
    }

    /// Returns the beginning of a command line that starts this DPDK's testpmd, with the folder of its drivers, which
    /// testpmd does not find by itself.
    pub fn testpmd(&self) -> Vec<PathBuf> {
        let mut words = trees::program(&self.tree, "usr/bin/dpdk-testpmd");
        words.extend(["-d".into(), self.drivers.clone()]);
        words
    }
}

/// Returns the folder from which a system's DPDK loads its drivers.
pub fn drivers(root: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(root.join("usr/lib/x86_64-linux-gnu/dpdk")).ok()?.flatten().map(|entry| entry.path());
    let is_theirs = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("pmds-"));
    entries.filter(is_theirs).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: the folder of drivers is found by its name, with any version; without such a folder, the result is
    /// `None`.
    #[test]
    fn folder_of_drivers() {
        let root = crate::sys::scratch("test").expect("temporary folder");
        assert_eq!(drivers(root.path()), None);
        let folder = root.path().join("usr/lib/x86_64-linux-gnu/dpdk");
        for name in ["other", "pmds-25.0"] {
            fs::create_dir_all(folder.join(name)).expect("temporary folder");
        }
        assert_eq!(drivers(root.path()), Some(folder.join("pmds-25.0")));
    }
}
