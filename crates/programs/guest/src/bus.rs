//! The IDs and the memory of a PCI function, and a timer for programs that poll a device which has no interrupts.

use std::fs::OpenOptions;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use netvale_mem::Mapping;
use netvale_mem::notify::Doorbell;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};

use crate::GuestError;

/// Interval at which a program polls a device that has no interrupts.
pub const LOOK: Duration = Duration::from_micros(200);

/// Returns vendor and device ID of the PCI function in `folder` of sysfs; `None` if they cannot be read.
pub(crate) fn id(folder: &Path) -> Option<(u16, u16)> {
    let read = |name: &str| {
        let text = std::fs::read_to_string(folder.join(name)).ok()?;
        u16::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()
    };
    Some((read("vendor")?, read("device")?))
}

/// Maps the memory behind a base address register of the PCI function in `folder` of sysfs. Without `len`, maps all of
/// this memory.
pub(crate) fn mapped(folder: &Path, bar: u32, len: Option<usize>) -> Result<Arc<Mapping>, GuestError> {
    let file = OpenOptions::new().read(true).write(true).open(folder.join(format!("resource{bar}")));
    let file = file.map_err(GuestError::system("open the device's memory"))?;
    let all = file.metadata().map_err(GuestError::system("get the size of the device's memory"))?.len();
    let len = len.unwrap_or(usize::try_from(all).unwrap_or(0));
    let map = Mapping::of_function(file.as_fd(), 0, len).map_err(GuestError::system("map the device's memory"))?;
    Ok(Arc::new(map))
}

/// Creates a timer that becomes readable every [`LOOK`] and is read like an eventfd.
pub(crate) fn ticking() -> rustix::io::Result<Doorbell> {
    let fd = rustix::time::timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
    let every = Timespec { tv_sec: 0, tv_nsec: i64::from(LOOK.subsec_nanos()) };
    let times = Itimerspec { it_interval: every, it_value: every };
    rustix::time::timerfd_settime(&fd, TimerfdTimerFlags::empty(), &times)?;
    Ok(Doorbell::from_fd(fd))
}
