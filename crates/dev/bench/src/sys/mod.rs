//! The building blocks of contenders (netvale and its peers): child processes, hugepages, network namespaces, raw
//! sockets, pinned threads, and worker processes of this program. All of them are removed on drop.

pub mod child;
pub mod hugepages;
pub mod machine;
pub mod netmap_api;
pub mod netns;
pub mod part;
pub mod pcap_api;
pub mod prepared;
pub mod profile;
pub mod quota;
pub mod rawsock;
pub mod shm;
pub mod tapdev;
pub mod threads;
pub mod trees;
pub mod worker;

use std::env;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::net::{ToSocketAddrs, UdpSocket};
use std::path::{Path, PathBuf};

use crate::error::{BenchError, Result, Skip};

/// Creates a temporary folder for sockets, databases and logs, which is removed on drop.
pub fn scratch(purpose: &str) -> Result<tempfile::TempDir> {
    netvale_harness::daemon::scratch(purpose).map_err(|why| BenchError::io("creating a temporary folder")(why.source))
}

/// Reads a file; `None` if the file does not exist.
pub fn read_if_present(path: &Path) -> Result<Option<String>> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        read => read.map(Some).map_err(BenchError::io(format!("reading {}", path.display()))),
    }
}

/// Appends a line to a file. Creates the file with the line `head` if it does not exist.
pub fn append_line(path: &Path, head: &str, line: &str) -> Result<()> {
    let failed = || BenchError::io(format!("writing {}", path.display()));
    let head = if path.exists() { String::new() } else { format!("{head}\n") };
    let mut file = OpenOptions::new().create(true).append(true).open(path).map_err(failed())?;
    writeln!(file, "{head}{line}").map_err(failed())
}

/// Returns the path of `program`, looked up in PATH and in the folders of administrators' programs; `None` if it is in
/// none of them.
pub fn find_program(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/sbin", "/usr/bin"].map(PathBuf::from);
    env::split_paths(&path).chain(more).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Returns the `netvale` command: the command built or installed beside this program, otherwise the command in PATH.
pub fn netvale() -> std::result::Result<PathBuf, Skip> {
    const NAME: &str = "netvale";
    let own = env::current_exe().ok();
    let beside = own.and_then(|own| own.parent().map(|folder| folder.join(NAME))).filter(|file| file.is_file());
    beside.or_else(|| find_program(NAME)).ok_or(Skip::NotInstalled { program: NAME, package: "netvale: make build" })
}

/// Opens a UDP socket at `own` that sends to, and receives from, `other`.
pub fn udp_between(own: impl ToSocketAddrs, other: impl ToSocketAddrs) -> std::io::Result<UdpSocket> {
    let socket = UdpSocket::bind(own)?;
    socket.connect(other)?;
    Ok(socket)
}

/// What a contender needs to run.
#[derive(Clone, Copy, Debug)]
pub enum Need {
    /// This number of CPUs for pinned threads.
    Cpus(usize),
    /// Root privileges; the text names the purpose.
    Root(&'static str),
    /// A program, and the Debian package that contains it.
    Program(&'static str, &'static str),
    /// Another requirement, which the function checks.
    Found(fn() -> std::result::Result<(), Skip>),
}

/// Sets of needs, in the order of the checks.
pub type Needs = &'static [&'static [Need]];

/// The need of one CPU.
pub const ONE: &[Need] = &[Need::Cpus(1)];
/// The need of two CPUs.
pub const TWO: &[Need] = &[Need::Cpus(2)];
/// Network namespaces, and the program that configures interfaces.
pub const NETWORKS: &[Need] = &[Need::Root("network namespaces"), Need::Program("ip", "iproute2")];

/// Fails if a need is not met; `cpus` is the number of CPUs for pinned threads.
pub fn need(needs: Needs, cpus: usize) -> std::result::Result<(), Skip> {
    needs.iter().copied().flatten().try_for_each(|need| match *need {
        Need::Cpus(needed) if cpus < needed => Err(Skip::TooFewCpus { needed, given: cpus }),
        Need::Cpus(_) => Ok(()),
        Need::Root(_) if rustix::process::geteuid().is_root() => Ok(()),
        Need::Root(why) => Err(Skip::NeedsRoot(why)),
        Need::Program(program, package) => {
            find_program(program).map(drop).ok_or(Skip::NotInstalled { program, package })
        }
        Need::Found(look) => look(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: too few CPUs are a reason to skip, which states both numbers.
    #[test]
    fn too_few_cpus_are_a_reason_to_skip() {
        assert_eq!(need(&[TWO], 1), Err(Skip::TooFewCpus { needed: 2, given: 1 }));
        assert_eq!(need(&[TWO], 2), Ok(()));
    }
}
