//! The device: the effect of each message from a front end, independent of sockets. The MTU in the device's
//! configuration space is the size of the longest packet that a driver may send.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use netvale_mem::fault::Fault;
use netvale_mem::lent::{InUse, LentControl};
use netvale_mem::notify::Doorbell;
use netvale_port::batch::BATCH;
use netvale_port::seat::Seat;
use netvale_virtio::device::live::{self, LiveQueue};
use netvale_virtio::features::{Framing, MQ};
use netvale_virtio::memory::{GuestMemory, MAX_REGIONS, MemoryError, RegionSpec};
use netvale_virtio::queue::{DeviceQueue, MAX_SIZE, Pieces, QueueAddresses, QueueFeatures};

use super::message::{FrontEndViolation, VhostMessage, protocol, request};
use crate::features::{OFFERED, PROTOCOL_FEATURES};
use crate::inflight::{Inflight, QueueRecord};
use crate::log::DirtyLog;

/// The protocol features that netvale's device offers.
const PROTOCOL_OFFERED: u64 = protocol::MQ
    | protocol::LOG_SHMFD
    | protocol::RARP
    | protocol::REPLY_ACK
    | protocol::MTU
    | protocol::CONFIG
    | protocol::INFLIGHT_SHMFD
    | protocol::RESET_DEVICE
    | protocol::CONFIGURE_MEM_SLOTS
    | protocol::STATUS;

/// Flag in the payload of SET_VRING_KICK and SET_VRING_CALL: there is no descriptor.
pub(super) const NO_FD: u64 = 1 << 8;
/// Flag of SET_VRING_ADDR, `VHOST_VRING_F_LOG`: writes to the ring itself are logged, not only writes to buffers.
const LOG_RING: u32 = 1;

/// The MTU that a device offers, in bytes. The MTU may change while the device is in use; a driver reads it only when
/// the driver starts. Clones share one value.
#[derive(Clone, Debug, Default)]
pub struct OfferedMtu(Arc<AtomicU16>);

impl OfferedMtu {
    /// Sets the MTU.
    pub fn set(&self, mtu: u16) {
        self.0.store(mtu, Ordering::Relaxed);
    }

    /// Returns the MTU.
    pub fn get(&self) -> u16 {
        self.0.load(Ordering::Relaxed)
    }
}

impl From<u16> for OfferedMtu {
    fn from(mtu: u16) -> OfferedMtu {
        OfferedMtu(Arc::new(mtu.into()))
    }
}

/// The configuration space of the device (virtio 1.3 §5.1.4).
#[derive(Clone, Debug, Default)]
pub struct NetConfig {
    /// Ethernet address offered to the driver.
    pub mac: [u8; 6],
    /// Number of queue pairs.
    pub pairs: u16,
    /// MTU offered to the driver.
    pub mtu: OfferedMtu,
}

impl NetConfig {
    /// Returns the configuration space: address, status (link up), queue pairs, MTU.
    fn bytes(&self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..6].copy_from_slice(&self.mac);
        bytes[6] = 1;
        bytes[8..10].copy_from_slice(&self.pairs.to_le_bytes());
        bytes[10..].copy_from_slice(&self.mtu.get().to_le_bytes());
        bytes
    }
}

#[derive(Default)]
pub(super) struct Vring {
    pub(super) size: u16,
    pub(super) addresses: Option<QueueAddresses>,
    pub(super) base: u32,
    pub(super) kick: Option<Arc<Doorbell>>,
    pub(super) call: Option<Arc<Doorbell>>,
    pub(super) enabled: bool,
    pub(super) started: bool,
    pub(super) log: bool,
    /// Source of the position at which the ring starts the next time.
    pub(super) begin: QueueStart,
}

/// The source of a queue's start position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum QueueStart {
    /// The base that the front end sent, or the position in the in-flight record if that differs.
    #[default]
    Told,
    /// The position at which a predecessor stopped. As the predecessor may still resume, nothing is written to the ring
    /// or the record.
    Stopped,
    /// The position at which a predecessor ended without notice, as read from the in-flight record or the used ring.
    Lost,
}

/// The device of one connection with a front end.
pub struct VhostDevice {
    config: NetConfig,
    fault: Fault,
    pub(super) seats: Vec<Arc<Seat<LiveQueue>>>,
    pub(super) vrings: Vec<Vring>,
    pub(super) memory: Arc<GuestMemory>,
    pub(super) features: u64,
    pub(super) protocol: u64,
    pub(super) status: u64,
    /// Whether the front end has claimed the device (SET_OWNER).
    owned: bool,
    pub(super) log: Option<Arc<DirtyLog>>,
    pub(super) inflight: Option<Arc<Inflight>>,
    /// The RARP frame that announces a guest that has migrated here; it is passed to the switch once the first transmit
    /// queue runs.
    pub(super) announcement: Option<[u8; 60]>,
}

