//! Workers at a real-time priority.
#![allow(unsafe_code)]

/// The calling thread runs at a real-time priority (`SCHED_FIFO`) as long as this lives, and so do the threads that it starts meanwhile, for good.
///
/// The right to it is asked for before the sandbox takes it away; the threads that are to have it can be started only afterwards, and inherit it.
#[derive(Debug)]
pub(crate) struct RealTime(());

impl RealTime {
    /// Begins, if there is a priority.
    ///
    /// # Errors
    /// `EPERM` without the right to it: `CAP_SYS_NICE`, or a limit (`ulimit -r`) as high as that.
    pub(crate) fn begin(priority: Option<u8>) -> std::io::Result<Option<RealTime>> {
        let Some(priority) = priority else { return Ok(None) };
        set(libc::SCHED_FIFO, priority.into())?;
        Ok(Some(RealTime(())))
    }
}

impl Drop for RealTime {
    fn drop(&mut self) {
        // Going back takes no right.
        if let Err(e) = set(libc::SCHED_OTHER, 0) {
            tracing::error!("the main thread stays at a real-time priority: {e}");
        }
    }
}

fn set(policy: libc::c_int, priority: libc::c_int) -> std::io::Result<()> {
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: of the calling thread; the kernel reads one structure, which lives over the call.
    let done = unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) };
    if done < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}
