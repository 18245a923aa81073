//! A tunnel's egress: each frame goes to the VTEP of its destination address or, if that address is unknown or a group
//! address, to every VTEP that receives flooded frames (head-end replication).

use std::sync::Arc;

use netvale_mem::lent::LentGuard;
use netvale_port::origin::Origin;
use netvale_port::{Batch, DropReason, Egress, FrameRef, RingCounters, Scratch};
use netvale_wire::flow::{self, PlainFlow};
use netvale_wire::{Offload, ethernet};

use crate::ecn;
use crate::endpoint::{ECN_SHIFT, SOURCES};
use crate::ip::IpWords;
use crate::neighbors::{self, NeighborMessage};
use crate::sender::{TunnelSendContext, TunnelSendResult, TunnelSender};
use crate::table::VtepTable;
use crate::too_long::{self, TooLongReply};
use crate::tunnel::{Tunnel, now};

/// Number of bytes at the start of a frame that are read: all headers up to the ports, including VLAN tags.
const HEAD: usize = 96;

/// A tunnel's egress.
pub struct TunnelEgress {
    tunnel: Arc<Tunnel>,
    counters: Arc<RingCounters>,
}

/// State common to all frames of a batch.
struct BatchPass<'a> {
    job: TunnelSendContext<'a>,
    table: &'a VtepTable,
    now: u32,
    /// The port from which the frames come, and its owner.
    from: Origin,
    /// Maximum length of a sent frame in bytes.
    longest: usize,
    /// The last decision: a flow, and the VTEP and the socket for the flow's frames.
    last: Option<(PlainFlow, IpWords, u8)>,
}

impl TunnelEgress {
    /// Creates the egress of a tunnel.
    #[must_use]
    pub fn new(tunnel: Arc<Tunnel>) -> TunnelEgress {
        TunnelEgress { tunnel, counters: Arc::default() }
    }

    /// Returns one of the tunnel's two senders (memory for packing frames); waits for another worker only if both
    /// senders are in use.
    fn sender(&self) -> Option<LentGuard<'_, TunnelSender>> {
        let [first, second] = &self.tunnel.senders;
        first.enter_now().or_else(|_| second.enter_now()).or_else(|_| first.enter()).ok()
    }

    #[inline]
    fn put(&self, pass: &mut BatchPass<'_>, sender: &mut TunnelSender, pick: u16, frame: &FrameRef<'_>) {
        match self.place(pass, frame) {
            Some((vtep, source)) if length_of(frame) <= pass.longest => sender.add(&pass.job, pick, vtep, source),
            _ => self.put_any(pass, sender, pick, frame),
        }
    }

    /// Returns the VTEP and the socket for a plain IPv4 frame, for which it reads only the frame's first words. Returns
    /// `None` for other frames, or if the table does not have the destination address.
    #[inline]
    fn place(&self, pass: &mut BatchPass<'_>, frame: &FrameRef<'_>) -> Option<(IpWords, u8)> {
        let words = frame.words(flow::WORDS)?;
        // The codepoint in the type of service of a plain IPv4 packet.
        let ecn = (words[1] >> 56) as u8 & 3;
        if let Some((last, vtep, source)) = &pass.last
            && last.has(words)
        {
            return Some((*vtep, *source | ecn << ECN_SHIFT));
        }
        let plain = PlainFlow::of(words)?;
        let vtep = self.vtep_of(pass, words[0])?;
        let source = source(self.tunnel.flows.hash_plain(&plain));
        pass.last = Some((plain, vtep, source));
        Some((vtep, source | ecn << ECN_SHIFT))
    }

    /// Returns the VTEP of a frame's destination, given the frame's first eight bytes; `None` if the destination is
    /// unknown or a group.
    #[inline]
    fn vtep_of(&self, pass: &BatchPass<'_>, first: u64) -> Option<IpWords> {
        let to = first & 0xffff_ffff_ffff;
        (to & 1 == 0).then(|| pass.table.lookup(to, pass.now, self.tunnel.options.ageing)).flatten()
    }

    #[inline(never)]
    fn put_any(&self, pass: &BatchPass<'_>, sender: &mut TunnelSender, pick: u16, frame: &FrameRef<'_>) {
        let mut head = [0; HEAD];
        let known = frame.copy_out(0, &mut head);
        let head = &head[..known];
        let Some(to) = head.first_chunk::<8>().filter(|_| known >= ethernet::HEADER_LEN) else {
            return self.counters.dropped(DropReason::Runt, 1);
        };
        if length_of(frame) > pass.longest {
            return self.refuse(pass, frame);
        }
        let source = source(self.tunnel.flows.hash(head)) | ecn::of(head).unwrap_or(ecn::NOT_ECT) << ECN_SHIFT;
        if let Some(vtep) = self.vtep_of(pass, u64::from_le_bytes(*to)) {
            self.hear(head, pass);
            return sender.add(&pass.job, pick, vtep, source);
        }
        if let Some(said) = self.hear(head, pass)
            && let Some(reply) = neighbors::answer(head, &said, &self.tunnel.known)
        {
            return self.reply(reply);
        }
        if pass.job.peers.flood().is_empty() {
            return self.counters.dropped(DropReason::NoVtep, 1);
        }
        for vtep in pass.job.peers.flood() {
            sender.add(&pass.job, pick, *vtep, source);
        }
    }

    /// Drops a packet that is too long for the path, and replies to its sender.
    #[cold]
    fn refuse(&self, pass: &BatchPass<'_>, frame: &FrameRef<'_>) {
        self.counters.dropped(DropReason::TooLong, 1);
        let mut head = [0; too_long::HEAD];
        let known = frame.copy_out(0, &mut head);
        let layers = ethernet::network(&head[..known]).map_or(ethernet::HEADER_LEN, |(_, l3)| l3);
        if let Some(reply) = too_long::answer(&head[..known], pass.longest.saturating_sub(layers)) {
            self.reply(reply);
        }
    }

    /// Records the address claim of an ARP or ND message, for a control plane, and returns the message. Returns `None`
    /// for other frames, and on a tunnel that learns addresses.
    fn hear(&self, head: &[u8], pass: &BatchPass<'_>) -> Option<NeighborMessage> {
        let said = (!self.tunnel.options.learning).then(|| neighbors::read(head)).flatten()?;
        self.tunnel.heard.hear(&said, pass.from, pass.now);
        Some(said)
    }

    fn reply(&self, reply: TooLongReply) {
        if let Ok(mut replies) = self.tunnel.replies.enter() {
            replies.push(reply);
        }
        self.tunnel.wake.poke();
    }
}

