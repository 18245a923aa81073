//! Queues that another process of the daemon had open. They are looked at and not changed: that process may go on with
//! them.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use thiserror::Error;

use crate::adopt::{DETACHED, Unfit, is_queue};
use crate::device::{HDR_LEN, MAX_QUEUES, Tap};
use crate::sys;

/// Why a descriptor is no queue that can be continued.
#[derive(Debug, Error)]
pub enum NotContinued {
    /// It is no queue that frames can pass.
    #[error("a queue: {0}")]
    Unfit(#[from] Unfit),
    /// It is another interface.
    #[error("a queue is of interface {found}, not {said}")]
    Another {
        /// The interface's name.
        found: String,
        /// The expected one.
        said: String,
    },
    /// It works in another way.
    #[error("{0} {1}")]
    Mode(String, &'static str),
}

impl Tap {
    /// Continues an interface with that name, and whether the kernel leaves UDP segmentation to the receiver.
    ///
    /// # Errors
    /// [`NotContinued`] if a descriptor is not one of its queues.
    pub fn continued(name: &str, uso: bool, queues: Vec<OwnedFd>) -> Result<Tap, NotContinued> {
        if queues.is_empty() || queues.len() > MAX_QUEUES as usize {
            return Err(Unfit::Number(queues.len()).into());
        }
        queues.iter().try_for_each(|queue| is_queue_of(queue, name, queues.len() > 1))?;
        Ok(Tap::of(name.to_owned(), queues, uso))
    }
}

/// The name that the interface behind a queue has now.
///
/// # Errors
/// The kernel's error.
pub fn name_of(queue: &OwnedFd) -> Result<String, Errno> {
    sys::get_iff(queue).map(|(name, _)| name)
}

fn is_queue_of(queue: &OwnedFd, said: &str, several: bool) -> Result<(), NotContinued> {
    let (found, flags) = is_queue(queue)?;
    if found != said {
        return Err(NotContinued::Another { found, said: said.to_owned() });
    }
    let header = sys::vnet_hdr_size(queue).map_err(Unfit::from)?;
    let wrong = match () {
        () if header != HDR_LEN as i32 => "has another header",
        () if (flags & libc::IFF_MULTI_QUEUE as u16 != 0) != several => "has another number of queues",
        () if flags & DETACHED != 0 => "has a queue detached",
        () => return Ok(()),
    };
    Err(NotContinued::Mode(found, wrong))
}
