//! Rings on which a program sends.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use netvale_abi::NetmapSlot;
use netvale_abi::slot::NETMAP_MAX_FRAGS;
use netvale_mem::RingMem;
use netvale_mem::appl::{AppRing, SyncResult};
use netvale_mem::notify::{Doorbell, KickCounts};
use netvale_mem::pipe::PipeTx;
use netvale_mem::spin::Spin;

use super::{WaitableRing, drops, wait_on};
use crate::nic_tx::NicTx;

/// The mechanism that moves the frames of a tx ring.
#[derive(Debug)]
pub(crate) enum TxKind {
    /// A worker of the switch takes the frames.
    Switch(AppRing),
    /// Nothing takes the frames, as the ring belongs to a monitor.
    Monitor(AppRing),
    /// This process moves the frames at each sync, directly into the rx ring of the pipe's other end.
    Pipe(PipeTx),
    /// The kernel takes the frames: each sync passes the filled slots to the kernel.
    Nic(Box<NicTx>),
}

/// A tx ring of an open port.
///
/// Fill the slots `at(0) .. at(space() - 1)`, then [`advance`](TxRing::advance) over the filled slots and
/// [`sync`](TxRing::sync) once for the whole batch.
#[derive(Debug)]
pub struct TxRing {
    pub(crate) kind: TxKind,
    pub(crate) wake: Doorbell,
    /// Whether frames may be outside the ring's buffers in the program's memory (`NS_INDIRECT`), as netmap permits on
    /// ports of a switch.
    pub(crate) indirect: bool,
    /// State of the adaptive polling for room.
    pub(crate) spin: Spin,
}

impl TxRing {
    /// Creates a ring whose frames are in its own buffers.
    pub(crate) fn new(kind: TxKind, wake: Doorbell) -> Self {
        TxRing { kind, wake, indirect: false, spin: Spin::default() }
    }

    /// Returns the ring's slots and buffers.
    #[inline]
    pub fn mem(&self) -> &RingMem {
        match &self.kind {
            TxKind::Switch(r) | TxKind::Monitor(r) => r.mem(),
            TxKind::Pipe(p) => p.mem(),
            TxKind::Nic(n) => n.ring.mem(),
        }
    }

    /// Returns the number of slots.
    pub fn num_slots(&self) -> u32 {
        self.mem().num_slots()
    }

    /// Returns the number of slots that may be filled.
    #[inline]
    pub fn space(&self) -> u32 {
        match &self.kind {
            TxKind::Switch(r) | TxKind::Monitor(r) => r.space(),
            TxKind::Pipe(p) => p.space(),
            TxKind::Nic(n) => n.ring.space(),
        }
    }

    /// Returns the index of the `k`-th slot that may be filled; `k` is below [`TxRing::space`].
    #[inline]
    pub fn at(&self, k: u32) -> u32 {
        match &self.kind {
            TxKind::Switch(r) | TxKind::Monitor(r) => r.at(k),
            TxKind::Pipe(p) => p.at(k),
            TxKind::Nic(n) => n.ring.at(k),
        }
    }

    /// Returns a snapshot of slot `i`.
    #[inline]
    pub fn slot(&self, i: u32) -> NetmapSlot {
        self.mem().slot_word(i)
    }

    /// Sets length and flags of slot `i`; its buffer stays the same.
    #[inline]
    pub fn set_len(&self, i: u32, len: u16, flags: u16) {
        self.mem().set_len_flags(i, len, flags);
    }

    /// Marks the first `n` free slots as filled.
    #[inline]
    pub fn advance(&mut self, n: u32) {
        match &mut self.kind {
            TxKind::Switch(r) | TxKind::Monitor(r) => r.advance(n),
            TxKind::Pipe(p) => p.advance(n),
            TxKind::Nic(nic) => nic.ring.advance(n),
        }
    }

    /// Publishes the filled slots, and updates the number of free slots.
    #[inline]
    pub fn sync(&mut self) {
        match &mut self.kind {
            TxKind::Switch(r) | TxKind::Monitor(r) => {
                let _ = r.sync();
            }
            TxKind::Pipe(p) => {
                p.sync();
            }
            TxKind::Nic(n) => n.sync(),
        }
    }

    /// Syncs like netmap's ioctl: takes `head` and `cur` from the ring's header, where the program has written them, so
    /// that processes that share the ring may take turns. A program must use either this function, or
    /// [`advance`](TxRing::advance) with [`sync`](TxRing::sync).
    ///
    /// On ports of a switch, frames may be elsewhere in the program's memory (`NS_INDIRECT`). If this is so for any new
    /// frame, `fetch` is called to copy the bytes into the slots' buffers; its arguments are the ring, the first new
    /// slot, and the slot after the last new slot.
    #[inline]
    pub fn sync_header(&mut self, fetch: impl FnOnce(&RingMem, u32, u32)) -> SyncResult {
        match &mut self.kind {
            TxKind::Switch(r) if self.indirect => r.sync_header_fetching(fetch),
            TxKind::Switch(r) => r.sync_header(),
            TxKind::Monitor(r) => match r.sync_header() {
                SyncResult::Ok if r.head() != r.side().csb.hwcur() => SyncResult::Refused,
                found => found,
            },
            TxKind::Pipe(p) => p.sync_header(),
            TxKind::Nic(n) => {
                let found = n.ring.sync_header();
                n.look();
                found
            }
        }
    }

