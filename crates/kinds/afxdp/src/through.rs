//! Connects a queue to a netmap program's rings. The socket sends from the rings' buffers and receives into them,
//! without a copy; only the owner of a buffer changes. This code runs in the program's process, at each sync; no other
//! process takes part.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use netvale_abi::ring::ring_space;
use netvale_abi::slot::NS_MOREFRAG;
use netvale_mem::drops::{DropReason, RingCounters};
use netvale_mem::host::HostTx;
use netvale_mem::mirror::Mirror;
use rustix::event::epoll;
use rustix::io::Errno;

use crate::outlet::Outlet;
use crate::rx_end::{BadRxHead, RxEnd};
use crate::socket::{BufferLayout, CONTINUES, HEADROOM, XdpDesc, XdpReceiver, XdpSender, XdpSocket};

/// Value for a buffer that no slot is sending.
const NONE: u32 = u32::MAX;
/// Maximum number of ring entries of a frame (linux/skbuff.h: a first piece, and fewer than `MAX_SKB_FRAGS` others).
const MOST_ENTRIES: u32 = 16;
/// Minimum length of a frame's first piece in bytes: the kernel refuses a frame shorter than an Ethernet header.
const SHORTEST: u16 = 14;

/// Moves frames from a tx ring to the queue.
pub struct ThroughTx {
    tx: HostTx,
    sender: XdpSender,
    buffers: BufferLayout,
    /// First slot not yet passed to the kernel.
    given: u32,
    /// For each buffer, the slot that is sending it, or [`NONE`].
    slot_of: Box<[u32]>,
    /// For each slot, whether it has been sent.
    done: Box<[bool]>,
    /// Whether frames may have several entries.
    multi_buffer: bool,
    /// Whether the next slot continues a frame.
    inside: bool,
    /// The last invalid `head`, so that it is counted once and not at every pass; `None` if the last `head` was valid.
    bad: Option<u32>,
    /// Becomes readable when the ring has room again.
    wake: OwnedFd,
    counters: Arc<RingCounters>,
    /// The mirrors, which copy frames for monitors: the first copies frames when they are passed to the kernel, the
    /// second when their slots are returned to the program. `None` if the port cannot be monitored.
    mirrors: Option<Box<[Mirror; 2]>>,
}

impl ThroughTx {
    /// Connects `tx` to the queue of `sender`.
    ///
    /// # Errors
    /// The process is out of descriptors.
    pub fn new(tx: HostTx, sender: XdpSender, buffers: BufferLayout) -> Result<ThroughTx, Errno> {
        let wake = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let slots = tx.side().ring.num_slots() as usize;
        Ok(ThroughTx {
            given: tx.hwcur(),
            tx,
            sender,
            buffers,
            slot_of: vec![NONE; buffers.count as usize].into_boxed_slice(),
            done: vec![false; slots].into_boxed_slice(),
            multi_buffer: false,
            inside: false,
            bad: None,
            wake,
            counters: Arc::default(),
            mirrors: None,
        })
    }

    /// Adds the mirrors, which copy frames for monitors: `passing` when frames are passed to the kernel, `released`
    /// when their slots are returned to the program.
    #[must_use]
    pub fn mirrored(self, passing: Mirror, released: Mirror) -> Self {
        ThroughTx { mirrors: Some(Box::new([passing, released])), ..self }
    }

    /// Counts in the existing `counters` instead of in new ones.
    #[must_use]
    pub fn counted(self, counters: Arc<RingCounters>) -> Self {
        ThroughTx { counters, ..self }
    }

    /// The host's end of the ring.
    pub fn host(&self) -> &HostTx {
        &self.tx
    }

    /// Whether all published slots have been passed to the kernel. True even while the program's `head` is invalid.
    pub fn is_given(&self) -> bool {
        let head = self.tx.side().csb.head();
        head == self.given || self.bad == Some(head)
    }

    /// Whether the kernel still has frames to send.
    pub fn is_waiting(&self) -> bool {
        self.given != self.tx.hwcur()
    }

