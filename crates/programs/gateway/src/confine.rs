//! The gateway's confinement. The process that parses guests' packets has no capabilities, can open only the files that
//! this module permits, and can make only the system calls that the gateway needs: calls for sockets, their data, and
//! time.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use libc::{
    AF_INET, AF_INET6, AF_UNIX, F_DUPFD_CLOEXEC, F_GETFD, F_GETFL, IP_PKTINFO, IP_RECVERR, IPPROTO_ICMP,
    IPPROTO_ICMPV6, IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP, IPV6_RECVERR, IPV6_RECVPKTINFO, IPV6_V6ONLY, PROT_EXEC,
    SO_KEEPALIVE, SO_LINGER, SO_REUSEADDR, SOCK_DGRAM, SOCK_STREAM, SOL_SOCKET, TCP_NODELAY, c_int,
};
use netvale_confine::SandboxError;
use netvale_confine::calls::{Argument, BASE, CallList, Calls, int, null, without};
use netvale_confine::files::{self, AccessFs, FileRights};

use crate::options::GatewayOptions;

/// Mask for the socket's type in socket(2)'s second argument, which also holds `SOCK_CLOEXEC` and `SOCK_NONBLOCK`.
const TYPE: u64 = 0xf;
/// `SIOCGIFINDEX`, which returns the index of an interface. It is needed for name servers whose address has a zone.
const SIOCGIFINDEX: c_int = libc::SIOCGIFINDEX as c_int;

const fn kind(value: c_int) -> Argument {
    Argument { index: 1, mask: TYPE, value: value.cast_unsigned() as u64 }
}

const fn option(level: c_int, name: c_int) -> [Argument; 2] {
    [int(1, level), int(2, name)]
}

/// The calls that are permitted with certain arguments only. Each call has one or more lists of arguments, and is
/// permitted if it matches all arguments of at least one list.
const CALLS: &[Calls] = &[
    // TCP, UDP and ping sockets, but no raw, packet or netlink sockets.
    (
        libc::SYS_socket,
        &[
            &[int(0, AF_INET), kind(SOCK_STREAM), int(2, 0)],
            &[int(0, AF_INET6), kind(SOCK_STREAM), int(2, 0)],
            &[int(0, AF_INET), kind(SOCK_DGRAM), int(2, 0)],
            &[int(0, AF_INET6), kind(SOCK_DGRAM), int(2, 0)],
            &[int(0, AF_INET), kind(SOCK_DGRAM), int(2, IPPROTO_ICMP)],
            &[int(0, AF_INET6), kind(SOCK_DGRAM), int(2, IPPROTO_ICMPV6)],
        ],
    ),
    // Socket pairs, which connect a guest's TCP connection with the name service.
    (libc::SYS_socketpair, &[&[int(0, AF_UNIX)]]),
    (
        libc::SYS_setsockopt,
        &[
            &option(SOL_SOCKET, SO_LINGER),
            &option(SOL_SOCKET, SO_KEEPALIVE),
            &option(SOL_SOCKET, SO_REUSEADDR),
            &option(IPPROTO_TCP, TCP_NODELAY),
            &option(IPPROTO_IP, IP_RECVERR),
            &option(IPPROTO_IP, libc::IP_MTU_DISCOVER),
            &option(IPPROTO_IP, IP_PKTINFO),
            &option(IPPROTO_IPV6, IPV6_RECVERR),
            &option(IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER),
            &option(IPPROTO_IPV6, IPV6_RECVPKTINFO),
            &option(IPPROTO_IPV6, IPV6_V6ONLY),
        ],
    ),
    (libc::SYS_fcntl, &[&[int(1, F_DUPFD_CLOEXEC)], &[int(1, F_GETFD)], &[int(1, F_GETFL)]]),
    (libc::SYS_ioctl, &[&[int(1, libc::FIONBIO as c_int)], &[int(1, SIOCGIFINDEX)]]),
    // Memory that is not executable.
    (libc::SYS_mmap, &[&[without(2, PROT_EXEC as u64)]]),
    (libc::SYS_mprotect, &[&[without(2, PROT_EXEC as u64)]]),
    // Reading the process's own limits, but not changing them.
    (libc::SYS_prlimit64, &[&[int(0, 0), null(2)]]),
];

