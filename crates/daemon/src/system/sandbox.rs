//! The sandbox: once its sockets are open, the daemon gives up capabilities, access to files, and system calls.
//!
//! The daemon enters it while the process has one thread, because Landlock and capabilities belong to a thread, and new
//! threads inherit them. [Who may do what](../../../../docs/reference/security.md) has a table of denied operations,
//! which the tests attempt from inside.

mod arguments;
mod files;
mod needs;
mod reach;
mod rights;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, SeccompRule, TargetArch};
use thiserror::Error;

pub use needs::{Argument, KernelNeeds, int};
pub use reach::Reach;
pub use rights::{ExtraCapability, keep};

/// Reason why the sandbox could not be entered.
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
    /// The filters do not support this processor architecture.
    #[error("seccomp: no support for this processor")]
    Arch,
}

/// Enters the sandbox. Of the file system, the daemon can then access only `run_dir`, `dirs` and the needs of `kinds`,
/// and read `config`, its own configuration file.
///
/// # Errors
/// [`SandboxError`] if a step fails; the process may then be partly restricted and should end.
pub fn enter(
    run_dir: &Path,
    dirs: &[PathBuf],
    config: Option<&Path>,
    kinds: &[&KernelNeeds],
) -> Result<(), SandboxError> {
    rights::keep(ExtraCapability::None)?;
    files::restrict(run_dir, dirs, config, kinds)?;
    let arch = std::env::consts::ARCH.try_into().map_err(|_| SandboxError::Arch)?;
    // The main filter is installed last, because it permits no further filter.
    seccompiler::apply_filter(&missing(arch)?)?;
    seccompiler::apply_filter(&filter(arch, kinds)?)?;
    Ok(())
}

/// Returns the filter that makes clone3 fail with ENOSYS, so that C libraries use clone. The flags of clone3 are in
/// memory, which filters cannot check.
fn missing(arch: TargetArch) -> Result<BpfProgram, SandboxError> {
    let deny = SeccompAction::Errno(libc::ENOSYS as u32);
    let rules = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    Ok(SeccompFilter::new(rules, SeccompAction::Allow, deny, arch)?.try_into()?)
}

/// Returns the filter under which any call not permitted fails with EPERM. A permission missing by mistake thus causes
/// an error, and does not kill the daemon.
fn filter(arch: TargetArch, kinds: &[&KernelNeeds]) -> Result<BpfProgram, SandboxError> {
    let deny = SeccompAction::Errno(libc::EPERM as u32);
    Ok(SeccompFilter::new(rules(std::process::id(), kinds)?, deny, SeccompAction::Allow, arch)?.try_into()?)
}

/// Returns the permitted calls of the process `own`, with their arguments.
fn rules(own: u32, kinds: &[&KernelNeeds]) -> Result<BTreeMap<i64, Vec<SeccompRule>>, SandboxError> {
    let mut rules = arguments::rules(own, kinds)?;
    let any = ALLOWED.iter().chain(kinds.iter().flat_map(|kind| kind.any));
    rules.extend(any.map(|&call| (call, Vec::new())));
    Ok(rules)
}

/// System calls that every running daemon may make with any arguments: sockets, descriptors, memory, threads, time; no
/// exec, no mount, no namespaces. [`arguments`] has the calls with restricted arguments, and the files of the kinds of
/// ports have those that a kind needs.
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
    libc::SYS_close_range,
    libc::SYS_dup3,
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
    libc::SYS_ppoll,
    libc::SYS_eventfd2,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_epoll_create1,
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
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_getsockopt,
    libc::SYS_getsockname,
    // Memory.
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    // Threads and signals. clone3 is permitted here so that the other filter's error, ENOSYS, applies.
    libc::SYS_clone3,
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_getpid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_gettid,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_restart_syscall,
    // Time and random numbers.
    libc::SYS_clock_gettime,
    libc::SYS_getrusage,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_getrandom,
    // Legacy calls that C libraries still use on this architecture.
    #[cfg(target_arch = "x86_64")]
    libc::SYS_dup2,
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
