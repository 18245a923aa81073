//! A thread that prevents peers from making another thread sleep in a wake-up ([`netvale_mem::calls`]), and reports
//! threads that are held up by anything else ([`crate::stalls`]).
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use netvale_mem::calls::{Under, lasting};
use rustix::thread::Pid;

/// Time between two checks. A wake-up takes a microsecond; one that is under way at both checks is being blocked, or
/// its thread has no processor: then the signal changes nothing.
const EVERY: Duration = Duration::from_millis(250);
/// The same when one is under way.
const SOON: Duration = Duration::from_millis(10);

/// The signal that interrupts system calls, and does nothing else.
const SIGNAL: libc::c_int = libc::SIGURG;

extern "C" fn nothing(_: libc::c_int) {}

/// Whether the process has the thread: one is enough, however many daemons run in it.
static STARTED: AtomicBool = AtomicBool::new(false);

/// Starts watching all threads of this process.
///
/// # Errors
/// Fails if the signal's handler cannot be installed, or no thread can be started.
pub(crate) fn start() -> std::io::Result<()> {
    if STARTED.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    // SAFETY: zeros are a valid sigaction: no flags, so that calls are not begun again, and an empty mask. The handler
    // does nothing, hence nothing that a handler must not do.
    let done = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as libc::sighandler_t;
        // A file that would be longer than the daemon may make one fails the request, and does not end the daemon.
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
    // SAFETY: a system call with three numbers. The thread belongs to this process, and has not ended.
    unsafe { libc::syscall(libc::SYS_tgkill, own, thread.as_raw_nonzero().get(), SIGNAL) };
}
