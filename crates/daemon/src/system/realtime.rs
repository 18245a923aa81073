//! Workers at a real-time priority.
#![allow(unsafe_code)]

/// Runs the calling thread at a real-time priority (`SCHED_FIFO`) until dropped; threads started meanwhile inherit it
/// permanently.
///
/// The right is used before the sandbox removes it; the threads that need the priority start later, and inherit it.
#[derive(Debug)]
pub(crate) struct RealTime(());

impl RealTime {
    /// Sets the priority, if there is one.
    ///
    /// # Errors
    /// `EPERM` without the right: `CAP_SYS_NICE`, or a limit (`ulimit -r`) of at least that priority.
    pub(crate) fn begin(priority: Option<u8>) -> std::io::Result<Option<RealTime>> {
        let Some(priority) = priority else { return Ok(None) };
        set(libc::SCHED_FIFO, priority.into())?;
        Ok(Some(RealTime(())))
    }
}

impl Drop for RealTime {
    fn drop(&mut self) {
        // Lowering the priority needs no right.
        if let Err(e) = set(libc::SCHED_OTHER, 0) {
            tracing::error!("the main thread stays at a real-time priority: {e}");
        }
    }
}

fn set(policy: libc::c_int, priority: libc::c_int) -> std::io::Result<()> {
    // The kernel's structure. musl's has more fields, and its function always fails.
    let parameters = [priority];
    // SAFETY: concerns the calling thread; the kernel reads one number, which outlives the call.
    let done = unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, parameters.as_ptr()) };
    if done < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}
