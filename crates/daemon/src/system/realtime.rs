//! Workers at a real-time priority.
#![allow(unsafe_code)]

/// While this lives, the calling thread runs at a real-time priority (`SCHED_FIFO`); threads that it starts meanwhile
/// do so for good.
///
/// The right to it is used before the sandbox takes it away; the threads that need the priority can be started only
/// afterwards, and inherit it.
#[derive(Debug)]
pub(crate) struct RealTime(());

impl RealTime {
    /// Sets the priority, if there is one.
    ///
    /// # Errors
    /// `EPERM` without the right to it: `CAP_SYS_NICE`, or a limit (`ulimit -r`) of at least that priority.
    pub(crate) fn begin(priority: Option<u8>) -> std::io::Result<Option<RealTime>> {
        let Some(priority) = priority else { return Ok(None) };
        set(libc::SCHED_FIFO, priority.into())?;
        Ok(Some(RealTime(())))
    }
}

impl Drop for RealTime {
    fn drop(&mut self) {
        // Lowering the priority takes no right.
        if let Err(e) = set(libc::SCHED_OTHER, 0) {
            tracing::error!("the main thread stays at a real-time priority: {e}");
        }
    }
}

fn set(policy: libc::c_int, priority: libc::c_int) -> std::io::Result<()> {
    // The kernel's structure. musl's has more fields, and its function only fails.
    let parameters = [priority];
    // SAFETY: of the calling thread; the kernel reads one number, which lives over the call.
    let done = unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, parameters.as_ptr()) };
    if done < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}