/// The calls that are permitted with any arguments, in addition to the calls that every program needs ([`BASE`]).
/// Landlock decides which files can be opened.
const ANY: &[i64] = &[
    // Descriptors.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_lseek,
    libc::SYS_close,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_openat,
    libc::SYS_unlinkat,
    libc::SYS_fchmodat,
    libc::SYS_ppoll,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    // Sockets.
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_connect,
    libc::SYS_accept4,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_getsockopt,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_shutdown,
    // Legacy calls that C libraries still use on this architecture.
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_stat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
];

/// Confines this process, which must have one thread. Afterwards, the process can open only `/dev/null` and the files
/// in the resolver file's folders, for reading, and can remove files only in the folders of its own sockets. Files and
/// sockets that are already open stay open.
///
/// # Errors
/// [`SandboxError`] if a step fails; the process may then be partly confined, and should end.
pub fn enter(options: &GatewayOptions) -> Result<(), SandboxError> {
    netvale_confine::keep_capabilities(|_| false)?;
    let own_sockets = options.control.iter().chain(&options.dial).filter_map(|path| path.parent());
    files::restrict(&[
        FileRights::new(to_read(&options.resolv_conf), AccessFs::ReadFile),
        // Published ports open `/dev/null` to keep a spare descriptor.
        FileRights::new(["/dev/null"], AccessFs::ReadFile),
        FileRights::new(own_sockets, AccessFs::RemoveFile),
    ])?;
    netvale_confine::permit(rules(std::process::id(), !options.served.is_empty())?)
}

/// Returns the calls that are permitted to the process with ID `own`. If `serves`, the process connects served ports to
/// UNIX sockets, so these calls are included.
fn rules(own: u32, serves: bool) -> Result<netvale_confine::CallRules, SandboxError> {
    let mut list = CallList::default();
    list.add(CALLS);
    if serves {
        list.add_line(libc::SYS_socket, &[int(0, AF_UNIX), kind(SOCK_STREAM), int(2, 0)]);
    }
    // abort(3) needs this call if the program fails.
    list.add_line(libc::SYS_tgkill, &[int(0, own.cast_signed())]);
    Ok(list.rules(BASE.iter().chain(ANY).copied())?)
}

