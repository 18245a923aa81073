//! Rings of a network interface that a program has opened: the reply to its client, and the description for `netvale
//! show`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use netvale_afxdp::bpf::XdpMode;
use netvale_afxdp::iface::is_up;
use netvale_afxdp::nic::SendClaim;
use netvale_afxdp::socket::{BindResult, XdpSocket};
use netvale_afxdp::{Nic, NicError, OpenNicQueue};
use netvale_control::attach::{AttachReply, NIC_BOUND, NIC_FORWARDS, NIC_MULTI_BUFFER, NIC_RESUMED, Role};
use netvale_control::types::{Direction, Owner, PortInfo, PortKind, PortState, RingInfo};
use netvale_mem::PortMem;
use netvale_mem::fault::Fault;
use netvale_mem::notify::KickCounts;
use netvale_mem::region::{Binding, FurnishedRings, RingRanges};
use netvale_nic::stack::{OpenRing, Stack};
use netvale_port::RingCounters;

use super::reply::{region_descriptors, region_reply};
use super::status::{counted, region_info, with_indices};
use super::switched::RingDoorbells;
use crate::caller::Caller;
use crate::handover::items::RingCounts;
use crate::refusal::Refusal;
use crate::worker::TaskId;

/// Returns a text with the binding mode of an interface's queues.
pub fn mode_words(nic: &Nic, zero_copy: bool) -> String {
    let place = match nic.mode() {
        XdpMode::Native => "in the driver",
        XdpMode::Generic => "in the stack (generic: the driver has no XDP)",
    };
    let copy = if zero_copy { "zero-copy" } else { "the kernel copies each frame (copy mode)" };
    format!("AF_XDP {place}, {copy}")
}

/// A queue that programs have opened. Even if only its tx ring or its rx ring is open, both rings have buffers, because
/// the socket serves both.
pub(crate) struct OpenQueue {
    pub(crate) opened: OpenNicQueue,
    _rings: FurnishedRings,
}

impl OpenQueue {
    pub(crate) fn new(opened: OpenNicQueue, rings: FurnishedRings) -> OpenQueue {
        OpenQueue { opened, _rings: rings }
    }

    /// Returns the queue's number.
    pub(crate) fn number(&self) -> u32 {
        self.opened.queue.address().queue
    }

    fn socket(&self) -> &XdpSocket {
        &self.opened.socket
    }
}

/// An interface that a program has opened.
pub struct NicPort {
    pub(crate) name: String,
    pub(crate) nic: Arc<Nic>,
    /// The socket of each bound queue, which the daemon shares with this program and with any program that holds the
    /// queue's other ring.
    pub(crate) sockets: Vec<Arc<OpenQueue>>,
    /// The program's claims to send on queues.
    pub(crate) sending: Vec<SendClaim>,
    /// Whether the client has the daemon's rights. Such a client also gets the TAP of the host stack, and binds the
    /// sockets itself after mapping their rings, an order that older kernels require. Other clients get bound sockets,
    /// because they could bind an unbound socket to any interface and send on that interface.
    pub(crate) trusted: bool,
    /// Result of binding the sockets; `None` if the client binds them itself.
    pub(crate) got: Option<BindResult>,
    pub(crate) stack: Option<Arc<Stack>>,
    pub(crate) mem: Arc<PortMem>,
    pub(crate) mem_id: u32,
    /// Doorbells of the bound host rings. A key is the direction (true for rx) and the ring's number in the port.
    pub(crate) bells: BTreeMap<(bool, u32), RingDoorbells>,
    /// Fault of the program. It is set, with the reason, if the program must lose the rings.
    pub(crate) fault: Fault,
    pub(crate) tx: Range<u32>,
    pub(crate) rx: Range<u32>,
    /// The open host rings. While they exist, the stack's frames are redirected to them.
    pub(crate) open_rings: Vec<OpenRing>,
    pub(crate) tasks: Vec<TaskId>,
    pub(crate) owner: Caller,
    /// For each bound ring, tx rings first: the counters of frames, and the counters of kicks to the program.
    pub(crate) counts: Vec<(Arc<RingCounters>, Arc<KickCounts>)>,
}

