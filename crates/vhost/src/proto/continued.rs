//! What another process needs to go on with a device: numbers, and descriptors beside them. It carries them out like
//! messages of the front end, which says no more about the device than these do.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use netvale_mem::fault::Fault;
use netvale_port::seat::Seat;
use netvale_virtio::device::live::Live;
use netvale_virtio::memory::{GuestMemory, RegionSpec};
use netvale_virtio::queue::Addresses;
use serde::{Deserialize, Serialize};

use super::device::{Begin, Device, NO_FD, NetConfig};
use super::message::{Message, Refused, request};
use crate::inflight::Shape;

/// A device. Descriptors: the files of its memory, of the log, of the record of what is in flight; then, for each ring,
/// what it is kicked by, and what it calls by.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceState {
    features: u64,
    protocol: u64,
    status: u64,
    /// Regions, each with the number of its file.
    regions: Vec<(RegionSpec, usize)>,
    /// Length of the log, and where it begins in its file.
    log: Option<[u64; 2]>,
    inflight: Option<Shape>,
    /// Address of a guest that has arrived, which nobody was told yet.
    pub announcement: Option<[u8; 6]>,
    /// The rings.
    pub rings: Vec<RingState>,
}

impl DeviceState {
    /// Whether the process ended without saying where its rings stopped.
    pub fn is_lost(&self) -> bool {
        self.rings.iter().any(|ring| ring.started && ring.position.is_none())
    }
}

/// A ring.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingState {
    size: u16,
    addresses: Option<Addresses>,
    /// Whether the ring's own pages are logged.
    log: bool,
    enabled: bool,
    started: bool,
    /// Where it stopped, as `GET_VRING_BASE` says it. `None`: the process ended without notice, so that its record or
    /// its used ring has to say.
    pub position: Option<u32>,
    kick: bool,
    call: bool,
}

/// A descriptor that is kept.
pub type KeptFile = Arc<dyn AsFd + Send + Sync>;

impl Device {
    /// The device as it is now, but for the positions of running rings. `None`: it has too many files to go on with it.
    pub fn state(&self) -> Option<(DeviceState, Vec<KeptFile>)> {
        let mut files: Vec<Arc<OwnedFd>> = Vec::new();
        let mut regions = Vec::new();
        for (spec, file) in self.memory.files()? {
            let known = files.iter().position(|other| Arc::ptr_eq(other, &file));
            regions.push((spec, known.unwrap_or(files.len())));
            files.extend(known.is_none().then_some(file));
        }
        let (log, inflight) = (self.log.as_ref().map(|log| log.file()), self.inflight.as_ref().map(|i| i.file()));
        files.extend(log.map(|(_, file)| Arc::clone(file)));
        files.extend(inflight.map(|(_, file)| Arc::clone(file)));
        let mut fds: Vec<KeptFile> = files.into_iter().map(|file| file as KeptFile).collect();
        for v in &self.vrings {
            fds.extend([&v.kick, &v.call].into_iter().flatten().map(|bell| Arc::clone(bell) as KeptFile));
        }
        let ring = |v: &super::device::Vring| RingState {
            size: v.size,
            addresses: v.addresses,
            log: v.log,
            enabled: v.enabled,
            started: v.started,
            position: (!v.started).then_some(v.base),
            kick: v.kick.is_some(),
            call: v.call.is_some(),
        };
        let state = DeviceState {
            features: self.features,
            protocol: self.protocol,
            status: self.status,
            regions,
            log: log.map(|(place, _)| place),
            inflight: inflight.map(|(shape, _)| shape),
            announcement: self.announcement.map(|frame| mac_of(&frame)),
            rings: self.vrings.iter().map(ring).collect(),
        };
        Some((state, fds))
    }

