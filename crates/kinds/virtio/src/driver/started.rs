//! The running queues of a device, as its driver holds them.

use std::sync::Arc;

use netvale_mem::fault::Fault;
use netvale_mem::notify::Doorbell;
use netvale_port::{BATCH, RingCounters};

use super::ram::{QueueRam, Ram};
use super::{DeviceViolation, DriverQueue};
use crate::features::Framing;

/// How a driver notifies its device of posted buffers.
pub enum Kick {
    /// Through an eventfd.
    Bell(Arc<Doorbell>),
    /// Through a register, which this function writes.
    Register(Box<dyn Fn() + Send + Sync>),
}

impl Kick {
    /// Notifies the device.
    pub fn ring(&self) {
        match self {
            Kick::Bell(bell) => bell.ring(),
            Kick::Register(write) => write(),
        }
    }
}

/// A running queue.
pub struct Started {
    /// The ring.
    pub queue: DriverQueue,
    /// The memory of the ring and its buffers.
    pub ram: QueueRam,
    /// Notifies the device of posted buffers.
    pub kick: Kick,
    /// What the negotiated features mean for its frames.
    pub framing: Framing,
    /// Whether the header of a buffer is known to be zero and need not be written again.
    pub blank: Box<[bool]>,
    /// Whether the device violated the protocol: the queue is out of use.
    pub broken: bool,
    /// Reports the device's violations.
    pub fault: Fault,
    /// The buffers of the last batch taken.
    pub taken: Vec<u16>,
    /// Counts of frames, bytes and drops; replaced by the seat's once it sits there.
    pub counters: Arc<RingCounters>,
}

impl Started {
    /// Creates the handle of a queue that was just set up.
    pub fn new(queue: DriverQueue, ram: QueueRam, kick: Kick, features: u64, fault: &Fault) -> Started {
        Started {
            queue,
            blank: vec![false; usize::from(ram.size())].into_boxed_slice(),
            ram,
            kick,
            framing: Framing::of(features),
            broken: false,
            fault: fault.clone(),
            taken: Vec::with_capacity(2 * BATCH),
            counters: Arc::default(),
        }
    }

    /// Stops using the queue and reports why, which ends the connection.
    #[cold]
    pub fn report(&mut self, why: DeviceViolation) {
        self.broken = true;
        self.fault.report(why);
    }
}

/// Groups the queues in pairs: a receive queue and a transmit queue each.
pub fn pair_up(started: Vec<Started>) -> Vec<(Started, Started)> {
    let mut started = started.into_iter();
    let mut both = Vec::new();
    while let (Some(rx), Some(tx)) = (started.next(), started.next()) {
        both.push((rx, tx));
    }
    both
}

/// A running device.
pub struct Running {
    /// The negotiated features.
    pub features: u64,
    /// A receive queue and a transmit queue for each pair.
    pub pairs: Vec<(Started, Started)>,
    /// The memory of all queues, dropped after them.
    pub ram: Ram,
}
