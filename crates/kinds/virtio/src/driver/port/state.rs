//! Saved state of a driver's device, from which a successor resumes.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use netvale_fdio::state::{BadState, Fd};
use netvale_mem::fault::Fault;
use netvale_mem::notify::Doorbell;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::{LentDevice, SeatPair, lend};
use crate::driver::options::DriverOptions;
use crate::driver::ram::{DriverRam, MAX_QUEUE};
use crate::driver::started::{Kick, RunningQueue, pair_up};
use crate::driver::{DriverFeatures, DriverQueue, DriverQueueState, killed};

/// State of a driver port.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DriverState {
    /// Number of devices so far.
    pub connections: u64,
    /// The error that ended the last device.
    pub last_error: Option<String>,
    /// The running device.
    pub device: Option<DeviceState>,
}

/// State of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceState {
    features: u64,
    /// The descriptor through which the device is reached, e.g. the connected socket.
    by: Fd,
    memory: Fd,
    queues: QueuesState,
    /// For each queue, the doorbell that the device rings.
    calls: Vec<Fd>,
    /// For each queue, the doorbell that rings the device.
    kicks: Vec<Fd>,
}

/// State of the device's queues: a receive and a transmit queue for each pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum QueuesState {
    /// Exact positions, saved while the workers were paused.
    At(Vec<DriverQueueState>),
    /// Only the sizes, saved in case the driver is killed; positions and owners are then recovered from the rings.
    Left(Vec<u16>),
}

impl QueuesState {
    fn sizes(&self) -> Vec<u16> {
        match self {
            QueuesState::At(queues) => queues.iter().map(|queue| queue.size).collect(),
            QueuesState::Left(sizes) => sizes.clone(),
        }
    }
}

/// The answer of the port's thread to a request for the device's state. The inner value is `None` if no other process
/// can resume the device.
pub(super) type DeviceSaid = std::io::Result<Option<DeviceState>>;

/// Saves the device with exact positions. The workers must be parked. Returns `None` if a queue is broken, a worker
/// still uses it, or it has frames in a batch.
pub(super) fn device_state(
    lent: &LentDevice,
    by: BorrowedFd<'_>,
    calls: &[Doorbell],
    pairs: &[SeatPair],
) -> DeviceSaid {
    let mut queues = Vec::new();
    for (rx, tx) in pairs.iter().take(lent.sizes.len() / 2) {
        for seat in [rx, tx] {
            let Ok(queue) = seat.queue.control() else { return Ok(None) };
            let Some(RunningQueue { queue, broken: false, taken, .. }) = queue.as_ref() else {
                return Ok(None);
            };
            if !taken.is_empty() {
                return Ok(None);
            }
            queues.push(queue.state());
        }
    }
    lent.state(by, calls, QueuesState::At(queues)).map(Some)
}

impl LentDevice {
    fn state(&self, by: BorrowedFd<'_>, calls: &[Doorbell], queues: QueuesState) -> std::io::Result<DeviceState> {
        Ok(DeviceState {
            features: self.features,
            by: Fd::copy_of(by)?,
            memory: self.ram.file()?.into(),
            queues,
            calls: Fd::copies_of(calls.iter().take(self.sizes.len()))?,
            kicks: self.kicks.iter().map(Fd::shared).collect(),
        })
    }

    /// Saves the device in case this process is killed.
    ///
    /// # Errors
    /// Fails if the process is out of descriptors.
    pub(super) fn state_at_any_time(&self, by: BorrowedFd<'_>, calls: &[Doorbell]) -> std::io::Result<DeviceState> {
        self.state(by, calls, QueuesState::Left(self.sizes.clone()))
    }

    /// Restores a predecessor's device: lends the device's queues to the workers, and writes nothing that the device
    /// reads. Returns the descriptor through which the device is reached, and the device.
    pub(super) fn restore(
        state: DeviceState,
        options: DriverOptions,
        seats: &[SeatPair],
    ) -> Result<(OwnedFd, LentDevice), BadState> {
        let DeviceState { features, by, memory, queues, calls, kicks } = state;
        let sizes = queues.sizes();
        let fits = |n: &u16| n.is_power_of_two() && (8..=MAX_QUEUE).contains(n);
        if sizes.is_empty()
            || !sizes.len().is_multiple_of(2)
            || sizes.len() > 2 * seats.len()
            || !sizes.iter().all(fits)
        {
            return Err(BadState::new("the device has other queues than this port"));
        }
        if [&calls, &kicks].iter().any(|bells| bells.len() != sizes.len()) {
            return Err(BadState::new("the numbers of queues and doorbells differ"));
        }
        let no_memory = |e: Errno| BadState::from(e).of("its memory");
        let (ram, rams) = DriverRam::restore(memory.take()?, &sizes).map_err(no_memory)?;
        let fault = Fault::new()?;
        ram.mapping().blame(&fault);
        let no_eventfd = |_| BadState::new("a descriptor that is not an eventfd");
        let bell = |fd: Fd| Doorbell::given(fd.take()?, &fault).map_err(no_eventfd);
        let calls = calls.into_iter().map(bell).collect::<Result<Vec<_>, _>>()?;
        let kicks = kicks.into_iter().map(|fd| bell(fd).map(Arc::new)).collect::<Result<Vec<_>, _>>()?;
        let agreed = DriverFeatures::of(features, options);
        let mut started = Vec::new();
        for (i, (ram, kick)) in rams.into_iter().zip(&kicks).enumerate() {
            let queue = match &queues {
                QueuesState::At(queues) => queues.get(i).and_then(|state| {
                    let is_there = killed::is_there(&ram, agreed, state);
                    // If the state is not current, another process resumed from it, and was killed before it saved a
                    // new state.
                    if is_there { DriverQueue::continued(&ram, agreed, state) } else { killed::continued(&ram, agreed) }
                }),
                QueuesState::Left(_) => killed::continued(&ram, agreed),
            };
            let is_elsewhere =
                || BadState::new(format!("the position of queue {i} is wrong, or one of its buffers is missing"));
            let queue = queue.ok_or_else(is_elsewhere)?;
            started.push(RunningQueue::new(queue, ram, Kick::Bell(Arc::clone(kick)), features, &fault));
        }
        lend(seats, &calls, pair_up(started)).map_err(BadState::new)?;
        let unrung = matches!(queues, QueuesState::Left(_));
        Ok((by.take()?, LentDevice { features, sizes, ram, calls, kicks, unrung, fault }))
    }
}