impl VhostDevice {
    /// Creates a device with two seats per queue pair: one for frames to the driver, one for frames from it. Workers
    /// report the driver's violations to `fault`.
    pub fn new(config: NetConfig, seats: Vec<Arc<Seat<LiveQueue>>>, fault: Fault) -> VhostDevice {
        let vrings = seats.iter().map(|_| Vring::default()).collect();
        VhostDevice {
            config,
            fault,
            seats,
            vrings,
            memory: Arc::default(),
            features: 0,
            protocol: 0,
            status: 0,
            owned: false,
            log: None,
            inflight: None,
            announcement: None,
        }
    }

    /// Returns the features that the driver acknowledged.
    pub fn features(&self) -> u64 {
        self.features
    }

    /// Returns the fault to which workers report the driver's violations.
    pub fn fault(&self) -> Fault {
        self.fault.clone()
    }

    /// Returns the number of running queues.
    pub fn running(&self) -> usize {
        self.vrings.iter().filter(|v| v.started).count()
    }

    /// Executes a message. Returns the answer; `None` if the message needs no answer.
    ///
    /// # Errors
    /// [`FrontEndViolation`] if the connection must end.
    pub fn handle(&mut self, mut m: VhostMessage) -> Result<Option<VhostMessage>, FrontEndViolation> {
        if m.is_reply() {
            return Err(FrontEndViolation::Unasked(m.request));
        }
        let asked = m.request;
        if asked == request::GET_INFLIGHT_FD {
            return self.make_inflight(&m).map(Some);
        }
        let answer = self.carry_out(&mut m)?;
        if !m.fds.is_empty() {
            return Err(FrontEndViolation::Fds { request: asked, fds: m.fds.len() });
        }
        // User-Mode Linux expects an answer even to the request that enables answers.
        let ack = m.needs_ack() && self.protocol & protocol::REPLY_ACK != 0;
        Ok(answer.map(|payload| VhostMessage::reply(asked, payload)).or_else(|| {
            let done = || VhostMessage::reply(asked, 0u64.to_le_bytes().to_vec());
            ack.then(done)
        }))
    }

    pub(super) fn carry_out(&mut self, m: &mut VhostMessage) -> Result<Option<Vec<u8>>, FrontEndViolation> {
        let number = |n: u64| Ok(Some(n.to_le_bytes().to_vec()));
        match m.request {
            request::GET_FEATURES => return number(self.offered()),
            request::SET_FEATURES => {
                self.features = acknowledged(m, self.offered())?;
                self.tell_logs()?;
            }
            request::SET_OWNER => self.owned = true,
            request::RESET_OWNER => self.reset()?,
            request::RESET_DEVICE => {
                self.reset()?;
                self.vrings.iter_mut().for_each(|v| *v = Vring::default());
            }
            request::GET_PROTOCOL_FEATURES => return number(self.protocol_told()),
            request::SET_PROTOCOL_FEATURES => self.protocol = acknowledged(m, self.protocol_offered())?,
            request::GET_QUEUE_NUM => return number(u64::from(self.config.pairs)),
            request::GET_MAX_MEM_SLOTS => return number(MAX_REGIONS as u64),
            request::SET_MEM_TABLE => self.set_memory_table(m)?,
            request::ADD_MEM_REG => {
                let spec = m.region(8)?;
                let fds = m.take_fds(1)?;
                let fd = fds.first().ok_or(FrontEndViolation::Size(m.request))?;
                // QEMU before 8.2 sends this once per queue pair.
                if !self.memory.has(&spec) {
                    self.set_memory(self.memory.with(spec, fd)?)?;
                }
            }
            request::REM_MEM_REG => {
                // Some front ends pass the region's file, which is not needed.
                m.fds.clear();
                // Eight bytes of padding precede the region.
                let spec = m.region(8)?;
                match self.memory.without(spec) {
                    Err(MemoryError::NoSuch(_)) => {}
                    other => self.set_memory(other?)?,
                }
            }
            request::GET_CONFIG => return self.get_config(m).map(Some),
            // Both requests are ignored: the driver cannot write the configuration space, and frames of any length are
            // accepted.
            request::SET_CONFIG | request::NET_SET_MTU => {}
            request::SET_STATUS => {
                self.status = m.u64()?;
                if self.status == 0 {
                    self.reset()?;
                }
            }
            request::GET_STATUS => return number(self.status),
            request::SET_LOG_BASE => {
                self.set_log(m)?;
                // Front ends expect an answer, but differ in the length that they expect. Every front end accepts its
                // own payload as the answer.
                return Ok(Some(std::mem::take(&mut m.payload)));
            }
            // The message has an eventfd that would announce writes to the dirty log. No front end waits for this, so
            // the eventfd is closed.
            request::SET_LOG_FD => drop(m.take_fds(1)?),
            request::SET_INFLIGHT_FD => self.set_inflight(m)?,
            request::SEND_RARP => self.announce(m)?,
            _ => return self.vring_request(m),
        }
        Ok(None)
    }

