//! The watching thread. It interrupts wake-ups that a peer blocks ([`netvale_mem::calls`]), and reports threads that
//! stall for any other reason ([`crate::stalls`]).
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use netvale_mem::calls::{CallsUnderWay, lasting};
use rustix::thread::Pid;

/// Interval of checks. A wake-up (a write to a peer's eventfd) takes a microsecond. If the same wake-up is in progress
/// at two successive checks, it is blocked, and its thread gets the signal. If the thread only lacks CPU time, the
/// signal is harmless.
const EVERY: Duration = Duration::from_millis(250);
/// Interval of checks while a wake-up is in progress.
const SOON: Duration = Duration::from_millis(10);

/// Signal that interrupts a system call and has no other effect.
const SIGNAL: libc::c_int = libc::SIGURG;

extern "C" fn nothing(_: libc::c_int) {}

/// Whether the process has a watching thread. One thread watches all daemons in the process (in tests).
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
    // handler is empty, and thus async-signal-safe.
    let done = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as libc::sighandler_t;
        // A write beyond the limit of file sizes fails with EFBIG; the signal that comes with this error must not kill
        // the daemon.
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        libc::sigaction(SIGNAL, &raw const action, std::ptr::null_mut())
    };
    if done < 0 {
        return Err(std::io::Error::last_os_error());
    }
    netvale_mem::calls::watch();
    std::thread::Builder::new().name("netvale-watch".into()).spawn(|| {
        let mut under = CallsUnderWay::new();
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
