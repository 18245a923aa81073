//! virtio-net from both ends, whatever carries it.
//!
//! | module | what it is |
//! |---|---|
//! | [`features`] | feature bits, and what they mean for frames |
//! | [`memory`] | a guest's memory, addresses checked |
//! | [`queue`] | virtqueues, split and packed, the device's side |
//! | [`device`] | a device's queues as ingress and egress |
//! | [`driver`] | the other end: a virtio-net driver |
//!
//! A transport finds the other end, agrees with it on features, and learns, or says, where memory and rings lie:
//! vhost-user, PCI. It knows this crate, which knows none of them.

use std::sync::Arc;

use netvale_port::{Egress, Ingress};

pub mod device;
pub mod driver;
pub mod features;
pub mod memory;
pub mod queue;

/// Most queue pairs of a device, netvale's own or one that it drives.
pub const MAX_PAIRS: usize = 16;

/// A port's queues for the switch.
pub type Queues = (Vec<Arc<dyn Egress>>, Vec<Box<dyn Ingress>>);
