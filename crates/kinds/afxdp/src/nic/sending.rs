//! The queues of an interface that programs send on. While those are all of them, the interface is the programs', and
//! no frame of the host's stack gets to the wire past them, as with netmap.

use std::sync::{Arc, PoisonError};

use netvale_fdio::state::Fd;
use rustix::io::Errno;

use super::{Nic, NicError, refused};
use crate::bpf::barrier::Barrier;

/// The queues that programs send on.
#[derive(Debug, Default)]
pub(super) struct Senders {
    queues: Vec<u32>,
    /// Attached while those are all.
    barrier: Option<Barrier>,
}

impl Senders {
    /// None yet, behind what another process attached.
    pub(super) fn behind(barrier: Option<Barrier>) -> Senders {
        Senders { queues: Vec::new(), barrier }
    }
}

/// A queue that a program sends on, until this is dropped.
#[derive(Debug)]
pub struct Sending {
    nic: Arc<Nic>,
    queue: u32,
}

impl Nic {
    /// A program sends on a queue from now on.
    ///
    /// # Errors
    /// [`NicError`] if the stack's frames cannot be kept from the wire, although the kernel knows how (Linux 6.6).
    pub fn send_on(self: &Arc<Self>, queue: u32) -> Result<Sending, NicError> {
        let mut senders = self.senders.lock().unwrap_or_else(PoisonError::into_inner);
        senders.queues.push(queue);
        let sending = Sending { nic: Arc::clone(self), queue };
        let is_all = (0..self.interface.queues).all(|queue| senders.queues.contains(&queue));
        if !is_all || senders.barrier.is_some() {
            return Ok(sending);
        }
        match Barrier::attach(self.interface.index) {
            Ok(barrier) => senders.barrier = Some(barrier),
            Err((_, Errno::INVAL)) => {}
            Err((what, source)) => {
                drop(senders);
                return Err(refused(&self.interface, what, source));
            }
        }
        Ok(sending)
    }

    /// How many frames of the host's stack were kept from the wire; `None` while they are not.
    pub fn kept(&self) -> Option<u64> {
        let senders = self.senders.lock().unwrap_or_else(PoisonError::into_inner);
        senders.barrier.as_ref().map(Barrier::dropped)
    }

    /// What keeps them: the counter and the link; `None` while nothing does.
    ///
    /// # Errors
    /// The process is out of descriptors.
    pub fn barrier(&self) -> std::io::Result<Option<[Fd; 2]>> {
        let senders = self.senders.lock().unwrap_or_else(PoisonError::into_inner);
        let Some([count, link]) = senders.barrier.as_ref().map(Barrier::descriptors) else { return Ok(None) };
        Ok(Some([Fd::copy_of(count)?, Fd::copy_of(link)?]))
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        let mut senders = self.nic.senders.lock().unwrap_or_else(PoisonError::into_inner);
        senders.barrier = None;
        senders.queues.retain(|&queue| queue != self.queue);
    }
}
