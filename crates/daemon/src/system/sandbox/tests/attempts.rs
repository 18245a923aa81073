//! Attempts at the operations that the sandbox denies. The attempts do no harm even if they are permitted.
#![allow(unsafe_code)]

use std::fs::File;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use libc::*;
use rustix::io::Errno;

use super::World;

type Attempt = Box<dyn Fn(&World) -> Result<(), Errno>>;

/// Calls that the sandbox denies with any arguments.
const CALLS: &[(&str, c_long, [u64; 2])] = &[
    ("execve", SYS_execve, [0, 0]),
    ("execveat", SYS_execveat, [0, 0]),
    ("clone3", SYS_clone3, [0, 0]),
    ("unshare", SYS_unshare, [CLONE_NEWUSER as u64, 0]),
    ("setns", SYS_setns, [0, 0]),
    ("mount", SYS_mount, [0, 0]),
    ("umount2", SYS_umount2, [0, 0]),
    ("pivot_root", SYS_pivot_root, [0, 0]),
    ("chroot", SYS_chroot, [0, 0]),
    ("open_tree", SYS_open_tree, [0, 0]),
    ("move_mount", SYS_move_mount, [0, 0]),
    ("fsopen", SYS_fsopen, [0, 0]),
    ("ptrace", SYS_ptrace, [PTRACE_ATTACH as u64, 1]),
    ("process_vm_readv", SYS_process_vm_readv, [1, 0]),
    ("process_vm_writev", SYS_process_vm_writev, [1, 0]),
    ("pidfd_open", SYS_pidfd_open, [1, 0]),
    ("pidfd_getfd", SYS_pidfd_getfd, [0, 0]),
    ("pidfd_send_signal", SYS_pidfd_send_signal, [0, 0]),
    ("kill", SYS_kill, [1, 0]),
    ("tkill", SYS_tkill, [1, 0]),
    ("rt_sigqueueinfo", SYS_rt_sigqueueinfo, [1, 0]),
    ("io_uring_setup", SYS_io_uring_setup, [1, 0]),
    ("userfaultfd", SYS_userfaultfd, [0, 0]),
    ("perf_event_open", SYS_perf_event_open, [0, 0]),
    ("fanotify_init", SYS_fanotify_init, [0, 0]),
    ("inotify_init1", SYS_inotify_init1, [0, 0]),
    ("keyctl", SYS_keyctl, [0, 0]),
    ("add_key", SYS_add_key, [0, 0]),
    ("request_key", SYS_request_key, [0, 0]),
    ("setuid", SYS_setuid, [0, 0]),
    ("setresuid", SYS_setresuid, [0, 0]),
    ("setgid", SYS_setgid, [0, 0]),
    ("setgroups", SYS_setgroups, [u64::MAX, 0]),
    ("capset", SYS_capset, [0, 0]),
    ("seccomp", SYS_seccomp, [2, 0]),
    ("personality", SYS_personality, [u32::MAX as u64, 0]),
    ("init_module", SYS_init_module, [0, 0]),
    ("finit_module", SYS_finit_module, [u32::MAX as u64, 0]),
    ("delete_module", SYS_delete_module, [0, 0]),
    ("kexec_load", SYS_kexec_load, [0, u64::MAX]),
    ("reboot", SYS_reboot, [0, 0]),
    ("swapon", SYS_swapon, [0, 0]),
    ("acct", SYS_acct, [1, 0]),
    ("syslog", SYS_syslog, [10, 0]),
    ("settimeofday", SYS_settimeofday, [0, 0]),
    ("clock_settime", SYS_clock_settime, [0, 0]),
    ("adjtimex", SYS_adjtimex, [0, 0]),
    ("sethostname", SYS_sethostname, [0, u64::MAX]),
    ("quotactl", SYS_quotactl, [0, 0]),
    ("mknodat", SYS_mknodat, [0, 0]),
    ("mkdirat", SYS_mkdirat, [0, 0]),
    ("symlinkat", SYS_symlinkat, [0, 0]),
    ("fsetxattr", SYS_fsetxattr, [0, 0]),
    ("removexattr", SYS_removexattr, [0, 0]),
    ("open_by_handle_at", SYS_open_by_handle_at, [0, 0]),
    ("pkey_mprotect", SYS_pkey_mprotect, [0, 0]),
    ("sched_setattr", SYS_sched_setattr, [0, 0]),
    ("setpriority", SYS_setpriority, [99, 0]),
    ("socketpair", SYS_socketpair, [0, 0]),
];

