//! Rings as a program uses them: fill and send, receive and release.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use netvale_mem::drops::RingCounters;
use rustix::event::{PollFd, PollFlags, Timespec};

mod rx;
mod tx;

pub use rx::RxRing;
pub(crate) use tx::TxKind;
pub use tx::TxRing;

/// Pauses between two checks. After a while it yields: the other side may be waiting for this very CPU.
pub(crate) fn relax(waited: Duration) {
    const ALONE: Duration = Duration::from_micros(5);
    if waited < ALONE { std::hint::spin_loop() } else { std::thread::yield_now() }
}

/// Polls for `spin`, then sleeps for up to `limit` until the ring is ready.
fn wait_on<R>(
    ring: &mut R,
    spin: Duration,
    limit: Duration,
    ready: impl Fn(&mut R) -> bool,
    arm: impl Fn(&mut R) -> bool,
    awake: impl Fn(&R) -> bool,
    fd: impl Fn(&R) -> BorrowedFd<'_>,
) -> bool {
    let start = Instant::now();
    loop {
        if ready(ring) {
            return true;
        }
        if start.elapsed() >= spin {
            break;
        }
        relax(start.elapsed());
    }
    let slept = Instant::now();
    loop {
        if !arm(ring) {
            let left = limit.saturating_sub(slept.elapsed());
            let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
            // An interrupted sleep ends the wait.
            let _ = rustix::event::poll(&mut [PollFd::from_borrowed_fd(fd(ring), PollFlags::IN)], Some(&left));
        }
        let kicked = awake(ring);
        if ready(ring) {
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
    let (from, to) = (rx.mem(), tx.mem());
    if !from.shares_buffers_with(to) {
        return false;
    }
    let (full, empty) = (from.slot_word(rx_slot), to.slot_word(tx_slot));
    let changed = netvale_abi::slot::NS_BUF_CHANGED;
    to.set_slot_word(tx_slot, full.buf_idx, full.len, full.flags | changed);
    from.set_slot_word(rx_slot, empty.buf_idx, 0, changed);
    true
}