    fn vring_request(&mut self, m: &mut VhostMessage) -> Result<Option<Vec<u8>>, FrontEndViolation> {
        match m.request {
            request::SET_VRING_NUM => {
                let (i, size) = m.vring_state()?;
                let v = self.stopped(i, m.request)?;
                v.size = u16::try_from(size)
                    .ok()
                    .filter(|n| *n > 0 && *n <= MAX_SIZE)
                    .ok_or(FrontEndViolation::Value(m.request))?;
            }
            request::SET_VRING_ADDR => self.set_addresses(m)?,
            request::SET_VRING_BASE => {
                let (i, base) = m.vring_state()?;
                self.stopped(i, m.request)?.base = base;
            }
            request::GET_VRING_BASE => {
                let (i, _) = m.vring_state()?;
                self.vring(i)?;
                self.close_record(i as usize)?;
                let base = self.stop(i as usize)?;
                return Ok(Some([i.to_le_bytes(), base.to_le_bytes()].concat()));
            }
            request::SET_VRING_KICK => {
                let (i, kick) = self.vring_fd(m)?;
                self.stop(i)?;
                self.vrings[i].kick = kick.map(Arc::new);
                self.start(i)?;
            }
            request::SET_VRING_CALL => {
                let (i, call) = self.vring_fd(m)?;
                self.vrings[i].call = call.map(Arc::new);
                let call = self.vrings[i].call.clone();
                if let Some(live) = self.queue(i)?.as_mut() {
                    live.call = call;
                    // The device may have used buffers before the descriptor arrived, and the driver needs a
                    // notification of these, too.
                    live.notify();
                }
            }
            request::SET_VRING_ERR => drop(self.vring_fd(m)?),
            request::SET_VRING_ENABLE => {
                let (i, on) = m.vring_state()?;
                if on > 1 {
                    return Err(FrontEndViolation::Value(m.request));
                }
                self.vring(i)?.enabled = on == 1;
                let seat = &self.seats[i as usize];
                if let Some(live) = self.queue(i as usize)?.as_mut() {
                    live.enabled = on == 1;
                    seat.set_open(on == 1);
                }
                seat.poke();
                self.deliver_announcement()?;
            }
            _ => return Err(FrontEndViolation::Unknown(m.request)),
        }
        Ok(None)
    }

    /// Returns the offered features; a device with one pair does not offer multiple queues (`MQ`). A driver selects the
    /// number of queues through a control queue, which the front end implements. User-Mode Linux has no control queue,
    /// and would refuse a device that offers several queues.
    fn offered(&self) -> u64 {
        if self.config.pairs > 1 { OFFERED } else { OFFERED & !MQ }
    }

    /// Returns the offered protocol features. A device with one pair does not offer multiple queues (`MQ`) here,
    /// either: User-Mode Linux would take the number of pairs for a number of queues.
    fn protocol_offered(&self) -> u64 {
        if self.config.pairs > 1 { PROTOCOL_OFFERED } else { PROTOCOL_OFFERED & !protocol::MQ }
    }

    /// Returns the protocol features for the current state. QEMU asks before it owns the device, keeps a network card's
    /// configuration space itself, and warns about a device that offers one. Other front ends (User-Mode Linux,
    /// rust-vmm) own the device first, and may read the address there.
    fn protocol_told(&self) -> u64 {
        let offered = self.protocol_offered();
        if self.owned { offered } else { offered & !protocol::CONFIG }
    }

