//! A thread that keeps peers from blocking another thread in a wake-up ([`netvale_mem::calls`]), and reports threads
//! held up by anything else ([`crate::stalls`]).
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use netvale_mem::calls::{Under, lasting};
use rustix::thread::Pid;

/// Interval of checks. A wake-up takes a microsecond; one in progress at two checks is blocked, or its thread has no
/// CPU, and then the signal is harmless.
const EVERY: Duration = Duration::from_millis(250);
/// Interval of checks while a wake-up is in progress.
const SOON: Duration = Duration::from_millis(10);

/// The signal that interrupts system calls, without other effect.
const SIGNAL: libc::c_int = libc::SIGURG;

extern "C" fn nothing(_: libc::c_int) {}

/// Whether the process has this thread: one serves any number of daemons.
static STARTED: AtomicBool = AtomicBool::new(false);

/// Starts watching all threads of this process.
///
/// # Errors
/// Fails if the signal's handler cannot be installed, or no thread can be started.
pub(crate) fn start() -> std::io::Result<()> {
    if STARTED.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    // SAFETY: zeros are a valid sigaction: no flags, so interrupted calls are not restarted, and an empty mask. The
    // handler does nothing, hence nothing forbidden in a handler.
    let done = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as libc::sighandler_t;
        // A file over the daemon's size limit fails the request, and does not kill the daemon.
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        libc::sigaction(SIGNAL, &raw const action, std::ptr::null_mut())
    };
    if done < 0 {
        return Err(std::io::Error::last_os_error());
    }
    netvale_mem::calls::watch();
    std::thread::Builder::new().name("netvale-watch".into()).spawn(|| {
        let mut under = Under::new();
        loop {
            std::thread::sleep(if under.is_empty() { EVERY } else { SOON });
            under = lasting(&under, interrupt);
            crate::stalls::report();
            super::log::report();
        }
    })?;
    Ok(())
}

fn interrupt(thread: Pid) {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    // SAFETY: the system call takes three numbers. The thread belongs to this process, and has not ended.
    unsafe { libc::syscall(libc::SYS_tgkill, own, thread.as_raw_nonzero().get(), SIGNAL) };
}
