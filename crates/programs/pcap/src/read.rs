//! Passes frames from the rings through the filter to the program, without a copy.
#![allow(unsafe_code)]

use std::time::{Duration, Instant};

use libc::{c_int, timeval};
use netvale_abi::slot::NS_MOREFRAG;

use crate::handle::{ActivePort, Handle, WaitResult, is_breaking, take_break};
use crate::sys::{self, PcapHandler, PktHdr};

/// A received frame in its buffer.
struct ReceivedFrame {
    at: *const u8,
    /// Number of readable bytes at `at`.
    there: u32,
    /// Length of the whole frame in bytes.
    len: u32,
    slots: u32,
}

/// Distance, in frames, between the current frame and the frame that is prefetched. Prefetching helps because the
/// frames are in the sending core's cache.
const AHEAD: u32 = 8;
/// After this many released slots, a sync returns them to the sender, so that the sender has room while the program
/// reads a full ring.
const GIVE_BACK: u32 = 64;

impl ActivePort {
    /// Releases the frame that the program has finished with.
    fn release(&mut self) {
        let held = std::mem::take(&mut self.held);
        if held == 0 {
            return;
        }
        let at = self.ring;
        if let Some(ring) = self.port.rx().get_mut(at) {
            ring.advance(held);
            self.unsynced += held;
            if self.unsynced >= GIVE_BACK {
                let _ = ring.sync();
                self.unsynced = 0;
            }
        }
    }

    /// Returns the next frame, if there is one. Reads a ring until it is empty, then the next one.
    fn next(&mut self, snaplen: u32) -> Option<ReceivedFrame> {
        let count = self.port.rx().len();
        for _ in 0..count {
            if let Some(frame) = self.at_head(snaplen) {
                return Some(frame);
            }
            self.ring = (self.ring + 1) % count;
        }
        None
    }

    #[inline]
    fn at_head(&mut self, snaplen: u32) -> Option<ReceivedFrame> {
        let at = self.ring;
        let ring = self.port.rx().get(at)?;
        if ring.space() == 0 {
            return None;
        }
        if ring.space() > AHEAD {
            ring.mem().prefetch_read(ring.slot(ring.at(AHEAD)).buf_idx);
        }
        let slot = ring.slot(ring.at(0));
        if slot.flags & NS_MOREFRAG != 0 {
            return self.assemble(snaplen);
        }
        let len = u32::from(slot.len).min(ring.mem().buf_size());
        // A slot with an invalid buffer index, which only the program itself or a bug can have written, counts as an
        // empty frame.
        let (at, len) = ring.mem().buf(slot.buf_idx).map_or((std::ptr::null(), 0), |p| (p.as_ptr().cast_const(), len));
        Some(ReceivedFrame { at, there: len, len, slots: 1 })
    }

    /// Returns a frame that spans several slots, assembled up to the snapshot length; `None` if the frame's last slot
    /// has not arrived.
    #[cold]
    fn assemble(&mut self, snaplen: u32) -> Option<ReceivedFrame> {
        let at = self.ring;
        let mut whole = std::mem::take(&mut self.whole);
        whole.clear();
        let ring = self.port.rx().get(at)?;
        let mut len = 0u32;
        let mut k = 0;
        let mut last = false;
        while !last && k < ring.space() {
            let i = ring.at(k);
            let slot = ring.slot(i);
            let from = whole.len();
            let want = usize::from(slot.len).min((snaplen as usize).saturating_sub(from));
            whole.resize(from + want, 0);
            let got = ring.read(i, &mut whole[from..]);
            whole.truncate(from + got);
            len += u32::from(slot.len);
            k += 1;
            last = slot.flags & NS_MOREFRAG == 0;
        }
        let frame = ReceivedFrame { at: whole.as_ptr(), there: whole.len() as u32, len, slots: k };
        self.whole = whole;
        last.then_some(frame)
    }

    /// Records the current time for the frames that a sync has just found.
    fn stamp(&mut self, nano: bool) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        self.now = (now.tv_sec, if nano { now.tv_nsec } else { now.tv_nsec / 1000 });
    }
}

/// Returns the next frame that passes the filter; `None` if none has arrived. The frame belongs to the program until
/// the next call.
///
/// # Safety
/// No borrow of the handle's port is alive.
unsafe fn take(h: &Handle) -> Option<(PktHdr, *const u8)> {
    let snaplen = h.snaplen.get().cast_unsigned();
    // SAFETY: the caller's contract; the two borrows do not outlive this function, in which no code of the program
    // runs.
    let (a, filter) = unsafe { (h.active()?, &*h.filter.get()) };
    loop {
        a.release();
        let frame = a.next(snaplen)?;
        a.held = frame.slots;
        let mut caplen = frame.there.min(snaplen);
        if !filter.is_empty() && !frame.at.is_null() {
            // SAFETY: the filter was validated when it was set, and the frame's bytes are mapped. If the bytes change
            // while the filter runs, the filter may decide wrongly, but reads nothing beyond the first `there` bytes.
            let keep = unsafe { sys::bpf_filter(filter.as_ptr(), frame.at, frame.len, frame.there) };
            if keep == 0 {
                continue;
            }
            caplen = caplen.min(keep);
        }
        if frame.at.is_null() {
            continue;
        }
        h.received.set(h.received.get() + 1);
        let ts = timeval { tv_sec: a.now.0, tv_usec: a.now.1 };
        return Some((PktHdr { ts, caplen, len: frame.len }, frame.at));
    }
}

