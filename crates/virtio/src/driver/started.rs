//! A device's queues that run, as its driver holds them.

use std::sync::Arc;

use netvale_mem::fault::Fault;
use netvale_mem::notify::Doorbell;
use netvale_port::{BATCH, RingCounters};

use super::ram::{QueueRam, Ram};
use super::{DeviceViolation, DriverQueue};
use crate::features::Framing;

/// How a device is told of what is posted.
pub enum Kick {
    /// By an eventfd.
    Bell(Doorbell),
    /// By a register: this writes it.
    Register(Box<dyn Fn() + Send + Sync>),
}

impl Kick {
    /// Tells it.
    pub fn ring(&self) {
        match self {
            Kick::Bell(bell) => bell.ring(),
            Kick::Register(write) => write(),
        }
    }
}

/// A queue that runs.
pub struct Started {
    /// The ring.
    pub queue: DriverQueue,
    /// Its memory.
    pub ram: QueueRam,
    /// What the device is kicked by.
    pub kick: Kick,
    /// What its frames look like.
    pub framing: Framing,
    /// Buffers whose header is known to say nothing: it is not written again.
    pub blank: Box<[bool]>,
    /// The device broke the rules: nobody looks at the queue any more.
    pub broken: bool,
    /// Where it is reported what the device did.
    pub fault: Fault,
    /// Buffers of the batch taken last.
    pub taken: Vec<u16>,
    /// Frames, bytes, drops: its seat's, once it is there.
    pub counters: Arc<RingCounters>,
}

impl Started {
    /// A queue that was just set up.
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

    /// Has the device given up.
    #[cold]
    pub fn report(&mut self, why: DeviceViolation) {
        self.broken = true;
        self.fault.report(why);
    }
}

/// For each pair, what is received and what is transmitted.
pub fn pair_up(started: Vec<Started>) -> Vec<(Started, Started)> {
    let mut started = started.into_iter();
    let mut both = Vec::new();
    while let (Some(rx), Some(tx)) = (started.next(), started.next()) {
        both.push((rx, tx));
    }
    both
}

/// A device that runs.
pub struct Running {
    /// What it and we agreed upon.
    pub features: u64,
    /// For each pair, what is received and what is transmitted.
    pub pairs: Vec<(Started, Started)>,
    /// Its memory, to go behind the queues.
    pub ram: Ram,
}
