//! A tunnel's ingress: datagrams of its VNI, each with a frame, from known VTEPs. Frames stay in the buffers that the
//! kernel filled until they are delivered.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use netvale_port::{Batch, DropReason, Ingress, MOST_NEWS, RingCounters, soft};
use netvale_wire::ethernet;
use netvale_wire::half_summed::left_to_do;

use crate::ecn;
use crate::header;
use crate::ip::IpWords;
use crate::partial;
use crate::peers::VtepPeers;
use crate::sys::{VxlanMessage, VxlanReceiver};
use crate::table::VtepTable;
use crate::too_long::TooLongReply;
use crate::tunnel::{Tunnel, now};

/// Number of messages read in one pass.
const READS: usize = 16;
/// Maximum number of messages that an ingress keeps at a time: messages that its worker has read, and messages that
/// workers of other tunnels have read.
const KEPT: usize = 3 * READS;

/// A tunnel's ingress.
pub struct TunnelIngress {
    tunnel: Arc<Tunnel>,
    receiver: VxlanReceiver,
    /// Messages with frames to take, in order. A message is neither moved nor written between `take` and `release`.
    messages: Vec<VxlanMessage>,
    /// Spare buffers for messages.
    free: Vec<VxlanMessage>,
    /// Number of messages that have been added to the batch completely.
    taken: usize,
    /// Number of datagrams of the next message that have been added to the batch.
    datagrams: usize,
    /// Replies that are in the batch.
    replies: Vec<TooLongReply>,
    counters: Arc<RingCounters>,
}

/// State common to all messages of a pass.
struct ReceivePass<'a> {
    tunnel: &'a Tunnel,
    table: &'a VtepTable,
    peers: &'a VtepPeers,
    counters: &'a RingCounters,
    now: u32,
    whole: usize,
    /// Number of addresses that may still be learned in this pass.
    news: Cell<u32>,
}

impl TunnelIngress {
    /// Creates the ingress of a tunnel.
    #[must_use]
    pub fn new(tunnel: Arc<Tunnel>) -> TunnelIngress {
        TunnelIngress {
            tunnel,
            receiver: VxlanReceiver::new(READS),
            messages: Vec::with_capacity(KEPT),
            free: (0..KEPT).map(|_| VxlanMessage::empty()).collect(),
            taken: 0,
            datagrams: 0,
            replies: Vec::with_capacity(16),
            counters: Arc::default(),
        }
    }

    /// Takes the messages that other workers have read for this tunnel, and then reads messages from the socket.
    fn read(&mut self) {
        let endpoint = Arc::clone(&self.tunnel.endpoint);
        // Another tunnel's worker has the right to read and is reading; it wakes this worker if it finds messages for
        // this tunnel.
        let Some(turn) = endpoint.turn() else {
            // The reading worker does not announce messages that it leaves in the socket, so this worker polls again
            // soon.
            return self.tunnel.wake.poke();
        };
        let is_left = self.tunnel.inbox.take(&mut self.messages, &mut self.free);
        let most = self.free.len().min(READS);
        let begin = self.free.len() - most;
        let got = self.receiver.receive(&*endpoint, self.free.get_mut(begin..).unwrap_or_default());
        for _ in 0..got {
            let mut message = self.free.remove(begin);
            partial::whole_again(&mut message);
            ecn::mark(&mut message);
            self.sort(message);
        }
        drop(turn);
        if is_left || got == READS {
            // More messages may be left, which no further event would announce.
            self.tunnel.wake.poke();
        }
    }

    /// Keeps a message of this tunnel's VNI, and passes a message of another VNI to that VNI's tunnel.
    fn sort(&mut self, mut message: VxlanMessage) {
        let own = self.tunnel.options.vni;
        let vni = message.datagrams().next().and_then(header::decode).unwrap_or(own);
        if message.datagrams().any(|datagram| header::decode(datagram) != Some(vni)) {
            // The kernel may have merged datagrams of several VNIs. Datagrams of other VNIs are passed on while this
            // worker still has the right to read, which keeps them in order.
            for datagram in message.datagrams() {
                if let Some(vni) = header::decode(datagram).filter(|vni| *vni != own) {
                    self.pass_on(vni, 1, |spare| spare.copy_of(datagram, message.from, message.ecn));
                }
            }
            return self.messages.push(message);
        }
        if vni == own {
            return self.messages.push(message);
        }
        self.pass_on(vni, message.datagrams().count(), |spare| std::mem::swap(spare, &mut message));
        self.free.push(message);
    }

    /// Passes a message with `count` datagrams of another VNI to that VNI's tunnel, or counts the datagrams as dropped.
    fn pass_on(&self, vni: u32, count: usize, fill: impl FnOnce(&mut VxlanMessage)) {
        match self.tunnel.endpoint.pass_on(vni, fill) {
            Some(true) => {}
            Some(false) => self.counters.dropped(DropReason::NoRoom, count as u64),
            None => self.counters.dropped(DropReason::UnknownVni, count as u64),
        }
    }

