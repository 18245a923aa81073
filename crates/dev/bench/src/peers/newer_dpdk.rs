//! DPDK of newer Debians, each in a tree of its own beside the system.

use std::fs;

use crate::prelude::*;
use crate::sys::trees;

const MISSING: &str = "needs a newer Debian's DPDK beside the system: scripts/newer-dpdk.sh makes it";

/// A newer Debian's DPDK.
#[derive(Debug)]
pub struct NewerDpdk {
    tree: PathBuf,
    drivers: PathBuf,
}

impl NewerDpdk {
    /// Finds that of a suite.
    pub fn find(suite: &str) -> std::result::Result<NewerDpdk, Skip> {
        let found = || {
            let tree = trees::newest(&format!("dpdk-{suite}-"))?;
            let drivers = drivers(&tree)?;
            Some(NewerDpdk { tree, drivers })
        };
        found().ok_or(Skip::NotBuilt(MISSING))
    }

    /// The words that start its testpmd, which finds its drivers only when it is told where they are.
    pub fn testpmd(&self) -> Vec<PathBuf> {
        let mut words = trees::program(&self.tree, "usr/bin/dpdk-testpmd");
        words.extend(["-d".into(), self.drivers.clone()]);
        words
    }
}

/// The folder of the drivers that a system's DPDK loads as it starts.
pub fn drivers(root: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(root.join("usr/lib/x86_64-linux-gnu/dpdk")).ok()?.flatten().map(|entry| entry.path());
    let is_theirs = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("pmds-"));
    entries.filter(is_theirs).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: the drivers' folder is found by its name, whatever version that has; where there is none, none is.
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
