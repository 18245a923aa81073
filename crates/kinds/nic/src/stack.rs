//! Host rings: frames that the host's stack sends on an interface go to a program, and frames that the program sends
//! enter the stack as if the interface had received them.
//!
//! ```text
//!   stack ──send──► interface's egress hook ──► TAP ──read──► host rx ring
//!   stack ◄─receive─ interface's ingress ◄── TAP's ingress hook ◄──write── host tx ring
//! ```
//!
//! The TAP and the hooks (TCX links, Linux 6.6) exist only through this process's descriptors: when the process ends,
//! even by a crash, the kernel removes them, and the interface works as before. With several rings, the stack's flows
//! are spread over them, and each ring has a queue of the TAP; flows of rings that are not open pass to the interface.
//! The TAP passes only the interface's frames, which are marked, and drops all other frames.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use netvale_abi::ring::ring_space;
use netvale_afxdp::bpf::Diversion;
use netvale_afxdp::outlet::{Outlet, SendResult, TAP_HEADER};
use netvale_afxdp::rx_end::RxEnd;
use netvale_mem::host::HostTx;
use netvale_mem::mirror::{Mirror, Moment};
use netvale_mem::notify::{Doorbell, KickCounts, arm};
use netvale_mem::region::FurnishedRings;
use netvale_port::batch::MAX_FRAGS;
use netvale_port::{DropReason, PassResult, RingCounters, Task};
use rustix::io::Errno;

/// Maximum number of slots sent, or frames read, in one pass, because each frame needs a system call.
const MOST: u32 = 64;
/// Maximum length of a frame to read in bytes; the stack sends no longer frames.
const LONGEST: usize = 65_550;

/// The TAP through which frames leave and enter the stack, and the hooks that redirect frames to it.
#[derive(Debug)]
pub struct Stack {
    /// The TAP's queues, one for each host rx ring.
    queues: Vec<Arc<OwnedFd>>,
    /// The hooks that redirect frames to the TAP.
    diversion: Diversion,
}

/// A host rx ring whose flows are redirected to the TAP until this value is dropped.
#[derive(Debug)]
pub struct OpenRing {
    stack: Arc<Stack>,
    ring: u32,
}

impl Drop for OpenRing {
    fn drop(&mut self) {
        // Fails only for a missing ring.
        let _ = self.stack.diversion.set_open(self.ring, false);
    }
}

impl Stack {
    /// Combines a TAP's queues with the hooks. No frames are redirected until [`Stack::open_ring`].
    pub fn new(queues: Vec<OwnedFd>, diversion: Diversion) -> Stack {
        Stack { queues: queues.into_iter().map(Arc::new).collect(), diversion }
    }

    /// The TAP's queue through which a ring's frames leave or enter the stack. There are as many queues as host rx
    /// rings; indices of further tx rings wrap around.
    ///
    /// # Errors
    /// `EINVAL` if the TAP has no queues.
    pub fn queue(&self, ring: u32) -> Result<&Arc<OwnedFd>, Errno> {
        self.queues.get(ring as usize % self.queues.len().max(1)).ok_or(Errno::INVAL)
    }

    /// Redirects a ring's flows to its queue. Discards frames that an earlier user left in the queue.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn open_ring(self: &Arc<Self>, ring: u32) -> Result<OpenRing, Errno> {
        /// Maximum number of frames to discard: more than a TAP's queue can contain.
        const MOST: usize = 1 << 16;
        let queue = self.queue(ring)?;
        let mut byte = [0u8; 1];
        for _ in 0..MOST {
            if rustix::io::read(&**queue, &mut byte).is_err() {
                break;
            }
        }
        self.diversion.set_open(ring, true)?;
        Ok(OpenRing { stack: Arc::clone(self), ring })
    }

    /// Restores an open ring, whose flows are redirected already. Frames in its queue stay there for the program that
    /// has the ring open.
    pub fn continue_ring(self: &Arc<Self>, ring: u32) -> OpenRing {
        OpenRing { stack: Arc::clone(self), ring }
    }

    /// The TAP's queues.
    pub fn queues(&self) -> &[Arc<OwnedFd>] {
        &self.queues
    }

    /// The hooks that redirect frames to the TAP.
    pub fn diversion(&self) -> &Diversion {
        &self.diversion
    }
}