    /// The counters of frames, bytes and drops.
    pub fn counters(&self) -> &RingCounters {
        &self.counters
    }

    /// The queue's socket.
    pub fn socket(&self) -> &XdpSocket {
        &self.sender.socket
    }

    /// Sets whether frames may have several entries, which is known once the socket is bound.
    pub fn set_multi_buffer(&mut self, on: bool) {
        self.multi_buffer = on;
    }

    /// Maximum length in bytes of a frame that can be sent.
    pub fn longest(&self) -> u32 {
        let chunk = self.buffers.chunk().unwrap_or(0);
        if self.multi_buffer { chunk.saturating_mul(MOST_ENTRIES) } else { chunk }
    }

    /// Moves all frames that can be moved. Returns the number of slots passed to the kernel plus the number of slots
    /// returned to the program.
    pub fn pass(&mut self) -> u32 {
        self.reap();
        let mut given = 0;
        loop {
            let now = self.give();
            // While the interface is down, the kernel keeps the slots, as a netmap driver would.
            let _ = self.sender.push();
            // In copy mode, the frames have been sent by now.
            self.reap();
            given += now;
            // The kernel's ring may have been full and now have room: repeat, because the program may not call again.
            if now == 0 || self.is_given() {
                return given + self.complete();
            }
        }
    }