/// Calls that the sandbox denies with these arguments, but permits with other arguments.
const ARGUMENTS: &[(&str, c_long, [u64; 4])] = &[
    ("raw socket of AF_INET", SYS_socket, [AF_INET as u64, SOCK_RAW as u64, IPPROTO_RAW as u64, 0]),
    ("raw socket of AF_INET6", SYS_socket, [AF_INET6 as u64, SOCK_RAW as u64, IPPROTO_RAW as u64, 0]),
    ("socket of AF_VSOCK", SYS_socket, [AF_VSOCK as u64, SOCK_STREAM as u64, 0, 0]),
    ("socket of AF_ALG", SYS_socket, [AF_ALG as u64, SOCK_SEQPACKET as u64, 0, 0]),
    ("socket of NETLINK_NETFILTER", SYS_socket, [AF_NETLINK as u64, SOCK_RAW as u64, NETLINK_NETFILTER as u64, 0]),
    ("packet socket that receives", SYS_socket, [AF_PACKET as u64, SOCK_RAW as u64, 0x300, 0]),
    ("ioctl TIOCSTI", SYS_ioctl, [0, TIOCSTI, 0, 0]),
    ("ioctl FIOASYNC", SYS_ioctl, [0, FIOASYNC, 0, 0]),
    ("ioctl SIOCSIFADDR", SYS_ioctl, [0, SIOCSIFADDR, 0, 0]),
    ("fcntl F_SETFL", SYS_fcntl, [0, F_SETFL as u64, 0, 0]),
    ("fcntl F_SETOWN", SYS_fcntl, [0, F_SETOWN as u64, 0, 0]),
    ("fcntl F_SETSIG", SYS_fcntl, [0, 10, 0, 0]),
    ("fcntl F_NOTIFY", SYS_fcntl, [0, F_NOTIFY as u64, 0, 0]),
    ("fcntl F_SETLEASE", SYS_fcntl, [0, F_SETLEASE as u64, F_UNLCK as u64, 0]),
    ("setsockopt SO_ATTACH_FILTER", SYS_setsockopt, [0, SOL_SOCKET as u64, SO_ATTACH_FILTER as u64, 0]),
    ("setsockopt SO_ATTACH_BPF", SYS_setsockopt, [0, SOL_SOCKET as u64, SO_ATTACH_BPF as u64, 0]),
    ("setsockopt PACKET_RX_RING", SYS_setsockopt, [0, SOL_PACKET as u64, PACKET_RX_RING as u64, 0]),
    ("prctl PR_SET_DUMPABLE", SYS_prctl, [PR_SET_DUMPABLE as u64, 1, 0, 0]),
    ("prctl PR_SET_SECCOMP", SYS_prctl, [PR_SET_SECCOMP as u64, 0, 0, 0]),
    ("prctl PR_SET_MM", SYS_prctl, [PR_SET_MM as u64, 0, 0, 0]),
    ("prctl PR_CAP_AMBIENT", SYS_prctl, [PR_CAP_AMBIENT as u64, PR_CAP_AMBIENT_IS_SET as u64, 0, 0]),
    ("bpf BPF_OBJ_PIN", SYS_bpf, [6, 0, 0, 0]),
    ("bpf BPF_PROG_TEST_RUN", SYS_bpf, [10, 0, 0, 0]),
    ("bpf BPF_BTF_LOAD", SYS_bpf, [18, 0, 0, 0]),
    ("memfd_create with MFD_EXEC", SYS_memfd_create, [0, MFD_EXEC as u64, 0, 0]),
    ("prlimit64 to set", SYS_prlimit64, [0, RLIMIT_NOFILE as u64, 1, 0]),
    ("prlimit64 of another process", SYS_prlimit64, [1, RLIMIT_NOFILE as u64, 0, 0]),
    ("sched_setaffinity of another process", SYS_sched_setaffinity, [1, 0, 0, 0]),
    ("sched_setscheduler to SCHED_FIFO", SYS_sched_setscheduler, [0, SCHED_FIFO as u64, 0, 0]),
];

