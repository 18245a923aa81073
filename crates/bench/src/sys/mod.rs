//! The parts that contenders are built from: child processes, hugepages, network namespaces, raw sockets, pinned
//! threads, and a second process of our own. Everything here is removed when dropped.

pub mod child;
pub mod hugepages;
pub mod machine;
pub mod netmap_api;
pub mod netns;
pub mod pcap_api;
pub mod prepared;
pub mod rawsock;
pub mod shm;
pub mod tapdev;
pub mod threads;
pub mod worker;

use std::env;
use std::path::PathBuf;

use crate::error::{BenchError, Result, Skip};

/// A temporary folder for sockets, databases and logs, removed when dropped.
///
/// # Errors
/// It cannot be created.
pub fn scratch(purpose: &str) -> Result<tempfile::TempDir> {
    netvale_harness::daemon::scratch(purpose).map_err(|why| BenchError::io("creating a temporary folder")(why.source))
}

/// The path of `program`, looked up in PATH and in the folders for administrators' programs.
#[must_use]
pub fn find_program(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/sbin", "/usr/bin"].map(PathBuf::from);
    env::split_paths(&path).chain(more).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// The `netvale` command: the one that was built or installed beside this program, else the one in PATH.
///
/// # Errors
/// [`Skip::NotInstalled`].
pub fn netvale() -> std::result::Result<PathBuf, Skip> {
    const NAME: &str = "netvale";
    let own = env::current_exe().ok();
    let beside = own.and_then(|own| own.parent().map(|folder| folder.join(NAME))).filter(|file| file.is_file());
    beside.or_else(|| find_program(NAME)).ok_or(Skip::NotInstalled { program: NAME, package: "netvale: make build" })
}

/// Refuses when a program is missing.
///
/// # Errors
/// [`Skip::NotInstalled`].
pub fn need_program(program: &'static str, package: &'static str) -> std::result::Result<(), Skip> {
    find_program(program).map(drop).ok_or(Skip::NotInstalled { program, package })
}

/// Refuses when not root.
///
/// # Errors
/// [`Skip::NeedsRoot`].
pub fn need_root(why: &'static str) -> std::result::Result<(), Skip> {
    if rustix::process::geteuid().is_root() { Ok(()) } else { Err(Skip::NeedsRoot(why)) }
}
