//! The running queues of a device, on the driver's side.

use std::sync::Arc;

use netvale_mem::fault::Fault;
use netvale_mem::notify::Doorbell;
use netvale_port::{BATCH, RingCounters};

use super::ram::{DriverRam, QueueRam};
use super::{DeviceViolation, DriverQueue};
use crate::features::Framing;

/// The means by which a driver notifies its device of posted buffers.
pub enum Kick {
    /// An eventfd.
    Bell(Arc<Doorbell>),
    /// A register, which this function writes.
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
pub struct RunningQueue {
    /// The virtqueue.
    pub queue: DriverQueue,
    /// The memory of the ring and its buffers.
    pub ram: QueueRam,
    /// Notifies the device of posted buffers.
    pub kick: Kick,
    /// The effect of the negotiated features on the queue's frames.
    pub framing: Framing,
    /// For each buffer, whether its header is known to be zero, so that an empty header need not be written again.
    pub blank: Box<[bool]>,
    /// Whether the device violated the protocol, which puts the queue out of use.
    pub broken: bool,
    /// Fault to which the device's violations are reported.
    pub fault: Fault,
    /// Buffers with the frames of the current batch.
    pub taken: Vec<u16>,
    /// Counters of frames, bytes and drops; replaced by the port's counters when the queue is lent to the workers.
    pub counters: Arc<RingCounters>,
}

impl RunningQueue {
    /// Creates a running queue from a virtqueue that was just set up.
    pub fn new(queue: DriverQueue, ram: QueueRam, kick: Kick, features: u64, fault: &Fault) -> RunningQueue {
        RunningQueue {
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

    /// Puts the queue out of use and reports the violation, which ends the connection.
    #[cold]
    pub fn report(&mut self, why: DeviceViolation) {
        self.broken = true;
        self.fault.report(why);
    }
}

/// Groups the queues in pairs of a receive queue and a transmit queue.
pub fn pair_up(started: Vec<RunningQueue>) -> Vec<(RunningQueue, RunningQueue)> {
    let mut started = started.into_iter();
    let mut both = Vec::new();
    while let (Some(rx), Some(tx)) = (started.next(), started.next()) {
        both.push((rx, tx));
    }
    both
}

/// A running device.
pub struct RunningVirtioDevice {
    /// The negotiated features.
    pub features: u64,
    /// A receive queue and a transmit queue for each pair.
    pub pairs: Vec<(RunningQueue, RunningQueue)>,
    /// The memory of all queues, which is dropped after the queues.
    pub ram: DriverRam,
}