/// Moves frames from a host tx ring into the stack.
pub struct StackTx {
    tx: HostTx,
    outlet: Outlet,
    doorbell: Doorbell,
    counters: Arc<RingCounters>,
    /// The `head` at which the ring has stopped, because it is invalid or ends inside a frame, until the program
    /// publishes another `head`; `None` while the ring runs.
    stuck: Option<u32>,
    /// Whether the TAP is full.
    full: bool,
    /// Copies frames for monitors.
    mirror: Mirror,
    _ring: FurnishedRings,
}

impl StackTx {
    /// Creates the task. The program rings `doorbell`; `queue` is the queue of the TAP.
    pub fn new(
        ring: FurnishedRings,
        tx: HostTx,
        doorbell: Doorbell,
        queue: &Arc<OwnedFd>,
        counters: Arc<RingCounters>,
    ) -> StackTx {
        let region = ring.mem().region();
        let mirror = Mirror::new(region.mapping(), region.places(), Moment::Passing);
        let outlet = Outlet::tap(Arc::clone(queue));
        StackTx { tx, outlet, doorbell, counters, stuck: None, full: false, mirror, _ring: ring }
    }

    /// Moves the available frames. Returns the number of slots moved.
    fn move_slots(&mut self) -> usize {
        let head = self.tx.side().csb.head();
        let n = self.tx.side().ring.num_slots();
        if self.stuck == Some(head) {
            return 0;
        }
        self.stuck = None;
        if head >= n {
            self.stuck = Some(head);
            self.counters.dropped(DropReason::BadHead, 1);
            return 0;
        }
        self.full = false;
        let mut at = self.tx.hwcur();
        let mut moved = 0;
        let left = ring_space(at, head, n);
        while moved < left.min(MOST) {
            let slots = match self.outlet.send(&self.tx.side().ring, at, left - moved) {
                SendResult::Yes(slots, bytes) => {
                    self.counters.passed(1, bytes);
                    slots
                }
                SendResult::No(slots, why) => {
                    self.counters.dropped(why, 1);
                    slots
                }
                SendResult::Incomplete => {
                    self.stuck = Some(head);
                    break;
                }
                SendResult::Full => {
                    self.full = true;
                    break;
                }
            };
            moved += slots;
            at = (at + slots) % n;
        }
        if moved > 0 {
            self.mirror.copy(self.tx.side(), self.tx.hwcur(), moved);
            self.tx.complete(at);
        }
        moved as usize
    }
}

impl<W> Task<W> for StackTx {
    fn pass(&mut self, _work: &mut W) -> PassResult {
        match self.move_slots() {
            0 if self.full => PassResult::Held,
            moved => PassResult::count(moved),
        }
    }

    fn arm(&mut self) -> bool {
        let csb = &self.tx.side().csb;
        arm(csb.kern_need_kick());
        let head = csb.head();
        head != self.tx.hwcur() && self.stuck != Some(head)
    }

    fn disarm(&mut self) {
        self.tx.disarm();
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.doorbell.as_fd())
    }

    fn woken(&mut self) {
        self.doorbell.drain();
    }
}

/// Moves frames from the stack to a host rx ring.
pub struct StackRx {
    end: RxEnd,
    queue: Arc<OwnedFd>,
    /// Destination of frames that the program forwards (`NS_FORWARD`).
    wire: Outlet,
    counters: Arc<RingCounters>,
    /// Copies frames for monitors.
    mirror: Mirror,
    _ring: FurnishedRings,
}

