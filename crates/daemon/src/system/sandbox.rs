//! The sandbox: what the daemon gives up once its sockets are open: capabilities, system calls, the file system.
//!
//! It is entered before any other thread is started, since Landlock and capabilities belong to each thread and are
//! inherited. The daemon keeps what attaching a TAP or an interface at run time needs, if it has it: `CAP_NET_ADMIN`,
//! `CAP_NET_RAW`, `CAP_BPF`, and `CAP_IPC_LOCK` for the memory of an interface's frames. It gives up all else.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use caps::{CapSet, Capability, CapsHashSet};
use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr, path_beneath_rules,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};
use thiserror::Error;

/// Why the sandbox could not be entered.
#[derive(Debug, Error)]
pub enum SandboxError {
    /// Capabilities could not be dropped.
    #[error("capabilities: {0}")]
    Capabilities(#[from] caps::errors::CapsError),
    /// Landlock failed.
    #[error("Landlock: {0}")]
    Landlock(#[from] landlock::RulesetError),
    /// The system call filter could not be built.
    #[error("seccomp: {0}")]
    Filter(#[from] seccompiler::BackendError),
    /// The system call filter could not be installed.
    #[error("seccomp: {0}")]
    Install(#[from] seccompiler::Error),
    /// There is no filter for this processor.
    #[error("seccomp: no support for this processor")]
    Arch,
}

/// Enters the sandbox: of the file system, only `run_dir`, `dirs`, the TUN device and vfio stay reachable.
///
/// # Errors
/// [`SandboxError`] if a step fails; the process may then be partly restricted and should end.
pub fn enter(run_dir: &Path, dirs: &[PathBuf]) -> Result<(), SandboxError> {
    drop_capabilities()?;
    restrict_files(run_dir, dirs)?;
    let arch = std::env::consts::ARCH.try_into().map_err(|_| SandboxError::Arch)?;
    seccompiler::apply_filter(&filter(arch)?)?;
    Ok(())
}

/// Capabilities kept for ports that are attached later.
const KEPT: [Capability; 4] =
    [Capability::CAP_NET_ADMIN, Capability::CAP_NET_RAW, Capability::CAP_BPF, Capability::CAP_IPC_LOCK];

fn drop_capabilities() -> Result<(), SandboxError> {
    let keep: CapsHashSet = caps::read(None, CapSet::Permitted)?.into_iter().filter(|c| KEPT.contains(c)).collect();
    caps::clear(None, CapSet::Ambient)?;
    caps::set(None, CapSet::Inheritable, &CapsHashSet::new())?;
    caps::set(None, CapSet::Effective, &keep)?;
    caps::set(None, CapSet::Permitted, &keep)?;
    Ok(())
}

/// Restricts file access as far as the kernel's Landlock allows; a kernel without it is logged.
fn restrict_files(run_dir: &Path, dirs: &[PathBuf]) -> Result<(), SandboxError> {
    let all = AccessFs::from_all(ABI::V5);
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)?
        .create()?
        .add_rules(path_beneath_rules([run_dir], all))?
        .add_rules(path_beneath_rules(dirs, all))?
        .add_rules(path_beneath_rules(["/dev/net/tun", "/dev/vfio"], AccessFs::from_file(ABI::V5)))?
        // To find the interface of a ptnet device, if there is one, and its rings.
        .add_rules(path_beneath_rules(["/sys/class/net", "/sys/devices"], AccessFs::ReadDir))?
        // The names of users and groups who may connect to a device's socket.
        .add_rules(path_beneath_rules(["/etc/passwd", "/etc/group"], AccessFs::ReadFile))?
        .add_rules(path_beneath_rules(netvale_guest::passthrough::devices(), AccessFs::from_file(ABI::V5)))?
        .restrict_self()?;
    if status.ruleset == landlock::RulesetStatus::NotEnforced {
        tracing::warn!("this kernel has no Landlock: the file system stays reachable");
    }
    Ok(())
}

/// Every other call fails with EPERM, so that a forgotten one is an error message and not a dead daemon.
fn filter(arch: TargetArch) -> Result<BpfProgram, SandboxError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = ALLOWED.iter().map(|&call| (call, Vec::new())).collect();
    let bpf = |&command: &u32| {
        let is = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, command.into())?;
        SeccompRule::new(vec![is])
    };
    rules.insert(libc::SYS_bpf, netvale_afxdp::bpf::COMMANDS.iter().map(bpf).collect::<Result<_, _>>()?);
    let deny = SeccompAction::Errno(libc::EPERM as u32);
    Ok(SeccompFilter::new(rules, deny, SeccompAction::Allow, arch)?.try_into()?)
}

/// The system calls of a running daemon: sockets, descriptors, memory, threads, time; no exec, no mount, no namespaces.
/// Of bpf(2) it also has the commands that put a program on an interface.
const ALLOWED: &[i64] = &[
    // Descriptors.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_lseek,
    libc::SYS_close,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchownat,
    libc::SYS_getxattr,
    libc::SYS_setxattr,
    libc::SYS_getdents64,
    libc::SYS_readlinkat,
    libc::SYS_unlinkat,
    libc::SYS_ftruncate,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_flock,
    libc::SYS_ioctl,
    libc::SYS_ppoll,
    libc::SYS_eventfd2,
    libc::SYS_memfd_create,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    // Sockets.
    libc::SYS_socket,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_connect,
    libc::SYS_accept4,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_getsockname,
    libc::SYS_shutdown,
    // Memory.
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_brk,
    // Threads and signals.
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_getaffinity,
    // To return from the workers' priority.
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_yield,
    libc::SYS_prctl,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_getpid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_gettid,
    libc::SYS_tgkill,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_restart_syscall,
    libc::SYS_prlimit64,
    // Time and random numbers.
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_getrandom,
    // Calls that C libraries still use on this processor.
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
];