/// Returns the folder of the file, and the folders of the files to which it links. Programs that manage the resolver
/// file replace it by a new file, which a rule for the old file would not cover.
fn to_read(file: &Path) -> BTreeSet<PathBuf> {
    let folder = |path: &Path| path.parent().map(Path::to_path_buf).filter(|folder| folder != Path::new("/"));
    let mut at = std::path::absolute(file).unwrap_or_else(|_| file.to_path_buf());
    let mut folders = BTreeSet::from_iter(at.canonicalize().ok().as_deref().and_then(folder));
    // Follows at most as many links as the kernel does.
    for _ in 0..40 {
        let Some(parent) = folder(&at) else { break };
        let link = std::fs::read_link(&at);
        folders.insert(parent.clone());
        match link {
            Ok(to) => at = parent.join(to),
            Err(_) => break,
        }
    }
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folders_of_a_file_and_of_its_links_can_be_read() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        for name in ["etc", "run", "real"] {
            std::fs::create_dir(dir.join(name)).unwrap();
        }
        std::fs::write(dir.join("real/resolv.conf"), "").unwrap();
        std::os::unix::fs::symlink("../real/resolv.conf", dir.join("run/resolv.conf")).unwrap();
        std::os::unix::fs::symlink(dir.join("run/resolv.conf"), dir.join("etc/resolv.conf")).unwrap();
        let folders = to_read(&dir.join("etc/resolv.conf"));
        assert!([dir.join("etc"), dir.join("run"), dir.join("real")].iter().all(|folder| folders.contains(folder)));
        assert!(!folders.contains(&dir));
        assert_eq!(to_read(Path::new("/none")), BTreeSet::new());
    }

    /// Environment variable with which the test passes its folder to the process that it starts.
    const FOLDER: &str = "NETVALE_TEST_FOLDER";

    #[test]
    #[ignore = "a role of another test"]
    fn inside() {
        use rustix::io::Errno;
        use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with};
        let Ok(folder) = std::env::var(FOLDER) else { return };
        let folder = Path::new(&folder);
        let file = folder.join("etc/resolv.conf");
        if std::fs::read_to_string("/sys/kernel/security/lsm").is_ok_and(|all| !all.contains("landlock")) {
            return eprintln!("skipped: this kernel has no Landlock");
        }
        // The confinement applies only to the calling thread, so another thread can replace the file.
        let (replace, requests) = std::sync::mpsc::channel();
        let (answer, answers) = std::sync::mpsc::channel();
        let [from, to] = [folder.join("etc/new"), file.clone()];
        std::thread::spawn(move || requests.recv().map(|()| answer.send(std::fs::rename(from, to))));
        let addresses = "10.0.0.1/24".parse().unwrap();
        let control = Some(folder.join("sockets/own"));
        enter(&GatewayOptions { resolv_conf: file.clone(), control, ..GatewayOptions::new(addresses) }).unwrap();
        let socket = |family, kind, protocol| socket_with(family, kind, SocketFlags::CLOEXEC, protocol);
        assert!(socket(AddressFamily::INET, SocketType::STREAM, None).is_ok());
        let raw = socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::ICMP));
        assert_eq!(raw.err(), Some(Errno::PERM));
        assert_eq!(socket(AddressFamily::UNIX, SocketType::STREAM, None).err(), Some(Errno::PERM));
        assert_eq!(socket(AddressFamily::NETLINK, SocketType::RAW, None).err(), Some(Errno::PERM));
        assert!(std::process::Command::new("/bin/true").status().is_err());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "old");
        replace.send(()).unwrap();
        answers.recv().unwrap().unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "new");
        assert!(std::fs::File::open("/dev/null").is_ok());
        let denied =
            |done: std::io::Result<()>| done.is_err_and(|why| why.kind() == std::io::ErrorKind::PermissionDenied);
        assert!(denied(std::fs::write(&file, "written").map(drop)));
        assert!(denied(std::fs::read(folder.join("secret")).map(drop)));
        assert!(denied(std::fs::remove_file(folder.join("secret"))));
        assert!(std::fs::remove_file(folder.join("sockets/own")).is_ok());
    }

    /// Objective: a confined process can read a resolver file that was replaced, create TCP sockets and remove its own
    /// control socket. It can neither create raw, UNIX or netlink sockets, nor open other files, nor start programs.
    #[test]
    #[cfg_attr(miri, ignore = "processes are not available under Miri")]
    fn a_confined_process_has_only_its_files_and_sockets() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["etc", "sockets"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        for (name, text) in [("etc/resolv.conf", "old"), ("etc/new", "new"), ("secret", ""), ("sockets/own", "")] {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "confine::tests::inside", "--ignored", "--nocapture"]);
        let output = command.env(FOLDER, dir.path()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
    }

    /// Objective: the filter permits no call with which a process can start or reach another process.
    #[test]
    fn calls_to_start_or_reach_processes_are_not_in_the_list() {
        let rules = rules(1, false).unwrap();
        for call in [libc::SYS_execve, libc::SYS_clone, libc::SYS_kill, libc::SYS_ptrace, libc::SYS_process_vm_readv] {
            assert!(!rules.contains_key(&call), "{call}");
        }
        assert!(rules.contains_key(&libc::SYS_epoll_pwait2));
    }
}