    /// Requests a kick when there is room. After this call, the caller must check for room once more before it sleeps.
    pub fn ask_kick(&self) {
        netvale_mem::notify::arm(match &self.kind {
            TxKind::Switch(r) | TxKind::Monitor(r) => r.side().csb.appl_need_kick(),
            TxKind::Pipe(p) => p.need_kick(),
            TxKind::Nic(n) => {
                n.through.arm();
                n.ring.side().csb.appl_need_kick()
            }
        });
    }

    /// Takes over a ring in the state in which another process has left it.
    pub(crate) fn resume(&mut self) {
        match &mut self.kind {
            TxKind::Switch(r) | TxKind::Monitor(r) => r.resume(),
            TxKind::Pipe(p) => p.resume(),
            TxKind::Nic(n) => n.ring.resume(),
        }
    }

    /// Returns the length in bytes of the longest frame that the ring accepts.
    pub fn longest(&self) -> usize {
        let slots = self.num_slots() - 1;
        let size = self.mem().room(0);
        let bytes = match &self.kind {
            TxKind::Nic(n) => n.through.longest(),
            _ => slots.min(NETMAP_MAX_FRAGS as u32).saturating_mul(size),
        };
        bytes.min(u32::from(u16::MAX)) as usize
    }

    /// Copies one frame into the next slot, or into several slots if the frame is longer than a buffer. Returns whether
    /// there was room. The next [`sync`](TxRing::sync) sends the frame.
    pub fn send(&mut self, frame: &[u8]) -> bool {
        let size = self.mem().room(0) as usize;
        let slots = frame.len().div_ceil(size).max(1) as u32;
        if self.space() < slots {
            self.refresh();
            if self.space() < slots {
                return false;
            }
        }
        for k in 0..slots {
            let i = self.at(k);
            let part = &frame[k as usize * size..frame.len().min((k as usize + 1) * size)];
            let more = if k + 1 < slots { netvale_abi::slot::NS_MOREFRAG } else { 0 };
            self.mem().write(self.slot(i).buf_idx, 0, part);
            self.set_len(i, part.len() as u16, more);
        }
        self.advance(slots);
        true
    }

    /// Updates the number of free slots without publishing anything.
    fn refresh(&mut self) {
        match &mut self.kind {
            TxKind::Switch(r) | TxKind::Monitor(r) => {
                let _ = r.refresh();
            }
            TxKind::Pipe(p) => p.refresh(),
            TxKind::Nic(n) => n.look(),
        }
    }

    /// Sends one frame without waiting for a sync; if the ring is full, waits up to `limit` for room. Returns whether
    /// the frame was sent.
    pub fn send_now(&mut self, frame: &[u8], limit: Duration) -> bool {
        const SPIN: Duration = Duration::from_micros(50);
        let mut sent = self.send(frame);
        if !sent {
            self.sync();
            sent = self.send(frame) || (self.wait(SPIN, limit) && self.send(frame));
        }
        self.sync();
        sent
    }

    /// Requests a kick when there is room. Returns whether there is already room, in which case no kick may come.
    pub fn arm(&mut self) -> bool {
        match &mut self.kind {
            TxKind::Switch(r) | TxKind::Monitor(r) => r.arm(),
            TxKind::Pipe(p) => p.arm(),
            TxKind::Nic(n) => {
                n.through.arm();
                n.look();
                n.ring.arm()
            }
        }
    }

    /// Updates the ring. Returns whether there is room.
    pub fn is_ready(&mut self) -> bool {
        self.sync();
        self.space() > 0
    }

    /// Withdraws the request for a kick.
    pub fn disarm(&self) {
        let _ = self.awake();
    }

    /// Waits for room: polls for up to `spin`, for a time that adapts to how often polling has recently succeeded, then
    /// sleeps for up to `limit`. Returns whether there is room.
    pub fn wait(&mut self, spin: Duration, limit: Duration) -> bool {
        wait_on(self, spin, limit)
    }

    /// Returns the descriptor that becomes readable when an armed ring has room.
    pub fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Returns, for each reason, the number of frames that could not be sent; empty unless the ring belongs to an
    /// interface.
    pub fn drops(&self) -> Vec<(&'static str, u64)> {
        match &self.kind {
            TxKind::Nic(n) => drops(n.through.counters()),
            _ => Vec::new(),
        }
    }

    /// Returns the counts of kicks that were sent to the other side, and of kicks that were suppressed because the
    /// other side did not request them.
    pub fn kicks(&self) -> &KickCounts {
        match &self.kind {
            TxKind::Switch(r) | TxKind::Monitor(r) => r.kicks(),
            TxKind::Pipe(p) => p.kicks(),
            TxKind::Nic(n) => n.ring.kicks(),
        }
    }
}

impl WaitableRing for TxRing {
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
        match &self.kind {
            TxKind::Switch(r) | TxKind::Monitor(r) => r.disarm(),
            TxKind::Pipe(p) => p.disarm(),
            TxKind::Nic(n) => {
                n.ring.disarm();
                n.through.disarm();
                return false;
            }
        }
        self.wake.drain()
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.wake_fd()
    }
}
