//! The driver's side of the conversation: asks a vhost-user back end for a device, and shows it memory and rings.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use netvale_mem::fault::Fault;
use netvale_mem::lent::InUse;
use netvale_mem::notify::Doorbell;
use netvale_pci::{Bar, Function, PciError};
use netvale_port::{BATCH, RingCounters};
use rustix::io::Errno;
use thiserror::Error;

use super::BadDevice;
use super::path::Path;
use super::ram::{QueueRam, Ram};
use super::{DriverFeatures, DriverQueue, addresses};
use crate::net::features::{
    CSUM, EVENT_IDX, Framing, GUEST_CSUM, GUEST_ECN, GUEST_TSO4, GUEST_TSO6, GUEST_USO4, GUEST_USO6, HOST_ECN,
    HOST_TSO4, HOST_TSO6, HOST_USO, IN_ORDER, MQ, MRG_RXBUF, PROTOCOL_FEATURES, RING_PACKED, VERSION_1,
};
use crate::proto::message::{Message, Refused, protocol, put_region, request};
use crate::proto::wire::{Received, receive, send};
use crate::queue::QueueFeatures;

/// What the driver asks for; the back end may have less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// Queue pairs.
    pub pairs: u16,
    /// Entries of each queue, a power of two.
    pub size: u16,
    /// The packed layout.
    pub packed: bool,
    /// A frame may take several receive buffers.
    pub mergeable: bool,
    /// Frames are left without checksums, and whole segments.
    pub offloads: bool,
    /// Notifications by event index.
    pub event_idx: bool,
    /// The device uses buffers in the order in which they are posted.
    pub in_order: bool,
    /// Several entries of a ring are looked at at once, where the rest allows it.
    pub vector: bool,
}

impl Default for Wish {
    fn default() -> Self {
        Wish {
            pairs: 1,
            size: 256,
            packed: false,
            mergeable: true,
            offloads: true,
            event_idx: true,
            in_order: false,
            vector: false,
        }
    }
}

impl Wish {
    /// The features that say so.
    pub fn features(&self) -> u64 {
        const OFFLOADS: u64 = CSUM | GUEST_CSUM | HOST_TSO4 | HOST_TSO6 | HOST_ECN | HOST_USO;
        const WHOLE: u64 = GUEST_TSO4 | GUEST_TSO6 | GUEST_ECN | GUEST_USO4 | GUEST_USO6;
        let on = |cond: bool, bits: u64| if cond { bits } else { 0 };
        VERSION_1
            | PROTOCOL_FEATURES
            | on(self.packed, RING_PACKED)
            | on(self.in_order, IN_ORDER)
            | on(self.mergeable, MRG_RXBUF)
            | on(self.offloads, OFFLOADS)
            // Without mergeable buffers, a segment of 64 KiB would need buffers of that size.
            | on(self.offloads && self.mergeable, WHOLE)
            | on(self.event_idx, EVENT_IDX)
            | on(self.pairs > 1, MQ)
    }
}

