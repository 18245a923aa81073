//! Real-time priority of the workers.
#![allow(unsafe_code)]

/// Gives the calling thread a real-time priority (`SCHED_FIFO`) until this value is dropped. Threads that are started
/// before that inherit the priority permanently.
///
/// The sandbox drops the right to set the priority, so this value is created before the sandbox is entered, and dropped
/// after the workers have started.
#[derive(Debug)]
pub(crate) struct RealTime(());

impl RealTime {
    /// Sets the priority; if no priority is given, does nothing and returns `None`.
    ///
    /// # Errors
    /// `EPERM` if the process lacks the right: `CAP_SYS_NICE`, or a limit (`ulimit -r`) of at least that priority.
    pub(crate) fn begin(priority: Option<u8>) -> std::io::Result<Option<RealTime>> {
        let Some(priority) = priority else { return Ok(None) };
        set(libc::SCHED_FIFO, priority.into())?;
        Ok(Some(RealTime(())))
    }
}

impl Drop for RealTime {
    fn drop(&mut self) {
        // A thread may always lower its own priority.
        if let Err(e) = set(libc::SCHED_OTHER, 0) {
            tracing::error!("cannot return the main thread to ordinary priority: {e}");
        }
    }
}

fn set(policy: libc::c_int, priority: libc::c_int) -> std::io::Result<()> {
    // The kernel's structure has one field. musl's structure has more fields, and musl's function always fails.
    let parameters = [priority];
    // SAFETY: the call changes only the calling thread; the kernel reads one number, which exists until the call
    // returns.
    let done = unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, parameters.as_ptr()) };
    if done < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}