    /// Moves frames from the messages to the batch, as long as the batch has room.
    fn fill(&mut self, batch: &mut Batch) {
        let tunnel = Arc::clone(&self.tunnel);
        let table = tunnel.table.load();
        let peers = tunnel.peers.load();
        let now = now();
        let (whole, _) = tunnel.limits();
        let pass = ReceivePass {
            tunnel: &tunnel,
            table: &table,
            peers: &peers,
            counters: &self.counters,
            now,
            whole,
            news: Cell::new(MOST_NEWS),
        };
        while let Some(message) = self.messages.get(self.taken) {
            self.datagrams = pass.take(message, self.datagrams, batch);
            if self.datagrams > 0 {
                return;
            }
            self.taken += 1;
        }
    }

    fn answer(&mut self, batch: &mut Batch) {
        if let Ok(mut replies) = self.tunnel.replies.enter() {
            replies.take(&mut self.replies);
        }
        for reply in &self.replies {
            // SAFETY: the reply is not moved until `release`.
            unsafe { batch.push(reply.bytes().as_ptr(), reply.bytes().len() as u32) };
            // The reply's source is a remote station, whose address the switch must not learn at this port.
            batch.set_no_learn();
        }
    }
}

impl ReceivePass<'_> {
    /// Adds the frames of a message, from datagram `first` on, to the batch. Returns the index of the first datagram
    /// for which the batch had no room; 0 if the batch had room for all.
    fn take(&self, message: &VxlanMessage, first: usize, batch: &mut Batch) -> usize {
        if message.data.is_empty() {
            self.counters.dropped(DropReason::BadVxlan, 1);
        }
        let mut frames = 0;
        let mut bytes = 0;
        let mut stopped = 0;
        for (i, datagram) in message.datagrams().enumerate().skip(first) {
            if batch.room() == 0 {
                stopped = i;
                break;
            }
            if let Some(frame) = self.frame(datagram, message) {
                self.push(frame, message, batch);
                frames += 1;
                bytes += frame.len() as u64;
            }
        }
        if let Some(peer) = self.peers.get(message.from) {
            peer.counters.received(frames, bytes);
        }
        self.counters.passed(frames, bytes);
        stopped
    }

    /// Returns the frame in a datagram. If the datagram has no valid frame for this tunnel, counts the reason and
    /// returns `None`.
    fn frame<'m>(&self, datagram: &'m [u8], message: &VxlanMessage) -> Option<&'m [u8]> {
        let Some(vni) = header::decode(datagram) else {
            self.counters.dropped(DropReason::BadVxlan, 1);
            return None;
        };
        if vni != self.tunnel.options.vni {
            // The datagram was passed on when it was read.
            return None;
        }
        if !self.tunnel.takes_from(self.peers, message.from) {
            self.counters.dropped(DropReason::UnknownVtep, 1);
            return None;
        }
        let Some(frame) = datagram.get(header::LEN..).filter(|frame| frame.len() >= ethernet::HEADER_LEN) else {
            self.counters.dropped(DropReason::Runt, 1);
            return None;
        };
        if ecn::is_lost(message.ecn, frame) {
            self.counters.dropped(DropReason::Congestion, 1);
            return None;
        }
        Some(frame)
    }

    /// Learns the VTEP of an address. If the batch has reached the limit of new addresses, the address can only be
    /// learned from a later frame.
    #[inline]
    fn learn(&self, mac: u64, from: IpWords) {
        if self.table.known(mac, from, self.now).is_none()
            && let Some(left) = self.news.get().checked_sub(1)
        {
            self.news.set(left);
            self.table.learn_anew(mac, from, self.now, self.tunnel.options.ageing);
        }
    }

    /// Adds a frame to the batch. If the frame is its message's only one, the sender's kernel may have left an offload
    /// pending in it.
    fn push(&self, frame: &[u8], message: &VxlanMessage, batch: &mut Batch) {
        if self.tunnel.options.learning
            && let Some(source) = frame.get(4..).and_then(<[u8]>::first_chunk::<8>)
        {
            self.learn(u64::from_le_bytes(*source) >> 16, message.from);
        }
        // SAFETY: the frame is in the buffer of a message, which is neither moved nor written before `release`.
        unsafe { batch.push(frame.as_ptr(), frame.len() as u32) };
        if message.each == 0
            && let Some(left) = left_to_do(frame, self.whole, message.inner)
        {
            // An offload that contradicts the frame was not left by a kernel: the frame is complete.
            if soft::set_offload(batch, &left).is_err() {
                // SAFETY: as above.
                unsafe { batch.push(frame.as_ptr(), frame.len() as u32) };
            }
        }
    }
}

impl Ingress for TunnelIngress {
    // SAFETY: frames are in the buffers of `messages` and in `replies`; neither is written or moved before `release`.
    unsafe fn take(&mut self, batch: &mut Batch) {
        self.answer(batch);
        if self.messages.is_empty() {
            self.read();
        }
        self.fill(batch);
        if batch.is_empty() {
            self.release();
        }
    }

    fn release(&mut self) {
        self.replies.clear();
        self.free.extend(self.messages.drain(..self.taken));
        self.taken = 0;
    }

    fn arm(&mut self) -> bool {
        // The worker must not sleep while messages wait here; every other reason to poll wakes the worker.
        !self.messages.is_empty()
    }

    fn disarm(&mut self) {}

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.tunnel.wake.as_fd())
    }

    fn woken(&mut self) {
        self.tunnel.wake.drain();
    }

    fn is_cheap(&self) -> bool {
        false
    }

    fn counters(&self) -> &Arc<RingCounters> {
        &self.counters
    }
}
