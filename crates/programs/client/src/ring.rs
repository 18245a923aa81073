//! Rings as a program uses them: fill and send, receive and release.

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

/// A ring to wait for.
trait Awaited {
    /// State of its adaptive polling.
    fn spin(&mut self) -> &mut Spin;

    /// Whether it is ready, after an update.
    fn look(&mut self) -> bool;

    /// Asks to be woken. Returns whether the ring is ready already.
    fn ask(&mut self) -> bool;

    /// Stops asking. Returns whether a kick arrived.
    fn awake(&self) -> bool;

    /// Becomes readable on a kick.
    fn fd(&self) -> BorrowedFd<'_>;
}

/// Polls for up to `most`, as long as polling pays, then sleeps for up to `limit` until the ring is ready. Returns
/// whether it is ready.
fn wait_on<R: Awaited>(ring: &mut R, most: Duration, limit: Duration) -> bool {
    ring.spin().set_most(most);
    ring.look() || poll_for(ring, R::spin, R::look) || sleep_on(ring, limit)
}

fn sleep_on<R: Awaited>(ring: &mut R, limit: Duration) -> bool {
    let slept = Instant::now();
    loop {
        if !ring.ask() {
            let left = limit.saturating_sub(slept.elapsed());
            let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
            // An interrupted sleep ends the wait.
            let _ = rustix::event::poll(&mut [PollFd::from_borrowed_fd(ring.fd(), PollFlags::IN)], Some(&left));
        }
        let kicked = ring.awake();
        if ring.look() {
            return true;
        }
        // A kick meant for an earlier sleep does not end it.
        if !kicked || slept.elapsed() >= limit {
            return false;
        }
    }
}

fn drops(counters: &RingCounters) -> Vec<(&'static str, u64)> {
    counters.all_drops().map(|(why, n)| (why.name(), n)).collect()
}

/// Swaps the buffers of two slots: zero-copy forwarding. Returns whether the rings share their buffers; otherwise
/// nothing happens.
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
