//! Irreversible confinement of the calling process: the process gives up capabilities ([`keep_capabilities`]), access
//! to files ([`files`]), and system calls ([`permit`] allows only listed calls, [`refuse`] denies listed calls). The
//! daemon, the gateway and `netvale sandbox` each have their own lists, of [`calls`] and files.
//!
//! Landlock and capabilities belong to a thread, and new threads inherit them: a process confines itself while it has
//! one thread.

pub mod calls;
pub mod files;

use std::collections::BTreeMap;

use caps::{CapSet, CapsHashSet};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, SeccompRule, TargetArch};
use thiserror::Error;

pub use caps::Capability;

/// The rules of a filter: each call, with alternative lists of conditions on its arguments; without lists, any
/// arguments match.
pub type CallRules = BTreeMap<i64, Vec<SeccompRule>>;

/// Reason why a process could not be confined.
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

/// Drops all capabilities of the process for which `is_wanted` returns false.
///
/// # Errors
/// [`SandboxError::Capabilities`] if the kernel refuses.
pub fn keep_capabilities(is_wanted: impl Fn(&Capability) -> bool) -> Result<(), SandboxError> {
    let kept: CapsHashSet = caps::read(None, CapSet::Permitted)?.into_iter().filter(is_wanted).collect();
    caps::clear(None, CapSet::Ambient)?;
    caps::set(None, CapSet::Inheritable, &CapsHashSet::new())?;
    caps::set(None, CapSet::Effective, &kept)?;
    caps::set(None, CapSet::Permitted, &kept)?;
    Ok(())
}

/// Installs the filter under which any call that the rules do not permit fails with EPERM. A permission missing by
/// mistake thus causes an error, and does not kill the process. clone3 fails with ENOSYS, so that C libraries use
/// clone: the flags of clone3 are in memory, which filters cannot check.
///
/// # Errors
/// [`SandboxError`] if a filter cannot be built or installed.
pub fn permit(mut rules: CallRules) -> Result<(), SandboxError> {
    refuse(BTreeMap::from([(libc::SYS_clone3, Vec::new())]), libc::ENOSYS)?;
    // This filter permits clone3, so that the call fails with the ENOSYS of the filter above, not with EPERM.
    rules.insert(libc::SYS_clone3, Vec::new());
    install(rules, SeccompAction::Errno(libc::EPERM as u32), SeccompAction::Allow)
}

/// Installs a filter under which the calls that match the rules fail with the error `errno`, and all other calls are
/// permitted. Sets no_new_privs, as [`permit`] does.
///
/// # Errors
/// [`SandboxError`] if the filter cannot be built or installed.
pub fn refuse(rules: CallRules, errno: libc::c_int) -> Result<(), SandboxError> {
    install(rules, SeccompAction::Allow, SeccompAction::Errno(errno as u32))
}

fn install(rules: CallRules, others: SeccompAction, matching: SeccompAction) -> Result<(), SandboxError> {
    let arch: TargetArch = std::env::consts::ARCH.try_into().map_err(|_| SandboxError::Arch)?;
    let program: BpfProgram = SeccompFilter::new(rules, others, matching, arch)?.try_into()?;
    Ok(seccompiler::apply_filter(&program)?)
}