impl NicPort {
    /// Creates the record of the rings `bound` in `mem`. The caller adds sockets, the stack, and the tasks that forward
    /// frames.
    pub(crate) fn new(
        name: String,
        nic: Arc<Nic>,
        mem: Arc<PortMem>,
        mem_id: u32,
        bound: RingRanges,
        fault: Fault,
        owner: Caller,
    ) -> NicPort {
        NicPort {
            name,
            nic,
            sockets: Vec::new(),
            sending: Vec::new(),
            trusted: false,
            got: None,
            stack: None,
            mem,
            mem_id,
            bells: BTreeMap::new(),
            fault,
            tx: bound.tx,
            rx: bound.rx,
            open_rings: Vec::new(),
            tasks: Vec::new(),
            owner,
            counts: Vec::new(),
        }
    }

    /// Returns the reply to the client, and the descriptors to send with it. `resumed` is set if the client takes over
    /// rings that another process of the program has opened.
    ///
    /// # Errors
    /// [`Refusal`] if the daemon is out of descriptors.
    pub fn reply(&self, binding: &Binding, resumed: bool) -> Result<(AttachReply, Vec<std::os::fd::OwnedFd>), Refusal> {
        let queues = self.nic.interface().queues;
        let mut fds = region_descriptors(self.mem.region())?;
        for (ring, receives) in self.tx.clone().map(|i| (i, false)).chain(self.rx.clone().map(|i| (i, true))) {
            let [one, other] =
                if ring < queues { self.queue_fds(ring, receives)? } else { self.host_fds(ring, receives)? };
            fds.extend([one.try_clone_to_owned()?, other.try_clone_to_owned()?]);
        }
        let reply = AttachReply {
            role: Role::Switch,
            nifp: binding.nifp(),
            csb_first: self.mem.csb_first(),
            extra_bufs: binding.extra_bufs(),
            mem_id: self.mem_id,
            tx_bound: self.tx.clone(),
            rx_bound: self.rx.clone(),
            alone: true,
            host_tx_rings: self.mem.host_rings().0,
            host_rx_rings: self.mem.host_rings().1,
            nic_entries: self.sockets.first().map_or(1, |queue| queue.socket().entries()),
            nic_flags: self.flags(resumed),
            nic_ifindex: self.nic.interface().index,
            nic_mtu: self.nic.interface().mtu,
            ..region_reply(&self.mem)
        };
        Ok((reply, fds))
    }

    fn flags(&self, resumed: bool) -> u32 {
        let flag = |on: bool, flag: u32| if on { flag } else { 0 };
        flag(resumed || !self.trusted, NIC_BOUND)
            | flag(resumed, NIC_RESUMED)
            | flag(self.stack.is_some() && self.trusted, NIC_FORWARDS)
            | flag(self.got.is_some_and(|got| got.multi_buffer), NIC_MULTI_BUFFER)
    }

    /// Returns the two descriptors of a queue's ring. The first is the queue's AF_XDP socket. For an rx ring of a
    /// client with the daemon's rights, the second is the TAP of the host stack; otherwise, the second is the socket as
    /// well.
    fn queue_fds(&self, queue: u32, receives: bool) -> Result<[BorrowedFd<'_>; 2], Refusal> {
        let socket = self.queue(queue).ok_or_else(|| Refusal::internal("a queue without a socket"))?.socket();
        let stack = self.stack.as_ref().filter(|_| receives && self.trusted);
        let tap = stack.and_then(|stack| stack.queue(queue).ok()).map(|tap| tap.as_fd());
        Ok([socket.as_fd(), tap.unwrap_or(socket.as_fd())])
    }

