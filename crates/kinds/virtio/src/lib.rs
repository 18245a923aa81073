//! virtio-net from both ends, over any transport.
//!
//! | module | what it is |
//! |---|---|
//! | [`features`] | feature bits and their effect on frames |
//! | [`memory`] | a guest's memory, with checked addresses |
//! | [`queue`] | the device side of virtqueues, split and packed |
//! | [`device`] | a device's queues as ingress and egress |
//! | [`driver`] | the driver's side: a virtio-net driver |
//!
//! A transport (vhost-user, PCI) finds the other end, negotiates features, and exchanges the location of memory and
//! rings. Transports depend on this crate, not the reverse.

use std::sync::Arc;

use netvale_fdio::state::BadState;
use netvale_port::listener::OpenError;
use netvale_port::{Egress, Ingress};
use rustix::io::Errno;
use thiserror::Error;

pub mod device;
pub mod driver;
pub mod features;
pub mod memory;
pub mod queue;

/// Maximum number of queue pairs of a device, whether netvale is the device or its driver.
pub const MAX_PAIRS: usize = 16;

/// A port's queues for the switch.
pub type VirtioQueues = (Vec<Arc<dyn Egress>>, Vec<Box<dyn Ingress>>);

/// An error in creating a port, whether netvale is the device or its driver.
#[derive(Debug, Error)]
pub enum VirtioPortError {
    /// There are too many queue pairs, or none.
    #[error("{0} queue pairs requested: expected 1 to {MAX_PAIRS}")]
    Pairs(u16),
    /// The port's socket, queues or service cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
}

impl From<VirtioPortError> for BadState {
    fn from(why: VirtioPortError) -> BadState {
        BadState::with(why.errno(), why)
    }
}

impl VirtioPortError {
    /// Returns the errno that is closest to this error.
    pub fn errno(&self) -> Errno {
        match self {
            VirtioPortError::Pairs(_) => Errno::INVAL,
            VirtioPortError::Open(why) => why.errno(),
        }
    }
}