    /// Goes on with another process's device. Only that process's mistakes, or a stranger's, make it fail.
    ///
    /// # Errors
    /// [`Refused`], as if a front end had sent it.
    pub fn continued(
        config: NetConfig,
        seats: Vec<Arc<Seat<Live>>>,
        fault: Fault,
        state: &DeviceState,
        fds: Vec<OwnedFd>,
    ) -> Result<Device, Refused> {
        let mut device = Device::new(config, seats, fault);
        if state.rings.len() != device.vrings.len() {
            return Err(Refused::Incomplete);
        }
        let mut fds = fds.into_iter();
        device.say(request::SET_PROTOCOL_FEATURES, &[state.protocol], None)?;
        device.say(request::SET_FEATURES, &[state.features], None)?;
        device.set_memory(memory(state, &mut fds)?)?;
        if let Some([len, offset]) = state.log {
            device.say(request::SET_LOG_BASE, &[len, offset], Some(next(&mut fds)?))?;
        }
        if let Some(Shape { len, offset, queues, size }) = state.inflight {
            let shape = u64::from(queues) | u64::from(size) << 16;
            device.say(request::SET_INFLIGHT_FD, &[len, offset, shape], Some(next(&mut fds)?))?;
        }
        for (i, ring) in state.rings.iter().enumerate() {
            device.go_on(i, ring, &mut fds)?;
        }
        if state.status != 0 {
            device.say(request::SET_STATUS, &[state.status], None)?;
        }
        if let Some([a, b, c, d, e, f]) = state.announcement {
            device.say(request::SEND_RARP, &[u64::from_le_bytes([a, b, c, d, e, f, 0, 0])], None)?;
        }
        if fds.next().is_some() { Err(Refused::Incomplete) } else { Ok(device) }
    }

    fn go_on(&mut self, i: usize, ring: &RingState, fds: &mut impl Iterator<Item = OwnedFd>) -> Result<(), Refused> {
        let index = i as u64;
        if ring.size != 0 {
            self.say(request::SET_VRING_NUM, &[index | u64::from(ring.size) << 32], None)?;
        }
        if let Some(Addresses { desc, avail, used }) = ring.addresses {
            self.say(request::SET_VRING_ADDR, &[index | u64::from(ring.log) << 32, desc, used, avail, 0], None)?;
        }
        let base = u64::from(ring.position.unwrap_or_default());
        self.say(request::SET_VRING_BASE, &[index | base << 32], None)?;
        let kick = ring.kick.then(|| next(fds)).transpose()?;
        if let Some(call) = ring.call.then(|| next(fds)).transpose()? {
            self.say(request::SET_VRING_CALL, &[index], Some(call))?;
        }
        if ring.started {
            self.vrings[i].begin = if ring.position.is_some() { Begin::Stopped } else { Begin::Lost };
            let flag = if kick.is_none() { NO_FD } else { 0 };
            self.say(request::SET_VRING_KICK, &[index | flag], kick)?;
        }
        self.say(request::SET_VRING_ENABLE, &[index | u64::from(ring.enabled) << 32], None)
    }

    fn say(&mut self, request: u32, words: &[u64], fd: Option<OwnedFd>) -> Result<(), Refused> {
        let mut m = Message::new(request, words.iter().flat_map(|word| word.to_le_bytes()).collect());
        m.fds.extend(fd);
        self.carry_out(&mut m).map(drop)
    }
}

/// The address in an announcement.
pub fn mac_of(frame: &[u8]) -> [u8; 6] {
    frame.get(6..12).and_then(|mac| mac.first_chunk()).copied().unwrap_or_default()
}

fn next(fds: &mut impl Iterator<Item = OwnedFd>) -> Result<OwnedFd, Refused> {
    fds.next().ok_or(Refused::Incomplete)
}

fn memory(state: &DeviceState, fds: &mut impl Iterator<Item = OwnedFd>) -> Result<GuestMemory, Refused> {
    let count = state.regions.iter().map(|(_, file)| file.saturating_add(1)).max().unwrap_or(0);
    let files: Vec<OwnedFd> = fds.take(count).collect();
    let mut memory = GuestMemory::default();
    for (spec, file) in &state.regions {
        memory = memory.with(*spec, files.get(*file).ok_or(Refused::Incomplete)?)?;
    }
    Ok(memory)
}
