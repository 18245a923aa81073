//! The queues of an interface on which programs send. While programs send on all queues, a barrier drops frames of the
//! host's stack, so that only the programs' frames reach the wire, as with netmap.

use std::sync::{Arc, PoisonError};

use netvale_fdio::state::Fd;
use rustix::io::Errno;

use super::{Nic, NicError, refused};
use crate::bpf::barrier::Barrier;

/// The queues on which programs send.
#[derive(Debug, Default)]
pub(super) struct Senders {
    queues: Vec<u32>,
    /// The barrier, which is attached while programs send on all queues; otherwise `None`.
    barrier: Option<Barrier>,
}

impl Senders {
    /// Returns an empty set of queues, and the predecessor's barrier if one was attached.
    pub(super) fn behind(barrier: Option<Barrier>) -> Senders {
        Senders { queues: Vec::new(), barrier }
    }
}

/// A program's claim to send on a queue, until dropped.
#[derive(Debug)]
pub struct SendClaim {
    nic: Arc<Nic>,
    queue: u32,
}

impl Nic {
    /// Registers that a program sends on a queue, until the returned claim is dropped. Once programs send on all
    /// queues, attaches the barrier.
    ///
    /// # Errors
    /// [`NicError`] if the barrier cannot be attached on a kernel that supports it (Linux 6.6).
    pub fn send_on(self: &Arc<Self>, queue: u32) -> Result<SendClaim, NicError> {
        let mut senders = self.senders.lock().unwrap_or_else(PoisonError::into_inner);
        senders.queues.push(queue);
        let sending = SendClaim { nic: Arc::clone(self), queue };
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

    /// Number of frames of the host's stack that the barrier dropped; `None` if no barrier is attached.
    pub fn kept(&self) -> Option<u64> {
        let senders = self.senders.lock().unwrap_or_else(PoisonError::into_inner);
        senders.barrier.as_ref().map(Barrier::dropped)
    }

    /// Descriptors of the barrier's counter and link; `None` if no barrier is attached.
    ///
    /// # Errors
    /// The process is out of descriptors.
    pub fn barrier(&self) -> std::io::Result<Option<[Fd; 2]>> {
        let senders = self.senders.lock().unwrap_or_else(PoisonError::into_inner);
        let Some([count, link]) = senders.barrier.as_ref().map(Barrier::descriptors) else { return Ok(None) };
        Ok(Some([Fd::copy_of(count)?, Fd::copy_of(link)?]))
    }
}

impl Drop for SendClaim {
    fn drop(&mut self) {
        let mut senders = self.nic.senders.lock().unwrap_or_else(PoisonError::into_inner);
        senders.barrier = None;
        senders.queues.retain(|&queue| queue != self.queue);
    }
}