/// Why there is no device.
#[derive(Debug, Error)]
pub enum NoDevice {
    /// The back end broke the rules, or the connection.
    #[error("the back end: {0}")]
    Refused(#[from] Refused),
    /// A queue of the device before it is not handed back.
    #[error("a queue: {0}")]
    InUse(#[from] InUse),
    /// It hung up.
    #[error("the back end hung up")]
    Closed,
    /// The port is to end.
    #[error("stopped")]
    Stopped,
    /// It lacks what no driver can do without.
    #[error("the back end lacks {0}")]
    Lacks(&'static str),
    /// The answer is to another request.
    #[error("the back end answers {got} to request {asked}")]
    Answer {
        /// What was asked.
        asked: u32,
        /// What was answered.
        got: u32,
    },
    /// It said no.
    #[error("the back end refuses request {0}")]
    No(u32),
    /// The kernel.
    #[error("{0}")]
    System(Errno),
    /// The function cannot be driven.
    #[error("{0}")]
    Pci(#[from] PciError),
    /// It is something else.
    #[error("no virtio-net device, but one with the number {vendor:04x}:{device:04x}")]
    NotVirtio {
        /// Whose it is.
        vendor: u16,
        /// Which it is.
        device: u16,
    },
    /// It reaches memory past the IOMMU, so that vfio gives it none of ours.
    #[error("the device reaches memory past the IOMMU: it needs VIRTIO_F_ACCESS_PLATFORM (QEMU: iommu_platform=on)")]
    PastIommu,
    /// The device gave up.
    #[error("the device needs a reset")]
    NeedsReset,
    /// It is unbound, or unplugged.
    #[error("the kernel wants the device back")]
    WantedBack,
}

impl NoDevice {
    /// The error number that fits.
    pub fn errno(&self) -> Errno {
        match self {
            NoDevice::System(errno) => *errno,
            NoDevice::Pci(why) => why.errno(),
            NoDevice::Lacks(_) | NoDevice::PastIommu => Errno::OPNOTSUPP,
            NoDevice::NotVirtio { .. } | NoDevice::WantedBack => Errno::NODEV,
            _ => Errno::IO,
        }
    }
}

/// How a device is told of what is posted.
pub enum Kick {
    /// A back end: by an eventfd.
    Bell(Doorbell),
    /// A device on the bus: the queue's number is written to a register.
    Register {
        /// Where such registers are.
        bar: Arc<Bar>,
        /// Which of them.
        at: usize,
        /// What is written.
        queue: u16,
    },
}

impl Kick {
    /// Tells it.
    pub fn ring(&self) {
        match self {
            Kick::Bell(bell) => bell.ring(),
            Kick::Register { bar, at, queue } => bar.write16(*at, *queue),
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
    pub fn report(&mut self, why: BadDevice) {
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
    /// What has to stay for as long as the device runs, to go behind the queues: a function on the bus, if it is one, then its memory.
    pub kept: (Option<Function>, Ram),
}

/// A conversation.
pub struct Frontend<'a> {
    socket: BorrowedFd<'a>,
    stop: BorrowedFd<'a>,
    fault: &'a Fault,
    protocol: u64,
}

impl<'a> Frontend<'a> {
    /// On a connection; `stop` ends any wait when it becomes readable, `fault` is where workers report what the back end did.
    pub fn new(socket: BorrowedFd<'a>, stop: BorrowedFd<'a>, fault: &'a Fault) -> Self {
        Frontend { socket, stop, fault, protocol: 0 }
    }

    fn tell(&self, mut m: Message) -> Result<(), NoDevice> {
        let acked = self.protocol & protocol::REPLY_ACK != 0;
        let asked = m.request;
        if acked {
            m = m.with_ack();
        }
        send(self.socket, &m)?;
        match acked.then(|| self.hear(asked)).transpose()? {
            Some(answer) if answer.u64()? != 0 => Err(NoDevice::No(asked)),
            _ => Ok(()),
        }
    }

    fn hear(&self, asked: u32) -> Result<Message, NoDevice> {
        match receive(self.socket, self.stop)? {
            Received::Message(m) if m.is_reply() && m.request == asked => Ok(m),
            Received::Message(m) => Err(NoDevice::Answer { asked, got: m.request }),
            Received::Closed => Err(NoDevice::Closed),
            Received::Stopped => Err(NoDevice::Stopped),
        }
    }

    fn ask(&self, request: u32) -> Result<u64, NoDevice> {
        send(self.socket, &Message::new(request, Vec::new()))?;
        Ok(self.hear(request)?.u64()?)
    }

    fn tell_number(&self, request: u32, n: u64) -> Result<(), NoDevice> {
        self.tell(Message::new(request, n.to_le_bytes().to_vec()))
    }

    /// Negotiates, and starts all queues. `calls` are the eventfds by which the device notifies, two a pair: for what is received,
    /// for what is transmitted.
    ///
    /// # Errors
    /// [`NoDevice`].
    pub fn start(&mut self, wish: Wish, calls: &[Doorbell]) -> Result<Running, NoDevice> {
        let (features, pairs) = self.negotiate(wish)?;
        let (ram, queues) = Ram::new(&vec![wish.size; 2 * usize::from(pairs)]).map_err(NoDevice::System)?;
        ram.mapping().blame(self.fault);
        let mut payload = vec![1, 0, 0, 0, 0, 0, 0, 0];
        put_region(&mut payload, &ram.spec());
        let mut table = Message::new(request::SET_MEM_TABLE, payload);
        table.fds.push(ram.file().map_err(NoDevice::System)?);
        self.tell(table)?;
        let mut started = Vec::new();
        for (i, (queue, call)) in queues.into_iter().zip(calls).enumerate() {
            started.push(self.start_queue(i as u32, queue, call, (features, wish))?);
        }
        for i in 0..started.len() as u64 {
            self.tell_number(request::SET_VRING_ENABLE, i | 1 << 32)?;
        }
        Ok(Running { features, pairs: pair_up(started), kept: (None, ram) })
    }

    fn negotiate(&mut self, wish: Wish) -> Result<(u64, u16), NoDevice> {
        let offered = self.ask(request::GET_FEATURES)?;
        if offered & PROTOCOL_FEATURES == 0 {
            return Err(NoDevice::Lacks("protocol features"));
        }
        if offered & VERSION_1 == 0 {
            return Err(NoDevice::Lacks("virtio 1.0"));
        }
        let wanted = protocol::MQ | protocol::REPLY_ACK;
        let ours = self.ask(request::GET_PROTOCOL_FEATURES)? & wanted;
        self.tell_number(request::SET_PROTOCOL_FEATURES, ours)?;
        self.protocol = ours;
        self.tell(Message::new(request::SET_OWNER, Vec::new()))?;
        let most = if ours & protocol::MQ != 0 { self.ask(request::GET_QUEUE_NUM)? } else { 1 };
        let features = offered & wish.features();
        self.tell_number(request::SET_FEATURES, features)?;
        Ok((features, wish.pairs.min(u16::try_from(most).unwrap_or(u16::MAX)).max(1)))
    }

    fn start_queue(
        &self,
        i: u32,
        ram: QueueRam,
        call: &Doorbell,
        (features, wish): (u64, Wish),
    ) -> Result<Started, NoDevice> {
        let index = u64::from(i);
        let (layout, in_order) = (QueueFeatures::of(features), features & IN_ORDER != 0);
        let vector = Path::of(features, wish.vector).vector.is_some();
        let queue = DriverQueue::new(&ram, DriverFeatures { queue: layout, in_order, vector });
        let kick = Doorbell::shared(self.fault).map_err(NoDevice::System)?;
        self.tell_number(request::SET_VRING_NUM, index | u64::from(ram.size()) << 32)?;
        // Packed rings begin with both wrap counters set.
        let base = if layout.packed { 0x8000_8000u64 } else { 0 };
        self.tell_number(request::SET_VRING_BASE, index | base << 32)?;
        let at = addresses(&ram);
        let words = [index, at.desc, at.used, at.avail, 0];
        self.tell(Message::new(request::SET_VRING_ADDR, words.iter().flat_map(|w| w.to_le_bytes()).collect()))?;
        self.tell_fd(request::SET_VRING_CALL, index, call.as_fd())?;
        self.tell_fd(request::SET_VRING_KICK, index, kick.as_fd())?;
        Ok(Started::new(queue, ram, Kick::Bell(kick), features, self.fault))
    }

    fn tell_fd(&self, request: u32, index: u64, fd: BorrowedFd<'_>) -> Result<(), NoDevice> {
        let mut m = Message::new(request, index.to_le_bytes().to_vec());
        let copy: OwnedFd = rustix::io::fcntl_dupfd_cloexec(fd, 0).map_err(NoDevice::System)?;
        m.fds.push(copy);
        self.tell(m)
    }
}

#[cfg(test)]
mod tests {
    use netvale_mem::fault::LOST;

    use super::*;
    use crate::port::{Mode, VhostOptions, VhostPort};

    /// Objective: memory of a driver that is lost is put down to its back end.
    #[test]
    fn losses_are_blamed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let options = VhostOptions { path: path.clone(), mode: Mode::Server, pairs: 1, mac: [2; 6], mtu: 1500 };
        let (_port, _queues) = VhostPort::new(&options).unwrap();
        let socket = netvale_port::listener::try_connect(&path).unwrap();
        let (stop, fault) = (Doorbell::new().unwrap(), Fault::new().unwrap());
        let calls = [(); 2].map(|()| Doorbell::new().unwrap());
        let running = Frontend::new(socket.as_fd(), stop.as_fd(), &fault).start(Wish::default(), &calls).unwrap();
        running.kept.1.mapping().lose();
        assert_eq!(fault.reason().as_deref(), Some(LOST));
    }
}