    fn get_config(&self, m: &VhostMessage) -> Result<Vec<u8>, FrontEndViolation> {
        let mut payload = m.payload.clone();
        let word = |i: usize| payload.get(i..i + 4).and_then(|b| b.first_chunk()).map(|b| u32::from_le_bytes(*b));
        let (Some(offset), Some(size)) = (word(0), word(4)) else { return Err(FrontEndViolation::Size(m.request)) };
        let config = self.config.bytes();
        // The payload has offset, size and flags, followed by the bytes; bytes beyond the device's configuration space
        // are zero.
        let into =
            payload.get_mut(12..).filter(|b| b.len() == size as usize).ok_or(FrontEndViolation::Size(m.request))?;
        for (k, byte) in into.iter_mut().enumerate() {
            *byte = config.get(offset as usize + k).copied().unwrap_or(0);
        }
        Ok(payload)
    }

    fn set_memory_table(&mut self, m: &mut VhostMessage) -> Result<(), FrontEndViolation> {
        let count = m.payload.first_chunk::<4>().map_or(0, |b| u32::from_le_bytes(*b)) as usize;
        if m.payload.len() < 8 + 32 * count || count > MAX_REGIONS {
            return Err(FrontEndViolation::Size(m.request));
        }
        let specs = (0..count).map(|i| m.region(8 + 32 * i)).collect::<Result<Vec<RegionSpec>, _>>()?;
        let fds = m.take_fds(count)?;
        self.set_memory(GuestMemory::new(specs.into_iter().zip(fds).collect())?)
    }

    /// Replaces the guest's memory. Running queues continue in the new memory.
    pub(super) fn set_memory(&mut self, memory: GuestMemory) -> Result<(), FrontEndViolation> {
        let running: Vec<usize> = (0..self.vrings.len()).filter(|i| self.vrings[*i].started).collect();
        for i in &running {
            self.vrings[*i].base = self.halt(*i)?;
        }
        self.memory = Arc::new(memory);
        running.into_iter().try_for_each(|i| self.start(i))
    }

    fn set_addresses(&mut self, m: &VhostMessage) -> Result<(), FrontEndViolation> {
        // Index, flags, descriptors, used, available, log.
        let [head, desc, used, avail, _log] = m.words(0)?;
        let i = head as u32;
        let addresses = QueueAddresses { desc, avail, used };
        let started = self.vring(i)?.started;
        if started && self.vrings[i as usize].addresses != Some(addresses) {
            return Err(FrontEndViolation::Time { request: m.request, queue: i });
        }
        let v = &mut self.vrings[i as usize];
        v.addresses = Some(addresses);
        v.log = (head >> 32) as u32 & LOG_RING != 0;
        self.tell_logs()
    }

    fn vring(&mut self, i: u32) -> Result<&mut Vring, FrontEndViolation> {
        self.vrings.get_mut(i as usize).ok_or(FrontEndViolation::NoQueue(i))
    }

    fn stopped(&mut self, i: u32, request: u32) -> Result<&mut Vring, FrontEndViolation> {
        let v = self.vring(i)?;
        if v.started { Err(FrontEndViolation::Time { request, queue: i }) } else { Ok(v) }
    }

    /// Returns the queue index and the doorbell in SET_VRING_KICK and similar messages; the doorbell is `None` if the
    /// message has no descriptor.
    fn vring_fd(&mut self, m: &mut VhostMessage) -> Result<(usize, Option<Doorbell>), FrontEndViolation> {
        let value = m.u64()?;
        let i = (value & 0xff) as u32;
        self.vring(i)?;
        let count = if value & NO_FD == 0 { 1 } else { 0 };
        let given = if m.request == request::SET_VRING_CALL { Doorbell::given_to_ring } else { Doorbell::given };
        let bell = m.take_fds(count)?.pop().map(|fd| given(fd, &self.fault));
        Ok((i as usize, bell.transpose().map_err(|_| FrontEndViolation::NoEventfd(m.request))?))
    }

