//! Finds what scripts make once and keep: programs that they build, the guests' image, and trees of newer Debian
//! releases.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

fn cache() -> PathBuf {
    let home = || env::var_os("HOME").map_or_else(|| "/tmp".into(), PathBuf::from);
    env::var_os("XDG_CACHE_HOME").map_or_else(|| home().join(".cache"), PathBuf::from)
}

/// Returns the path of a program that `scripts/install-deps.sh` has built, otherwise the path of an installed program;
/// `None` if there is neither.
pub fn tool(name: &str) -> Option<PathBuf> {
    let root = env::var_os("NETVALE_TOOLS").map_or_else(|| cache().join("netvale/tools"), PathBuf::from);
    Some(root.join("bin").join(name)).filter(|file| file.is_file()).or_else(|| super::find_program(name))
}

/// Returns the newest complete folder (one with a file `done`) whose name begins with `prefix`; `None` if there is
/// none.
pub fn newest(prefix: &str) -> Option<PathBuf> {
    let root = env::var_os("NETVALE_GUESTS").map_or_else(|| cache().join("netvale/guests"), PathBuf::from);
    let fits = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix)) && path.join("done").exists()
    };
    let made = |path: &PathBuf| fs::metadata(path.join("done")).and_then(|m| m.modified()).ok();
    fs::read_dir(&root).ok()?.flatten().map(|entry| entry.path()).filter(fits).max_by_key(made)
}

/// Returns the beginning of a command line that starts a program of a newer Debian's tree, through the tree's own
/// loader.
pub fn program(tree: &Path, path: &str) -> Vec<PathBuf> {
    let libraries = tree.join("usr/lib/x86_64-linux-gnu");
    vec![tree.join("usr/lib64/ld-linux-x86-64.so.2"), "--library-path".into(), libraries, tree.join(path)]
}
