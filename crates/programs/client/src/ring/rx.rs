//! Rings on which a program receives.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use netvale_abi::NetmapSlot;
use netvale_afxdp::through::ThroughRx;
use netvale_mem::RingMem;
use netvale_mem::appl::{AppRing, SyncResult};
use netvale_mem::notify::{Doorbell, KickCounts};
use netvale_mem::spin::Spin;

use super::{WaitableRing, drops, wait_on};

/// An rx ring of an open port.
///
/// Read the slots `at(0) .. at(space() - 1)`, then [`advance`](RxRing::advance) over the finished slots and
/// [`sync`](RxRing::sync).
#[derive(Debug)]
pub struct RxRing {
    pub(crate) ring: AppRing,
    pub(crate) wake: Doorbell,
    /// If the ring belongs to an interface, the receiving side of the AF_XDP socket, from which each sync moves frames
    /// into the ring.
    pub(crate) nic: Option<Box<ThroughRx>>,
    /// State of the adaptive polling for frames.
    pub(crate) spin: Spin,
}

impl RxRing {
    /// Creates a ring that another process fills through shared memory.
    pub(crate) fn new(ring: AppRing, wake: Doorbell) -> Self {
        RxRing { ring, wake, nic: None, spin: Spin::default() }
    }

    /// Returns the ring's slots and buffers.
    #[inline]
    pub fn mem(&self) -> &RingMem {
        self.ring.mem()
    }

    /// Returns the number of slots.
    pub fn num_slots(&self) -> u32 {
        self.ring.num_slots()
    }

    /// Returns the number of slots with received frames.
    #[inline]
    pub fn space(&self) -> u32 {
        self.ring.space()
    }

    /// Returns the index of the `k`-th received slot.
    #[inline]
    pub fn at(&self, k: u32) -> u32 {
        self.ring.at(k)
    }

    /// Returns a snapshot of slot `i`.
    #[inline]
    pub fn slot(&self, i: u32) -> NetmapSlot {
        self.ring.slot(i)
    }

    /// Copies up to `into.len()` bytes of slot `i`. Returns the number of bytes copied.
    #[inline]
    pub fn read(&self, i: u32, into: &mut [u8]) -> usize {
        let s = self.slot(i);
        let n = into.len().min(usize::from(s.len));
        if self.mem().read(s.buf_idx, 0, &mut into[..n]) { n } else { 0 }
    }

    /// Marks the first `n` received slots as finished.
    #[inline]
    pub fn advance(&mut self, n: u32) {
        self.ring.advance(n);
    }

    /// Returns finished slots to the sender, and updates the number of received slots.
    #[inline]
    pub fn sync(&mut self) -> SyncResult {
        let found = self.ring.sync();
        self.pass();
        found
    }

    /// If the ring belongs to an interface, passes released slots to the kernel, and takes the frames that the kernel
    /// has received.
    #[inline]
    fn pass(&mut self) {
        if let Some(through) = &mut self.nic {
            look_at(through, &mut self.ring);
        }
    }

    /// Syncs like netmap's ioctl; see [`TxRing::sync_header`](super::TxRing::sync_header).
    #[inline]
    pub fn sync_header(&mut self) -> SyncResult {
        let found = self.ring.sync_header();
        self.pass();
        found
    }

    /// Requests a kick when frames arrive. After this call, the caller must check for frames once more before it
    /// sleeps.
    pub fn ask_kick(&self) {
        netvale_mem::notify::arm(self.ring.side().csb.appl_need_kick());
    }

    /// Takes over a ring in the state in which another process has left it.
    pub(crate) fn resume(&mut self) {
        self.ring.resume();
        if let Some(through) = &mut self.nic {
            through.resume();
        }
    }

    /// Receives the next whole frame: copies at most `into.len()` bytes of it. Returns the number of copied bytes;
    /// `None` if there is no whole frame.
    pub fn recv(&mut self, into: &mut [u8]) -> Option<usize> {
        let mut used = 0;
        let mut slots = 0;
        loop {
            if slots == self.space() {
                return None;
            }
            let i = self.at(slots);
            used += self.read(i, &mut into[used..]);
            slots += 1;
            if self.slot(i).flags & netvale_abi::slot::NS_MOREFRAG == 0 {
                break;
            }
        }
        self.advance(slots);
        Some(used)
    }

    /// Requests a kick when frames arrive. Returns whether frames are already available, for which no kick may come.
    pub fn arm(&mut self) -> bool {
        self.pass();
        self.ring.arm()
    }

    /// Updates the ring. Returns whether frames are available.
    pub fn is_ready(&mut self) -> bool {
        self.pass();
        self.ring.is_ready()
    }

    /// Withdraws the request for a kick.
    pub fn disarm(&self) {
        let _ = self.awake();
    }

    /// Waits for frames: polls for up to `spin`, for a time that adapts to how often polling has recently succeeded,
    /// then sleeps for up to `limit`. Returns whether frames are available.
    pub fn wait(&mut self, spin: Duration, limit: Duration) -> bool {
        wait_on(self, spin, limit)
    }

    /// Returns the descriptor that becomes readable when frames arrive on an armed ring.
    pub fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Returns, for each reason, the number of frames that could not be received; empty unless the ring belongs to an
    /// interface.
    pub fn drops(&self) -> Vec<(&'static str, u64)> {
        self.nic.as_ref().map_or_else(Vec::new, |through| drops(through.counters()))
    }

    /// Returns the counts of kicks that were sent to the other side, and of kicks that were suppressed because the
    /// other side did not request them.
    pub fn kicks(&self) -> &KickCounts {
        self.ring.kicks()
    }
}

impl WaitableRing for RxRing {
    fn spin(&mut self) -> &mut Spin {
        &mut self.spin
    }

    fn look(&mut self) -> bool {
        self.is_ready()
    }

    fn ask(&mut self) -> bool {
        self.arm()
    }

    fn awake(&self) -> bool {
        self.ring.disarm();
        self.nic.is_none() && self.wake.drain()
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.wake_fd()
    }
}

/// The part of [`RxRing::pass`] for interfaces, which is not inlined.
#[inline(never)]
fn look_at(through: &mut ThroughRx, ring: &mut AppRing) {
    through.pass();
    let _ = ring.refresh();
}
