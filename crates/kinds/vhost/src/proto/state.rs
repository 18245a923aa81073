//! Saved state of a device. A successor restores the device as if the front end repeated its messages.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use netvale_fdio::state::{BadState, Fd};
use netvale_mem::fault::Fault;
use netvale_port::seat::Seat;
use netvale_virtio::device::live::LiveQueue;
use netvale_virtio::memory::{GuestMemory, RegionSpec};
use netvale_virtio::queue::QueueAddresses;
use serde::{Deserialize, Serialize};

use super::device::{NO_FD, NetConfig, QueueStart, VhostDevice};
use super::message::{VhostMessage, request};
use crate::inflight::InflightShape;

/// State of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VhostDeviceState {
    features: u64,
    protocol: u64,
    status: u64,
    /// Files of the guest's memory.
    files: Vec<Fd>,
    /// Memory regions, each with the index of its file.
    regions: Vec<(RegionSpec, usize)>,
    log: Option<LogState>,
    inflight: Option<InflightState>,
    /// Ethernet address of a guest that has migrated here and is not announced yet.
    pub announcement: Option<[u8; 6]>,
    /// The rings.
    pub rings: Vec<RingState>,
}

impl VhostDeviceState {
    /// Returns whether the position of a running ring is unknown, because the state was saved while the ring ran.
    pub fn is_lost(&self) -> bool {
        self.rings.iter().any(|ring| ring.started && ring.position.is_none())
    }
}

/// State of the dirty log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct LogState {
    /// Length of the log, and the offset in the file at which the log begins.
    place: [u64; 2],
    file: Fd,
}

/// State of the in-flight record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct InflightState {
    shape: InflightShape,
    file: Fd,
}

/// State of a ring.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingState {
    size: u16,
    addresses: Option<QueueAddresses>,
    /// Whether writes to the ring itself are logged.
    log: bool,
    enabled: bool,
    started: bool,
    /// Position of the ring in the form of `GET_VRING_BASE`. `None` if the state was saved while the ring ran: the
    /// in-flight record or the used ring must then show the position.
    pub position: Option<u32>,
    kick: Option<Fd>,
    call: Option<Fd>,
}

impl VhostDevice {
    /// Returns the current state, without the positions of running rings. `None` if the guest's memory is in more files
    /// than are kept.
    pub fn state(&self) -> Option<VhostDeviceState> {
        let mut files: Vec<Arc<OwnedFd>> = Vec::new();
        let mut regions = Vec::new();
        for (spec, file) in self.memory.files()? {
            let known = files.iter().position(|other| Arc::ptr_eq(other, &file));
            regions.push((spec, known.unwrap_or(files.len())));
            files.extend(known.is_none().then_some(file));
        }
        let ring = |v: &super::device::Vring| RingState {
            size: v.size,
            addresses: v.addresses,
            log: v.log,
            enabled: v.enabled,
            started: v.started,
            position: (!v.started).then_some(v.base),
            kick: v.kick.as_ref().map(Fd::shared),
            call: v.call.as_ref().map(Fd::shared),
        };
        let log = self.log.as_ref().map(|log| log.file());
        let inflight = self.inflight.as_ref().map(|inflight| inflight.file());
        Some(VhostDeviceState {
            features: self.features,
            protocol: self.protocol,
            status: self.status,
            files: files.iter().map(Fd::shared).collect(),
            regions,
            log: log.map(|(place, file)| LogState { place, file: Fd::shared(file) }),
            inflight: inflight.map(|(shape, file)| InflightState { shape, file: Fd::shared(file) }),
            announcement: self.announcement.map(|frame| mac_of(&frame)),
            rings: self.vrings.iter().map(ring).collect(),
        })
    }