/// Returns the number of the socket for frames of the flow with this hash. The upper bits, in which the caller may put
/// the ECN codepoint, are zero.
#[inline]
fn source(hash: u32) -> u8 {
    (hash % SOURCES as u32) as u8
}

/// Returns the length in bytes of the longest frame that is sent for `frame`, after segmentation; 0 for TCP, which is
/// cut to fit the path.
#[inline]
fn length_of(frame: &FrameRef<'_>) -> usize {
    match frame.offload() {
        Offload::Gso(gso) if gso.kind.is_tcp() => 0,
        Offload::Gso(gso) => frame.len().min(usize::from(gso.hdr_len) + usize::from(gso.gso_size)),
        Offload::None | Offload::CsumPartial { .. } => frame.len(),
    }
}

impl Egress for TunnelEgress {
    fn deliver(&self, batch: &Batch, picks: &[u16], scratch: &mut Scratch) -> usize {
        let Some(mut sender) = self.sender() else { return 0 };
        let table = self.tunnel.table.load();
        let peers = self.tunnel.peers.load();
        let (whole, longest) = self.tunnel.limits();
        let sources = &self.tunnel.sources;
        let header = &self.tunnel.header;
        let job = TunnelSendContext { batch, picks, peers: &peers, counters: &self.counters, sources, header, whole };
        let mut pass = BatchPass { job, table: &table, now: now(), from: scratch.origin(), longest, last: None };
        for (pick, frame) in picks.iter().enumerate() {
            if let Some(frame) = batch.get(usize::from(*frame)) {
                self.put(&mut pass, &mut sender, pick as u16, &frame);
            }
        }
        let TunnelSendResult { frames, bytes, too_long_to } = sender.finish(&pass.job);
        drop(sender);
        self.counters.passed(frames, bytes);
        self.tunnel.path_is(too_long_to, pass.now);
        picks.len()
    }

    fn counters(&self) -> &Arc<RingCounters> {
        &self.counters
    }
}
