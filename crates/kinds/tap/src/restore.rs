//! Restores a predecessor's queues. The queues are checked but not changed, as the predecessor resumes using them if
//! the upgrade fails.

use std::os::fd::OwnedFd;

use netvale_fdio::state::BadState;
use rustix::io::Errno;

use crate::adopt::{AdoptError, DETACHED, is_queue};
use crate::device::{HDR_LEN, MAX_QUEUES, Tap};
use crate::sys;

impl Tap {
    /// Restores the interface `name`; `uso` means that the kernel leaves UDP segmentation to the reader.
    ///
    /// # Errors
    /// [`BadState`] if a descriptor is not one of the interface's queues.
    pub fn restore(name: &str, uso: bool, queues: Vec<OwnedFd>) -> Result<Tap, BadState> {
        if queues.is_empty() || queues.len() > MAX_QUEUES as usize {
            return Err(unfit(AdoptError::Number(queues.len())));
        }
        queues.iter().try_for_each(|queue| is_queue_of(queue, name, queues.len() > 1))?;
        Ok(Tap::of(name.to_owned(), queues, uso))
    }
}

/// Returns the current name of a queue's interface.
///
/// # Errors
/// The kernel's error.
pub fn name_of(queue: &OwnedFd) -> Result<String, Errno> {
    sys::get_iff(queue).map(|(name, _)| name)
}

fn unfit(why: AdoptError) -> BadState {
    BadState::new(why).of("a queue")
}

fn is_queue_of(queue: &OwnedFd, said: &str, several: bool) -> Result<(), BadState> {
    let (found, flags) = is_queue(queue).map_err(unfit)?;
    if found != said {
        return Err(BadState::new(format!("a queue belongs to interface {found}: expected {said}")));
    }
    let header = sys::vnet_hdr_size(queue).map_err(|e| unfit(e.into()))?;
    let wrong = match () {
        () if header != HDR_LEN as i32 => "has a virtio-net header of another size",
        () if (flags & libc::IFF_MULTI_QUEUE as u16 != 0) != several => "has another number of queues",
        () if flags & DETACHED != 0 => "has a queue detached",
        () => return Ok(()),
    };
    Err(BadState::new(format!("{found} {wrong}")))
}
