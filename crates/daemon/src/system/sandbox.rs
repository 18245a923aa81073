//! The sandbox: once its sockets are open, the daemon gives up capabilities, access to files, and system calls.
//!
//! The daemon enters the sandbox while the process has only one thread, because Landlock and capabilities belong to a
//! thread, and new threads inherit them. [Who may do what](../../../../docs/reference/security.md) has a table of
//! denied operations, which the tests attempt from inside.

mod arguments;
mod files;
mod needs;
mod reach;
mod rights;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use netvale_confine::CallRules;
use netvale_confine::calls::BASE;

pub use needs::{Argument, KernelNeeds, int};
pub use netvale_confine::SandboxError;
pub use reach::Reach;
pub use rights::{ExtraCapability, keep};

/// Enters the sandbox. Of the file system, the daemon can then access only `run_dir`, `dirs` and the needs of `kinds`,
/// and can only read `config`, its own configuration file.
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
    // The filter is installed last, because it permits no further filter.
    netvale_confine::permit(rules(std::process::id(), kinds)?)
}

/// Returns the permitted calls of the process `own`, with their arguments.
fn rules(own: u32, kinds: &[&KernelNeeds]) -> Result<CallRules, SandboxError> {
    let any = BASE.iter().chain(ALLOWED).chain(kinds.iter().flat_map(|kind| kind.any));
    Ok(arguments::list(own, kinds).rules(any.copied())?)
}

/// System calls that every running daemon may make with any arguments, in addition to the calls of every program
/// ([`BASE`]): descriptors, sockets, threads; no exec, no mount, no namespaces. The calls with restricted arguments are
/// in [`arguments`], and the calls that a kind of port needs are in the file of that kind.
const ALLOWED: &[i64] = &[
    // System calls on descriptors.
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
    // System calls on sockets.
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
    // System calls for threads.
    libc::SYS_clone3,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_sched_getaffinity,
    libc::SYS_getrusage,
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
