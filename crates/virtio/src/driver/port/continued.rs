//! What another process needs to go on with a driver's device where it stopped.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use netvale_mem::fault::Fault;
use netvale_mem::notify::Doorbell;
use netvale_port::service::Paused;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{LendError, LentDevice, Pair, lend};
use crate::driver::options::DriverOptions;
use crate::driver::path::Path;
use crate::driver::ram::{MAX_QUEUE, QueueRam, Ram};
use crate::driver::started::{Kick, Started, pair_up};
use crate::driver::{DriverFeatures, DriverQueue, QueueState};
use crate::features::IN_ORDER;
use crate::queue::QueueFeatures;

/// A port.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DriverState {
    /// Number of devices so far.
    pub connections: u64,
    /// Why the last device was left.
    pub last_error: Option<String>,
    /// The device that runs.
    pub device: Option<DeviceState>,
}

/// A device. Descriptors: what it is reached by, the memory; for each queue, what the device rings; for each, what it is
/// rung by.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeviceState {
    features: u64,
    /// A receive queue and a transmit queue for each pair.
    queues: Vec<QueueState>,
}

/// What a port says of itself for a successor.
pub struct Given {
    /// Numbers.
    pub state: DriverState,
    /// Descriptors.
    pub fds: Vec<OwnedFd>,
    /// The port's thread stands still until this is dropped.
    pub paused: Paused,
}

/// What the port's thread says of its device. None inside: another process cannot go on with it.
pub(super) type DeviceSaid = std::io::Result<Option<(DeviceState, Vec<OwnedFd>)>>;

/// Why a device of another process cannot be continued.
#[derive(Debug, Error)]
pub enum BadState {
    /// Descriptors are missing, or are too many.
    #[error("the number of its descriptors is wrong")]
    Descriptors,
    /// The connection is something else.
    #[error("the device cannot be reached by what is said to reach it")]
    Connection,
    /// The queues are not such as this port could have.
    #[error("queues that this port would not have")]
    Queues,
    /// A queue cannot be where it is said to be.
    #[error("queue {0} is not where it is said to be, or a buffer is missing")]
    Queue(usize),
    /// The memory is something else.
    #[error("its memory: {0}")]
    Memory(Errno),
    /// A doorbell is something else.
    #[error("a descriptor that is no eventfd")]
    NoEventfd,
    /// The queues cannot be given to the workers.
    #[error(transparent)]
    Lend(#[from] LendError),
}

/// What another process needs to go on with the device. The workers must be parked.
pub(super) fn device_state(lent: &LentDevice, by: BorrowedFd<'_>, calls: &[Doorbell], pairs: &[Pair]) -> DeviceSaid {
    let (mut queues, mut kicks) = (Vec::new(), Vec::new());
    for (rx, tx) in pairs.iter().take(lent.pairs) {
        for seat in [rx, tx] {
            let Ok(queue) = seat.queue.control() else { return Ok(None) };
            let Some(Started { queue, kick: Kick::Bell(kick), broken: false, taken, .. }) = queue.as_ref() else {
                return Ok(None);
            };
            if !taken.is_empty() {
                return Ok(None);
            }
            queues.push(queue.state());
            kicks.push(kick.as_fd().try_clone_to_owned()?);
        }
    }
    let mut fds = vec![by.try_clone_to_owned()?, lent.ram.file()?];
    for call in calls.iter().take(queues.len()) {
        fds.push(call.as_fd().try_clone_to_owned()?);
    }
    fds.extend(kicks);
    Ok(Some((DeviceState { features: lent.features, queues }, fds)))
}

impl LentDevice {
    /// Goes on with another process's device: gives its queues to the workers, and writes nothing. Returns also what the
    /// device is reached by.
    pub(super) fn continued(
        state: DeviceState,
        fds: Vec<OwnedFd>,
        options: DriverOptions,
        seats: &[Pair],
    ) -> Result<(OwnedFd, LentDevice), BadState> {
        let DeviceState { features, queues } = state;
        let sizes: Vec<u16> = queues.iter().map(|queue| queue.size).collect();
        let fits = |n: &u16| n.is_power_of_two() && (8..=MAX_QUEUE).contains(n);
        if sizes.is_empty()
            || !sizes.len().is_multiple_of(2)
            || sizes.len() > 2 * seats.len()
            || !sizes.iter().all(fits)
        {
            return Err(BadState::Queues);
        }
        if fds.len() != 2 + 2 * sizes.len() {
            return Err(BadState::Descriptors);
        }
        let mut fds = fds.into_iter();
        let mut next = || fds.next().ok_or(BadState::Descriptors);
        let (by, (ram, rams)) = (next()?, Ram::continued(next()?, &sizes).map_err(BadState::Memory)?);
        let fault = Fault::new().map_err(BadState::Memory)?;
        ram.mapping().blame(&fault);
        let bells = fds.map(|fd| Doorbell::given(fd, &fault).map_err(|_| BadState::NoEventfd));
        let mut calls = bells.collect::<Result<Vec<_>, _>>()?;
        let kicks = calls.split_off(sizes.len());
        let mut started = Vec::new();
        for (i, ((ram, kick), state)) in rams.into_iter().zip(kicks).zip(&queues).enumerate() {
            let queue = go_on(&ram, features, options, state).ok_or(BadState::Queue(i))?;
            started.push(Started::new(queue, ram, Kick::Bell(kick), features, &fault));
        }
        lend(seats, &calls, pair_up(started))?;
        Ok((by, LentDevice { features, pairs: sizes.len() / 2, ram, calls, fault }))
    }
}

fn go_on(ram: &QueueRam, features: u64, options: DriverOptions, state: &QueueState) -> Option<DriverQueue> {
    let vector = Path::of(features, options.vector).vector.is_some();
    let features = DriverFeatures { queue: QueueFeatures::of(features), in_order: features & IN_ORDER != 0, vector };
    DriverQueue::continued(ram, features, state)
}