impl StackRx {
    /// Creates the task. `end` is the ring, `queue` the queue of the TAP; frames that the program forwards go to
    /// `wire`.
    pub fn new(
        ring: FurnishedRings,
        end: RxEnd,
        queue: &Arc<OwnedFd>,
        wire: Outlet,
        counters: Arc<RingCounters>,
    ) -> StackRx {
        let region = ring.mem().region();
        let mirror = Mirror::new(region.mapping(), region.places(), Moment::Passing);
        StackRx { end, queue: Arc::clone(queue), wire, counters, mirror, _ring: ring }
    }

    /// Reads a frame into as many slots as it needs. A frame that finds no room is lost, as in a NIC.
    fn read(&mut self) -> StackReadResult {
        let ring = &self.end.side().ring;
        let size = ring.room(0) as usize;
        let room = (self.end.room() as usize).min(LONGEST.div_ceil(size)).min(MAX_FRAGS);
        let mut header = [0u8; TAP_HEADER];
        let mut spare = [0u8; 1];
        let mut iov = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; 2 + MAX_FRAGS];
        iov[0] = libc::iovec { iov_base: header.as_mut_ptr().cast(), iov_len: TAP_HEADER };
        let mut at = self.end.hwtail();
        let mut usable = 0;
        for place in iov.iter_mut().skip(1).take(room) {
            let Some(buf) = ring.buf(ring.slot_word(at).buf_idx) else { break };
            *place = libc::iovec { iov_base: buf.as_ptr().cast(), iov_len: size };
            at = ring.next(at);
            usable += 1;
        }
        // A spare byte after the last buffer reveals a longer frame.
        iov[1 + usable] = libc::iovec { iov_base: spare.as_mut_ptr().cast(), iov_len: 1 };
        // SAFETY: the pieces are the header, the spare byte, and buffers of the region, which `_ring` keeps mapped; the
        // kernel writes them, and nothing reads them here.
        let got = unsafe { libc::readv(self.queue.as_raw_fd(), iov.as_ptr(), 2 + usable as i32) };
        let Some(len) = usize::try_from(got).ok().and_then(|n| n.checked_sub(TAP_HEADER)) else {
            return StackReadResult::Nothing;
        };
        if len > usable * size {
            return StackReadResult::Lost(if usable == room { DropReason::NoRoom } else { DropReason::BadRxBuffer });
        }
        self.end.fill(len, size);
        StackReadResult::Frame(len)
    }

    /// Counters of kicks to the program.
    pub fn kicks(&self) -> Arc<KickCounts> {
        self.end.kicks()
    }
}

impl<W> Task<W> for StackRx {
    fn pass(&mut self, _work: &mut W) -> PassResult {
        if self.end.released(Some(&self.wire)).is_err() {
            self.counters.dropped(DropReason::BadHead, 1);
        }
        let mut frames = 0;
        let mut bytes = 0;
        let mut looked = 0;
        let first = self.end.hwtail();
        while looked < MOST {
            match self.read() {
                StackReadResult::Frame(n) => {
                    frames += 1;
                    bytes += n as u64;
                }
                StackReadResult::Lost(why) => self.counters.dropped(why, 1),
                StackReadResult::Nothing => break,
            }
            looked += 1;
        }
        if frames > 0 {
            self.mirror.copy(self.end.side(), first, self.end.since(first));
            self.end.publish();
            self.counters.passed(frames, bytes);
        }
        PassResult::count(looked as usize)
    }

    fn settle(&mut self) {
        self.end.settle();
    }

    // Arming is unnecessary: the TAP is polled level-triggered.
    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.queue.as_fd())
    }

    fn is_cheap(&self) -> bool {
        false
    }
}

/// Result of reading the TAP once: a frame of this length in bytes, a frame lost for this reason, or no frame.
enum StackReadResult {
    Frame(usize),
    Lost(DropReason),
    Nothing,
}
