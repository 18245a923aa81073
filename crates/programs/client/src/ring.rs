//! Rings as a program uses them: fill slots and send, or receive and release slots.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use netvale_mem::drops::RingCounters;
use netvale_mem::spin::{Spin, poll_for};
use rustix::event::{PollFd, PollFlags, Timespec};

mod rx;
mod tx;

pub use rx::RxRing;
pub(crate) use tx::TxKind;
pub use tx::TxRing;

/// A ring on which a program can wait for frames or room.
trait WaitableRing {
    /// Returns the state of the ring's adaptive polling.
    fn spin(&mut self) -> &mut Spin;

    /// Updates the ring's indices. Returns whether the ring is ready.
    fn look(&mut self) -> bool;

    /// Requests a kick. Returns whether the ring is already ready, in which case no kick may come.
    fn ask(&mut self) -> bool;

    /// Withdraws the request for a kick. Returns whether a kick arrived.
    fn awake(&self) -> bool;

    /// Returns the descriptor that becomes readable on a kick.
    fn fd(&self) -> BorrowedFd<'_>;
}

/// Polls for up to `most`, for a time that adapts to how often polling has recently succeeded, then sleeps for up to
/// `limit` until the ring is ready. Returns whether the ring is ready.
fn wait_on<R: WaitableRing>(ring: &mut R, most: Duration, limit: Duration) -> bool {
    ring.spin().set_most(most);
    ring.look() || poll_for(ring, R::spin, R::look) || sleep_on(ring, limit)
}

fn sleep_on<R: WaitableRing>(ring: &mut R, limit: Duration) -> bool {
    let slept = Instant::now();
    loop {
        if !ring.ask() {
            let left = limit.saturating_sub(slept.elapsed());
            let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
            // If a signal interrupts the sleep, the wait ends.
            let _ = rustix::event::poll(&mut [PollFd::from_borrowed_fd(ring.fd(), PollFlags::IN)], Some(&left));
        }
        let kicked = ring.awake();
        if ring.look() {
            return true;
        }
        // A late kick that an earlier sleep requested does not end this wait.
        if !kicked || slept.elapsed() >= limit {
            return false;
        }
    }
}

fn drops(counters: &RingCounters) -> Vec<(&'static str, u64)> {
    counters.all_drops().map(|(why, n)| (why.name(), n)).collect()
}

/// Swaps the buffers of two slots, which forwards a frame without a copy. If the rings do not share their buffers,
/// changes nothing and returns false.
#[inline]
pub fn swap_buffers(rx: &RxRing, rx_slot: u32, tx: &TxRing, tx_slot: u32) -> bool {
    let from = rx.mem();
    let to = tx.mem();
    if !from.shares_buffers_with(to) {
        return false;
    }
    let full = from.slot_word(rx_slot);
    let empty = to.slot_word(tx_slot);
    let changed = netvale_abi::slot::NS_BUF_CHANGED;
    to.set_slot_word(tx_slot, full.buf_idx, full.len, full.flags | changed);
    from.set_slot_word(rx_slot, empty.buf_idx, 0, changed);
    true
}