    /// Restores a predecessor's device by repeating the front end's messages.
    ///
    /// # Errors
    /// [`BadState`] names the part of the state for which a front end's message would be refused.
    pub fn restore(
        config: NetConfig,
        seats: Vec<Arc<Seat<LiveQueue>>>,
        fault: Fault,
        state: VhostDeviceState,
    ) -> Result<VhostDevice, BadState> {
        let mut device = VhostDevice::new(config, seats, fault);
        if state.rings.len() != device.vrings.len() {
            return Err(BadState::new("the number of saved queues does not match the device"));
        }
        device.say(request::SET_PROTOCOL_FEATURES, &[state.protocol], None)?;
        device.say(request::SET_FEATURES, &[state.features], None)?;
        device.set_memory(memory(state.files, &state.regions)?).map_err(BadState::new)?;
        if let Some(LogState { place: [len, offset], file }) = state.log {
            device.say(request::SET_LOG_BASE, &[len, offset], Some(file))?;
        }
        if let Some(InflightState { shape: InflightShape { len, offset, queues, size }, file }) = state.inflight {
            let shape = u64::from(queues) | u64::from(size) << 16;
            device.say(request::SET_INFLIGHT_FD, &[len, offset, shape], Some(file))?;
        }
        for (i, ring) in state.rings.into_iter().enumerate() {
            device.restore_ring(i, ring)?;
        }
        if state.status != 0 {
            device.say(request::SET_STATUS, &[state.status], None)?;
        }
        if let Some([a, b, c, d, e, f]) = state.announcement {
            device.say(request::SEND_RARP, &[u64::from_le_bytes([a, b, c, d, e, f, 0, 0])], None)?;
        }
        Ok(device)
    }

    fn restore_ring(&mut self, i: usize, ring: RingState) -> Result<(), BadState> {
        let index = i as u64;
        if ring.size != 0 {
            self.say(request::SET_VRING_NUM, &[index | u64::from(ring.size) << 32], None)?;
        }
        if let Some(QueueAddresses { desc, avail, used }) = ring.addresses {
            self.say(request::SET_VRING_ADDR, &[index | u64::from(ring.log) << 32, desc, used, avail, 0], None)?;
        }
        let base = u64::from(ring.position.unwrap_or_default());
        self.say(request::SET_VRING_BASE, &[index | base << 32], None)?;
        if ring.call.is_some() {
            self.say(request::SET_VRING_CALL, &[index], ring.call)?;
        }
        if ring.started {
            self.vrings[i].begin = if ring.position.is_some() { QueueStart::Stopped } else { QueueStart::Lost };
            let flag = if ring.kick.is_none() { NO_FD } else { 0 };
            self.say(request::SET_VRING_KICK, &[index | flag], ring.kick)?;
        }
        self.say(request::SET_VRING_ENABLE, &[index | u64::from(ring.enabled) << 32], None)
    }

    fn say(&mut self, request: u32, words: &[u64], fd: Option<Fd>) -> Result<(), BadState> {
        let mut m = VhostMessage::of_words(request, words);
        m.fds.extend(fd.map(Fd::take).transpose()?);
        self.carry_out(&mut m).map(drop).map_err(BadState::new)
    }
}

/// Returns the guest's Ethernet address in a RARP announcement.
pub fn mac_of(frame: &[u8]) -> [u8; 6] {
    frame.get(6..12).and_then(|mac| mac.first_chunk()).copied().unwrap_or_default()
}

fn memory(files: Vec<Fd>, regions: &[(RegionSpec, usize)]) -> Result<GuestMemory, BadState> {
    if (0..files.len()).any(|number| !regions.iter().any(|(_, file)| *file == number)) {
        return Err(BadState::new("a saved file belongs to no memory region"));
    }
    let files = Fd::take_all(files)?;
    let file = |number: &usize| files.get(*number).ok_or_else(|| BadState::new("a memory region has no file"));
    regions.iter().try_fold(GuestMemory::default(), |memory, (spec, number)| {
        memory.with(*spec, file(number)?).map_err(BadState::new)
    })
}