    /// Starts a queue. An incomplete or invalid setup is a violation.
    fn start(&mut self, i: usize) -> Result<(), FrontEndViolation> {
        let bad = || FrontEndViolation::Ring(i as u32);
        let has = |bit: u64| self.features & bit != 0;
        let features = QueueFeatures::of(self.features);
        let enabled_at_once = !has(PROTOCOL_FEATURES);
        let log = self.live_log();
        let v = &mut self.vrings[i];
        let seat = &self.seats[i];
        let addresses = v.addresses.ok_or_else(bad)?;
        let mut queue = DeviceQueue::new(&self.memory, v.size, addresses, v.base, features).ok_or_else(bad)?;
        let begin = std::mem::take(&mut v.begin);
        let inflight = record(self.inflight.as_ref(), i, &mut queue, begin)?;
        v.enabled |= enabled_at_once;
        let mut live = LiveQueue {
            queue,
            memory: Arc::clone(&self.memory),
            framing: Framing::of(self.features),
            call: v.call.clone(),
            polled: v.kick.is_none(),
            enabled: v.enabled,
            pieces: Pieces::default(),
            is_broken: false,
            fault: (i, self.fault.clone()),
            log,
            log_ring: v.log,
            inflight,
            announce: None,
            announced: Vec::new(),
            taken: Vec::with_capacity(BATCH),
            counters: Arc::clone(&seat.counters),
            kicks: Arc::clone(&seat.kicks),
        };
        if let (Some(wake), Some(kick)) = (&seat.wake, &v.kick) {
            wake.add_peer(kick).map_err(FrontEndViolation::System)?;
        }
        if begin == QueueStart::Lost {
            // Notifies the driver in case the predecessor ended before it did so.
            live.notify();
        }
        if seat.wake.is_none() && begin != QueueStart::Stopped {
            // No worker waits for receive buffers, so the driver need not kick this queue. While the driver offers no
            // buffers, frames are dropped.
            live.queue.disarm();
        }
        v.started = true;
        let enabled = v.enabled;
        seat.put(live).map_err(in_use(i))?;
        seat.set_open(enabled);
        self.deliver_announcement()
    }

    /// Returns exclusive access to queue `i`: workers cannot use the queue until the result is dropped. The result is
    /// empty if the queue does not run.
    pub(super) fn queue(&self, i: usize) -> Result<LentControl<'_, LiveQueue>, FrontEndViolation> {
        self.seats[i].queue.control().map_err(in_use(i))
    }

    /// Takes a queue from the workers. Returns the position at which it stopped.
    fn halt(&mut self, i: usize) -> Result<u32, FrontEndViolation> {
        let v = &mut self.vrings[i];
        let seat = &self.seats[i];
        if let (true, Some(wake), Some(kick)) = (v.started, &seat.wake, &v.kick) {
            wake.remove(kick);
        }
        v.started = false;
        let live = seat.take_now().map_err(in_use(i))?;
        Ok(live.map_or(v.base, |l| l.queue.base()))
    }

    fn stop(&mut self, i: usize) -> Result<u32, FrontEndViolation> {
        let base = self.halt(i)?;
        self.vrings[i].base = base;
        self.vrings[i].kick = None;
        Ok(base)
    }

    /// Stops all queues without keeping their positions: the driver restarts.
    fn reset(&mut self) -> Result<(), FrontEndViolation> {
        (0..self.vrings.len()).try_for_each(|i| self.close_record(i))?;
        (0..self.vrings.len()).try_for_each(|i| self.stop(i).map(drop))
    }
}

impl Drop for VhostDevice {
    /// Stops all queues when the connection ends.
    fn drop(&mut self) {
        for i in 0..self.vrings.len() {
            // A worker that does not return a queue drops it later.
            let _ = self.stop(i);
        }
    }
}

/// Opens the in-flight record of queue `i`, if the front end keeps such records, and moves the queue to its start
/// position.
fn record(
    region: Option<&Arc<Inflight>>,
    i: usize,
    queue: &mut DeviceQueue,
    begin: QueueStart,
) -> Result<Option<Box<dyn live::InflightRecord>>, FrontEndViolation> {
    let bad = || FrontEndViolation::Ring(i as u32);
    let (record, is_found) = match region {
        Some(region) if begin == QueueStart::Stopped => {
            (QueueRecord::continued(region, i, queue).ok_or_else(bad)?, true)
        }
        Some(region) => {
            QueueRecord::open(region, i, queue).map(|(record, is_kept)| (Some(record), is_kept)).ok_or_else(bad)?
        }
        None => (None, false),
    };
    match queue {
        DeviceQueue::Split(q) if begin == QueueStart::Lost => q.resume(),
        DeviceQueue::Packed(_) if begin == QueueStart::Lost && !is_found => return Err(FrontEndViolation::Position(i)),
        _ => {}
    }
    Ok(record.map(|record| Box::new(record) as Box<dyn live::InflightRecord>))
}

/// Returns the features in a message, all of which must be in `offered`.
fn acknowledged(m: &VhostMessage, offered: u64) -> Result<u64, FrontEndViolation> {
    let features = m.u64()?;
    let unknown = features & !offered;
    if unknown == 0 { Ok(features) } else { Err(FrontEndViolation::Features(unknown)) }
}

fn in_use(queue: usize) -> impl FnOnce(InUse) -> FrontEndViolation {
    move |why| FrontEndViolation::InUse { queue, why }
}