    /// Calls the kernel until it has taken all frames from the socket's tx ring, at most for `limit`. Call this when no
    /// later [`ThroughTx::pass`] follows. Both processes that have the ring may call this.
    pub fn flush(&mut self, limit: Duration) {
        let start = Instant::now();
        while self.sender.tx.pending() > 0 && start.elapsed() < limit {
            if self.sender.socket.kick().is_err() {
                return;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    fn reap(&mut self) {
        let count = self.sender.completion.ready();
        for _ in 0..count {
            let addr = self.sender.completion.take();
            let Some(slot) = self.buffers.index(addr).and_then(|index| self.slot_of.get_mut(index as usize)) else {
                continue;
            };
            let slot = std::mem::replace(slot, NONE);
            if let Some(done) = self.done.get_mut(slot as usize) {
                *done = true;
            }
        }
        if count > 0 {
            self.sender.completion.release();
        }
    }

    /// Passes filled slots to the kernel. Returns their number.
    fn give(&mut self) -> u32 {
        let head = self.tx.side().csb.head();
        let n = self.tx.side().ring.num_slots();
        let from = |i| ring_space(self.tx.hwcur(), i, n);
        // The kernel owns the slots before `given`: a `head` among them is invalid.
        if head >= n || from(head) < from(self.given) {
            if self.bad.replace(head) != Some(head) {
                self.counters.dropped(DropReason::BadHead, 1);
            }
            return 0;
        }
        self.bad = None;
        // Each slot may need two entries.
        let most = ring_space(self.given, head, n).min(self.sender.tx.room() / 2);
        if let Some(mirrors) = &mut self.mirrors {
            mirrors[0].copy(self.tx.side(), self.given, most);
        }
        let mut frames = 0;
        let mut bytes = 0;
        for _ in 0..most {
            let slot = self.tx.side().ring.slot_word(self.given);
            let sent = self.desc(slot.buf_idx, slot.len, slot.flags);
            match sent {
                Ok(desc) => {
                    if let Some(place) = self.slot_of.get_mut(slot.buf_idx as usize) {
                        *place = self.given;
                    }
                    frames += u64::from(desc.options & CONTINUES == 0);
                    bytes += u64::from(desc.len);
                    self.put(desc);
                }
                Err(why) => {
                    self.counters.dropped(why, 1);
                    if let Some(done) = self.done.get_mut(self.given as usize) {
                        *done = true;
                    }
                }
            }
            self.inside = slot.flags & NS_MOREFRAG != 0;
            self.given = self.tx.side().ring.next(self.given);
        }
        if most > 0 {
            self.counters.passed(frames, bytes);
        }
        most
    }

    /// Creates the descriptor for a slot.
    #[inline]
    fn desc(&self, buf: u32, len: u16, flags: u16) -> Result<XdpDesc, DropReason> {
        // If a buffer were in two slots, its completion could not be assigned to one of them.
        let free = self.slot_of.get(buf as usize) == Some(&NONE);
        let addr = self.buffers.at(buf).filter(|_| free && buf >= 2).ok_or(DropReason::BadBuffer)?;
        let most = if self.multi_buffer { self.buffers.stride } else { self.buffers.chunk().unwrap_or(0) };
        let least = if self.inside { 1 } else { SHORTEST };
        if len < least || u32::from(len) > most {
            return Err(DropReason::BadLength);
        }
        let options = if flags & NS_MOREFRAG != 0 { CONTINUES } else { 0 };
        Ok(XdpDesc { addr, len: len.into(), options })
    }

    /// Adds the entries for a slot. An entry holds at most one chunk of bytes: a slot with more bytes takes two
    /// entries.
    #[inline]
    fn put(&mut self, desc: XdpDesc) {
        let chunk = self.buffers.chunk().unwrap_or(desc.len);
        if desc.len <= chunk {
            return self.sender.tx.put(desc);
        }
        self.sender.tx.put(XdpDesc { len: chunk, options: CONTINUES, ..desc });
        self.sender.tx.put(XdpDesc {
            addr: desc.addr + u64::from(chunk),
            len: desc.len - chunk,
            options: desc.options,
        });
    }

    /// Returns slots with sent frames to the program, in order.
    fn complete(&mut self) -> u32 {
        let mut at = self.tx.hwcur();
        let mut count = 0;
        while at != self.given && self.done.get(at as usize) == Some(&true) {
            if let Some(done) = self.done.get_mut(at as usize) {
                *done = false;
            }
            at = self.tx.side().ring.next(at);
            count += 1;
        }
        if count > 0 {
            if let Some(mirrors) = &mut self.mirrors {
                mirrors[1].copy(self.tx.side(), self.tx.hwcur(), count);
            }
            self.tx.complete(at);
        }
        count
    }

    /// A descriptor that becomes readable when the ring has room, between [`ThroughTx::arm`] and [`ThroughTx::disarm`].
    pub fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Requests wake-ups. Until [`ThroughTx::disarm`], the kernel sends a wake-up for each sent frame, which costs more
    /// than the frame itself.
    pub fn arm(&self) {
        let flags = epoll::EventFlags::OUT | epoll::EventFlags::ET;
        // Fails if wake-ups are armed already.
        let _ = epoll::add(&self.wake, self.sender.socket.as_fd(), epoll::EventData::new_u64(0), flags);
    }

    /// Stops wake-ups.
    pub fn disarm(&self) {
        // Fails if wake-ups are not armed.
        let _ = epoll::delete(&self.wake, self.sender.socket.as_fd());
    }
}

impl fmt::Debug for ThroughTx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThroughTx").field("given", &self.given).finish_non_exhaustive()
    }
}

/// Moves frames from the queue to an rx ring.
pub struct ThroughRx {
    end: RxEnd,
    receiver: XdpReceiver,
    buffers: BufferLayout,
    /// First slot whose buffer has not been passed to the kernel.
    posted: u32,
    /// The outlet for frames that the program forwards (`NS_FORWARD`), if its port has host rings.
    forward: Option<Outlet>,
    counters: Arc<RingCounters>,
    /// Copies frames for monitors; `None` if the port cannot be monitored.
    mirror: Option<Box<Mirror>>,
}

impl ThroughRx {
    /// Connects `end` to the queue of `receiver`. Frames that the program forwards go to `forward`.
    pub fn new(end: RxEnd, receiver: XdpReceiver, buffers: BufferLayout, forward: Option<Outlet>) -> ThroughRx {
        let posted = end.hwtail();
        ThroughRx { end, receiver, buffers, posted, forward, counters: Arc::default(), mirror: None }
    }

    /// Adds the mirror, which copies received frames for monitors.
    #[must_use]
    pub fn mirrored(self, mirror: Mirror) -> Self {
        ThroughRx { mirror: Some(Box::new(mirror)), ..self }
    }