/// Passes available frames to `callback`: at most `most` frames, or all if `most` is 0 or negative. Returns the number
/// of frames that were passed.
fn deliver(h: &Handle, most: c_int, callback: PcapHandler, user: *mut u8) -> c_int {
    let mut count = 0;
    while most <= 0 || count < most {
        if is_breaking(h) {
            break;
        }
        // SAFETY: the borrows end within `take`.
        let Some((header, at)) = (unsafe { take(h) }) else { break };
        // SAFETY: the program guarantees that the callback is valid; the header and the frame live through the call.
        unsafe { callback(user, &raw const header, at) };
        count += 1;
    }
    // SAFETY: the borrow ends with this statement; the callback no longer uses its frame.
    if let Some(a) = unsafe { h.active() } {
        a.release();
    }
    count
}

/// Checks for frames and, if `wait` is set, waits for them. Returns 1 if frames are available, 0 after the time limit,
/// or an error.
fn ready(h: &Handle, wait: bool) -> c_int {
    let until = match h.timeout.get() {
        ms if ms > 0 => Some(Instant::now() + Duration::from_millis(ms.unsigned_abs().into())),
        _ => None,
    };
    loop {
        if take_break(h) {
            return sys::ERROR_BREAK;
        }
        // SAFETY: the borrow ends with this round of the loop.
        let Some(a) = (unsafe { h.active() }) else { return h.fail(sys::ERROR_NOT_ACTIVATED, "not activated") };
        a.release();
        if a.port.rx().iter().any(|r| r.space() > 0) {
            return 1;
        }
        let found = if wait {
            a.wait(until)
        } else if a.look() {
            WaitResult::Frames
        } else {
            WaitResult::TimedOut
        };
        match found {
            WaitResult::Frames if a.look() => {
                a.stamp(h.nano.get());
                return 1;
            }
            WaitResult::Frames | WaitResult::Interrupted => {}
            WaitResult::TimedOut => return 0,
            WaitResult::Closed => return h.fail(sys::ERROR, "the port was detached, or the daemon ended"),
        }
    }
}

fn settle(h: &Handle) {
    // SAFETY: the borrow ends with this statement.
    if let Some(a) = unsafe { h.active() } {
        a.settle();
    }
}

/// Implements `pcap_dispatch`: waits for frames, unless the handle is non-blocking, and passes them to `callback`.
/// Returns their number, 0 after the time limit, or an error.
pub fn dispatch(h: &Handle, most: c_int, callback: PcapHandler, user: *mut u8) -> c_int {
    let result = match ready(h, !h.nonblock.get()) {
        1 => deliver(h, most, callback, user),
        other => other,
    };
    settle(h);
    result
}

/// Implements `pcap_loop`: runs until `most` frames were passed (no limit if `most` is 0 or negative), `pcap_breakloop`
/// is called, or an error occurs. The handle's time limit does not end the loop.
pub fn run(h: &Handle, most: c_int, callback: PcapHandler, user: *mut u8) -> c_int {
    let mut left = most;
    let result = loop {
        match ready(h, true) {
            1 => {}
            0 => continue,
            error => break error,
        }
        let count = deliver(h, left, callback, user);
        if most > 0 {
            left -= count;
            if left <= 0 {
                break 0;
            }
        }
    };
    settle(h);
    result
}

/// Implements `pcap_next_ex`: stores a frame and returns 1, or returns 0 after the time limit, or an error.
pub fn next_ex(h: &Handle, header: *mut *mut PktHdr, data: *mut *const u8) -> c_int {
    // The loop continues if the filter has rejected all frames that were found.
    let result = loop {
        let found = ready(h, !h.nonblock.get());
        if found != 1 {
            break found;
        }
        // SAFETY: the borrows end within `take`.
        if let Some((head, at)) = unsafe { take(h) } {
            // SAFETY: the stored header is part of the handle and lives as long as the handle; the caller guarantees
            // that `header` and `data` are valid.
            unsafe {
                *h.header.get() = head;
                *header = h.header.get();
                *data = at;
            }
            break 1;
        }
        if h.nonblock.get() {
            break 0;
        }
    };
    settle(h);
    result
}
