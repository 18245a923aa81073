//! Indirect slots (netmap.h, `NS_INDIRECT`), whose frames are anywhere in the program's memory instead of in the slot's
//! buffer.
//!
//! netmap's kernel module copies these frames from `ptr`. The netvale daemon is another process, so this library copies
//! them, in the program's own sync, into the slots' buffers, and then publishes ordinary slots. The copy goes through
//! the kernel (process_vm_readv(2) on this process), which reports unmapped addresses; one call copies many frames.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};

use libc::{c_ulong, c_void, iovec};
use netvale_abi::slot::{NS_INDIRECT, NS_UNREADABLE};
use netvale_mem::RingMem;

use crate::user;

/// Maximum number of frames that one system call copies.
const AT_ONCE: usize = 64;
const NOTHING: iovec = iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };

/// Set once the system call has proved unavailable (because of a seccomp filter, or in the kernel), so that it is not
/// tried again.
static REFUSED: AtomicBool = AtomicBool::new(false);

/// Copies the frames of the indirect slots from `first` up to (not including) `end` into the slots' buffers. A slot
/// whose bytes cannot be read is marked with `NS_UNREADABLE`.
#[cold]
pub fn fetch(ring: &RingMem, first: u32, end: u32) {
    // The program's errno is restored afterwards, as a successful sync must leave it unchanged.
    let errno = crate::errno::get();
    let mut batch = MsgBatch { ring, slots: [0; AT_ONCE], from: [NOTHING; AT_ONCE], to: [NOTHING; AT_ONCE], len: 0 };
    let mut i = first;
    while i != end {
        batch.look_at(i);
        i = ring.next(i);
    }
    batch.copy();
    crate::errno::set(errno);
}

struct MsgBatch<'a> {
    ring: &'a RingMem,
    slots: [u32; AT_ONCE],
    /// Addresses in the program's memory.
    from: [iovec; AT_ONCE],
    /// Destinations in the slots' buffers, of the same lengths.
    to: [iovec; AT_ONCE],
    len: usize,
}

impl MsgBatch<'_> {
    fn look_at(&mut self, i: u32) {
        let slot = self.ring.slot(i);
        if slot.flags & NS_INDIRECT == 0 {
            return;
        }
        let len = usize::from(slot.len);
        // A slot with an invalid buffer or length is left unchanged: the daemon drops the slot's frame and counts the
        // drop.
        let Some(buf) = self.ring.within(slot.buf_idx, 0, len) else { return };
        if slot.ptr == 0 || len == 0 {
            return self.settle(i, slot.ptr != 0);
        }
        self.slots[self.len] = i;
        self.from[self.len] = iovec { iov_base: slot.ptr as *mut c_void, iov_len: len };
        self.to[self.len] = iovec { iov_base: buf.as_ptr().cast(), iov_len: len };
        let own = buf.as_ptr() as u64;
        if slot.ptr < own + u64::from(slot.len) && own < slot.ptr.saturating_add(slot.len.into()) {
            // If the frame overlaps the slot's own buffer, it is copied alone, through an intermediate buffer.
            let done = self.copy_alone(self.len);
            return self.settle(i, done);
        }
        self.len += 1;
        if self.len == AT_ONCE {
            self.copy();
        }
    }

    /// Copies all frames of the batch, and empties it.
    fn copy(&mut self) {
        let mut next = 0;
        while next < self.len {
            let mut copied = if REFUSED.load(Ordering::Relaxed) { 0 } else { self.call(next) };
            while next < self.len && copied >= self.to[next].iov_len {
                copied -= self.to[next].iov_len;
                self.settle(self.slots[next], true);
                next += 1;
            }
            if next < self.len {
                // The call stopped at this slot. Some memory, such as a device's, cannot be read with
                // process_vm_readv(2) but with write(2).
                let done = self.copy_alone(next);
                self.settle(self.slots[next], done);
                next += 1;
            }
        }
        self.len = 0;
    }

    /// Calls process_vm_readv(2) for the frames from index `next` on, which it copies in order. Returns the number of
    /// copied bytes.
    fn call(&self, next: usize) -> usize {
        let count = (self.len - next) as c_ulong;
        let me = rustix::process::getpid().as_raw_nonzero().get();
        // SAFETY: both arrays hold `count` elements from `next` on. Each element of `to` is a piece of a buffer in the
        // live mapping that `within` checked. The addresses in `from` may be arbitrary: the kernel reports unmapped
        // addresses.
        let copied = unsafe {
            libc::process_vm_readv(me, self.to[next..].as_ptr(), count, self.from[next..].as_ptr(), count, 0)
        };
        if copied < 0 && crate::errno::last() != rustix::io::Errno::FAULT {
            REFUSED.store(true, Ordering::Relaxed);
        }
        usize::try_from(copied).unwrap_or(0)
    }

    fn copy_alone(&self, k: usize) -> bool {
        let from = self.from[k];
        let to = self.to[k];
        // SAFETY: `to` is a piece of a buffer in the live mapping, with this length.
        unsafe { user::move_bytes(from.iov_base.cast(), to.iov_base.cast(), to.iov_len) }.is_ok()
    }

    /// Sets or clears `NS_UNREADABLE` in a slot. `NS_INDIRECT` stays set: a program may set it once and later only
    /// change `ptr`.
    fn settle(&self, i: u32, readable: bool) {
        let slot = self.ring.slot_word(i);
        let flags = if readable { slot.flags & !NS_UNREADABLE } else { slot.flags | NS_UNREADABLE };
        if flags != slot.flags {
            self.ring.set_len_flags(i, slot.len, flags);
        }
    }
}