/// Returns the version of the kernel's Landlock; 0 if the kernel has no Landlock.
pub(super) fn landlock() -> i64 {
    const VERSION: u32 = 1;
    // SAFETY: with this flag, the call takes no memory and returns a number.
    let version = unsafe { syscall(SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0, VERSION) };
    version.max(0)
}

fn done(returned: i64) -> Result<(), Errno> {
    if returned < 0 { Err(errno(&std::io::Error::last_os_error())) } else { Ok(()) }
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

fn call(number: c_long, arguments: &[u64]) -> Result<(), Errno> {
    let mut all = [0; 6];
    all[..arguments.len()].copy_from_slice(arguments);
    let [a, b, c, d, e, f] = all;
    // SAFETY: no argument is a valid address; a kernel that permits the call returns EFAULT.
    done(unsafe { syscall(number, a, b, c, d, e, f) })
}

/// Calls clone(2) for a process that ends immediately.
fn clone_with(flags: c_int) -> Result<(), Errno> {
    // SAFETY: without CLONE_VM and a stack this is fork(2). If a child is created, it only exits.
    let child = unsafe { syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0) };
    if child == 0 {
        // SAFETY: this call runs no code at exit.
        unsafe { _exit(0) };
    }
    done(child)
}

/// Maps an anonymous page.
fn map(protection: c_int) -> Result<*mut c_void, Errno> {
    // SAFETY: the call creates a new mapping at a free address.
    let page = unsafe { mmap(std::ptr::null_mut(), 4096, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) };
    if page == MAP_FAILED { Err(errno(&std::io::Error::last_os_error())) } else { Ok(page) }
}

fn make_executable() -> Result<(), Errno> {
    let page = map(PROT_READ | PROT_WRITE)?;
    // SAFETY: the page is private and has no other users.
    unsafe {
        let outcome = done(mprotect(page, 4096, PROT_READ | PROT_EXEC).into());
        munmap(page, 4096);
        outcome
    }
}

fn of_io<T>(result: std::io::Result<T>) -> Result<(), Errno> {
    result.map(drop).map_err(|e| errno(&e))
}

/// Returns the attempts that need more than numbers as arguments.
fn others() -> Vec<(&'static str, Attempt)> {
    vec![
        ("clone of a process", Box::new(|_| clone_with(0))),
        ("clone with CLONE_NEWUSER", Box::new(|_| clone_with(CLONE_NEWUSER))),
        ("tgkill of another process", Box::new(|w| call(SYS_tgkill, &[w.parent, w.parent, 0]))),
        ("mmap with PROT_EXEC", Box::new(|_| map(PROT_READ | PROT_EXEC).map(drop))),
        ("mprotect with PROT_EXEC", Box::new(|_| make_executable())),
        ("open /etc/shadow", Box::new(|_| of_io(File::open("/etc/shadow")))),
        ("open /dev/zero", Box::new(|_| of_io(File::open("/dev/zero")))),
        ("open /proc/self/maps", Box::new(|_| of_io(File::open("/proc/self/maps")))),
        ("read another folder's file", Box::new(|w| of_io(File::open(w.outside.join("file"))))),
        ("write another folder's file", Box::new(|w| of_io(File::options().append(true).open(w.outside.join("file"))))),
        ("make a file in another folder", Box::new(|w| of_io(File::create_new(w.outside.join("new"))))),
        ("remove another folder's file", Box::new(|w| of_io(std::fs::remove_file(w.outside.join("file"))))),
        ("make a socket in another folder", Box::new(|w| of_io(UnixListener::bind(w.outside.join("socket"))))),
        ("list another folder", Box::new(|w| of_io(std::fs::read_dir(&w.outside)))),
        (
            "connect to another process's abstract UNIX socket",
            Box::new(|w| of_io(SocketAddr::from_abstract_name(&w.name).and_then(|at| UnixStream::connect_addr(&at)))),
        ),
        ("read another user's file", Box::new(|w| of_io(File::open(w.folder.join("others"))))),
    ]
}

/// Returns all attempts, by their names on the page.
pub(super) fn attempts() -> Vec<(&'static str, Attempt)> {
    let mut all = others();
    all.extend(
        CALLS.iter().map(|&(what, number, with)| -> (_, Attempt) { (what, Box::new(move |_| call(number, &with))) }),
    );
    all.extend(
        ARGUMENTS
            .iter()
            .map(|&(what, number, with)| -> (_, Attempt) { (what, Box::new(move |_| call(number, &with))) }),
    );
    all
}