    /// Counts in the existing `counters` instead of in new ones.
    #[must_use]
    pub fn counted(self, counters: Arc<RingCounters>) -> Self {
        ThroughRx { counters, ..self }
    }

    /// The host's end of the ring.
    pub fn end(&self) -> &RxEnd {
        &self.end
    }

    /// The counters of frames, bytes and drops.
    pub fn counters(&self) -> &RingCounters {
        &self.counters
    }

    /// The queue's socket.
    pub fn socket(&self) -> &XdpSocket {
        &self.receiver.socket
    }

    /// Passes the buffers of a fresh ring to the kernel. If the socket was used before, the kernel already has the
    /// buffers; frames that arrived meanwhile or were not read are discarded.
    pub fn begin(&mut self) {
        if self.receiver.fill.was_used() {
            self.resume();
            self.receive();
            self.end.empty();
        }
        self.post();
    }

    /// Resumes at a predecessor's position: the kernel has the buffers of all slots that the program does not own.
    pub fn resume(&mut self) {
        self.end.resume();
        self.posted = self.end.end();
    }

    /// Moves all frames that can be moved. Returns the number of slots received.
    pub fn pass(&mut self) -> u32 {
        self.refill();
        self.receive()
    }

    /// Takes back slots that the program has read, and passes their buffers to the kernel.
    fn refill(&mut self) {
        match self.end.released(self.forward.as_ref()) {
            Err(BadRxHead) => self.counters.dropped(DropReason::BadHead, 1),
            Ok(true) => self.post(),
            // Slots remain whose buffers found no room in the kernel's ring.
            Ok(false) if self.posted != self.end.end() => self.post(),
            Ok(false) => {}
        }
    }

    /// Passes to the kernel the buffers of slots that the program has returned.
    fn post(&mut self) {
        let end = self.end.end();
        let mut count = 0;
        while self.posted != end && self.receiver.fill.room() > 0 {
            let buf = self.end.side().ring.slot_word(self.posted).buf_idx;
            match self.buffers.at(buf).filter(|_| buf >= 2) {
                Some(at) => self.receiver.fill.put(at - HEADROOM),
                // The kernel has one buffer less until the program puts a valid buffer into the slot.
                None => self.counters.dropped(DropReason::BadRxBuffer, 1),
            }
            self.posted = self.end.side().ring.next(self.posted);
            count += 1;
        }
        if count > 0 {
            self.receiver.fill.publish();
            if self.receiver.fill.needs_wakeup() {
                self.receiver.socket.poke();
            }
        }
    }

    /// Moves received buffers to slots, and publishes the slots to the program.
    fn receive(&mut self) -> u32 {
        let count = self.receiver.rx.ready();
        let mut frames = 0;
        let mut bytes = 0;
        let first = self.end.hwtail();
        for _ in 0..count {
            let desc = self.receiver.rx.take();
            // The kernel returns only buffers that it was given, so a slot is free for each.
            let Some(buf) = self.buffers.index(desc.begin()).filter(|_| self.end.hwtail() != self.posted) else {
                continue;
            };
            let goes_on = desc.options & CONTINUES != 0;
            let len = u16::try_from(desc.len).unwrap_or(u16::MAX);
            self.end.put(buf, len, if goes_on { NS_MOREFRAG } else { 0 });
            frames += u64::from(!goes_on);
            bytes += u64::from(len);
        }
        if count > 0 {
            self.receiver.rx.release();
            if let Some(mirror) = &mut self.mirror {
                mirror.copy(self.end.side(), first, self.end.since(first));
            }
            self.end.publish();
            self.counters.passed(frames, bytes);
        }
        count
    }

    /// A descriptor that becomes readable when frames arrive.
    pub fn wake_fd(&self) -> BorrowedFd<'_> {
        self.receiver.socket.as_fd()
    }
}

impl fmt::Debug for ThroughRx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThroughRx").field("end", &self.end).field("posted", &self.posted).finish_non_exhaustive()
    }
}