    /// Permits the program to send on the queues whose tx rings it has opened, and keeps the host's own frames off
    /// these queues.
    ///
    /// # Errors
    /// [`NicError`] if the stack's frames cannot be kept off the wire.
    pub(crate) fn send(&mut self) -> Result<(), NicError> {
        let queues = self.tx.start..self.tx.end.min(self.nic.interface().queues);
        self.sending = queues.map(|queue| self.nic.send_on(queue)).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// Returns the open queue with this number; `None` if it is not open.
    pub(crate) fn queue(&self, number: u32) -> Option<&Arc<OpenQueue>> {
        self.sockets.iter().find(|queue| queue.number() == number)
    }

    /// Returns the two descriptors of a host ring.
    fn host_fds(&self, ring: u32, receives: bool) -> Result<[BorrowedFd<'_>; 2], Refusal> {
        let bells = self.bells.get(&(receives, ring)).ok_or_else(|| Refusal::internal("a ring without doorbells"))?;
        Ok([bells.doorbell.as_fd(), bells.wake.as_fd()])
    }

    /// Returns the counters of the host rings, tx rings first.
    pub fn counted(&self) -> Vec<RingCounts> {
        self.counts.iter().map(|(counters, _)| RingCounts::of(counters)).collect()
    }

    /// Adds counts of host rings that another process saved, in the order of [`NicPort::counted`].
    pub fn count(&self, counts: &[RingCounts]) {
        self.counts.iter().zip(counts).for_each(|((counters, _), counts)| counts.add_to(counters));
    }

    /// Describes the open rings for `netvale show`.
    pub fn info(&self) -> PortInfo {
        let sides = (self.tx.clone().filter_map(|i| Some((Direction::In, i, self.mem.tx.get(i as usize)?))))
            .chain(self.rx.clone().filter_map(|i| Some((Direction::Out, i, self.mem.rx.get(i as usize)?))));
        let mut counts = self.counts.iter();
        let queues = self.nic.interface().queues;
        let ring = |(dir, index, side)| {
            // The daemon does not count the frames of queues, because these frames pass directly between the program
            // and the kernel.
            let count = if index < queues { None } else { counts.next() };
            let base = count.map_or_else(RingInfo::default, |(counters, kicks)| RingInfo {
                kicks_sent: kicks.sent(),
                kicks_suppressed: kicks.suppressed(),
                ..counted(counters)
            });
            with_indices(RingInfo { dir, index, ..base }, side, self.mem.region())
        };
        let first = self.sockets.first();
        let mut notes: Vec<String> =
            first.iter().map(|queue| mode_words(&self.nic, queue.socket().is_zero_copy())).collect();
        notes.extend(self.nic.lost_tags().map(|why| why.to_string()));
        notes.extend(self.sockets.iter().filter_map(|queue| lost(queue.number(), queue.socket())));
        if !self.sockets.is_empty() {
            notes.push("frames pass between the program and the kernel directly; 'ip -s link' counts them".to_owned());
        }
        let name = &self.nic.interface().name;
        notes.extend((!is_up(name)).then(|| format!("interface {name} is down; 'ip link set {name} up' brings it up")));
        notes.extend(self.nic.kept().filter(|_| !self.sending.is_empty()).map(|frames| {
            format!(
                "the host's own frames are kept from the wire unless a program has the host rings open; {frames} so far"
            )
        }));
        PortInfo {
            name: self.name.clone(),
            kind: PortKind::Nic,
            state: PortState::Open,
            owner: Some(Owner { uid: self.owner.uid, pid: self.owner.pid }),
            region: Some(region_info(self.mem.region(), self.mem_id)),
            rings: sides.map(ring).collect(),
            notes,
            ..PortInfo::default()
        }
    }
}

/// Returns a text with the numbers of frames that the kernel could not deliver; `None` if there are no such frames.
fn lost(queue: u32, socket: &XdpSocket) -> Option<String> {
    let s = socket.statistics()?;
    let lost = [(s.rx_dropped, "too long"), (s.rx_fill_ring_empty_descs.unwrap_or(0), "times without an empty buffer")];
    let words: Vec<String> = lost.iter().filter(|(n, _)| *n > 0).map(|(n, why)| format!("{n} {why}")).collect();
    (!words.is_empty()).then(|| format!("queue {queue}, frames not received: {}", words.join(", ")))
}
