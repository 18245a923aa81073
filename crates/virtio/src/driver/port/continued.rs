//! What another process needs to go on with a driver's device where it stopped.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use netvale_mem::fault::Fault;
use netvale_mem::notify::Doorbell;
use netvale_port::service::Paused;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{LendError, LentDevice, Pair, lend};
use crate::driver::options::DriverOptions;
use crate::driver::path::Path;
use crate::driver::ram::{MAX_QUEUE, Ram};
use crate::driver::started::{Kick, Started, pair_up};
use crate::driver::{DriverFeatures, DriverQueue, QueueState, killed};
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

/// A device. Descriptors: what it is reached by, the memory; for each queue, what the device rings; for each, what it
/// is rung by.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeviceState {
    features: u64,
    queues: QueuesState,
}

/// Its queues: a receive queue and a transmit queue for each pair.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum QueuesState {
    /// They stopped there.
    At(Vec<QueueState>),
    /// They have these sizes; the rest is found from their rings, as their driver was killed.
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

/// A device that runs, and its descriptors.
pub(super) struct Up(DeviceState, Vec<OwnedFd>);

impl Up {
    /// # Errors
    /// When the process is out of descriptors.
    pub(super) fn new(lent: &LentDevice, by: BorrowedFd<'_>, calls: &[Doorbell]) -> std::io::Result<Up> {
        let state = DeviceState { features: lent.features, queues: QueuesState::Left(lent.sizes.clone()) };
        Ok(Up(state, lent.fds(by, calls)?))
    }

    /// What another process must know to go on after this one was killed.
    pub(super) fn state(&self) -> std::io::Result<(DeviceState, Vec<OwnedFd>)> {
        let fds = self.1.iter().map(OwnedFd::try_clone).collect::<std::io::Result<_>>()?;
        Ok((self.0.clone(), fds))
    }
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
    let mut queues = Vec::new();
    for (rx, tx) in pairs.iter().take(lent.sizes.len() / 2) {
        for seat in [rx, tx] {
            let Ok(queue) = seat.queue.control() else { return Ok(None) };
            let Some(Started { queue, broken: false, taken, .. }) = queue.as_ref() else {
                return Ok(None);
            };
            if !taken.is_empty() {
                return Ok(None);
            }
            queues.push(queue.state());
        }
    }
    let state = DeviceState { features: lent.features, queues: QueuesState::At(queues) };
    Ok(Some((state, lent.fds(by, calls)?)))
}

impl LentDevice {
    /// Its descriptors, as [`DeviceState`] has them.
    fn fds(&self, by: BorrowedFd<'_>, calls: &[Doorbell]) -> std::io::Result<Vec<OwnedFd>> {
        let mut fds = vec![by.try_clone_to_owned()?, self.ram.file()?];
        for bell in calls.iter().take(self.sizes.len()).chain(self.kicks.iter().map(AsRef::as_ref)) {
            fds.push(bell.as_fd().try_clone_to_owned()?);
        }
        Ok(fds)
    }

    /// Goes on with another process's device: gives its queues to the workers, and writes nothing that the device looks
    /// at. Returns also what the device is reached by.
    pub(super) fn continued(
        state: DeviceState,
        fds: Vec<OwnedFd>,
        options: DriverOptions,
        seats: &[Pair],
    ) -> Result<(OwnedFd, LentDevice), BadState> {
        let DeviceState { features, queues } = state;
        let sizes = queues.sizes();
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
        let kicks: Vec<_> = calls.split_off(sizes.len()).into_iter().map(Arc::new).collect();
        let vector = Path::of(features, options.vector).vector.is_some();
        let (layout, in_order) = (QueueFeatures::of(features), features & IN_ORDER != 0);
        let agreed = DriverFeatures { queue: layout, in_order, vector };
        let mut started = Vec::new();
        for (i, (ram, kick)) in rams.into_iter().zip(&kicks).enumerate() {
            let queue = match &queues {
                QueuesState::At(queues) => queues.get(i).and_then(|state| {
                    let is_there = killed::is_there(&ram, agreed, state);
                    // Otherwise another process went on from there, and was killed before this was kept anew.
                    if is_there { DriverQueue::continued(&ram, agreed, state) } else { killed::continued(&ram, agreed) }
                }),
                QueuesState::Left(_) => killed::continued(&ram, agreed),
            };
            let (queue, kick) = (queue.ok_or(BadState::Queue(i))?, Kick::Bell(Arc::clone(kick)));
            started.push(Started::new(queue, ram, kick, features, &fault));
        }
        lend(seats, &calls, pair_up(started))?;
        let unrung = matches!(queues, QueuesState::Left(_));
        Ok((by, LentDevice { features, sizes, ram, calls, kicks, unrung, fault }))
    }
}
