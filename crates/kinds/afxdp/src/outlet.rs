//! Sends frames in slots to a descriptor: through a TAP into the stack, or to the wire, bypassing all hooks.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use netvale_abi::slot::{NETMAP_MAX_FRAGS as MAX_FRAGS, NS_MOREFRAG};
use netvale_mem::drops::DropReason;
use netvale_mem::ring::RingMem;
use rustix::io::Errno;

/// Length in bytes of the virtio-net header, all zeros, before each frame on the TAP of host rings.
pub const TAP_HEADER: usize = 12;

/// A descriptor to which frames in slots are written.
#[derive(Clone, Debug)]
pub struct Outlet {
    fd: Arc<OwnedFd>,
    /// Length in bytes of a header of zeros before each frame.
    header: usize,
}

/// The result of sending a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendResult {
    /// The frame was sent; it had this number of slots and this number of bytes.
    Yes(u32, u64),
    /// The frame, which had this number of slots, was dropped for this reason.
    No(u32, DropReason),
    /// The frame's last slot is not published yet.
    Incomplete,
    /// The descriptor cannot take the frame now; the caller may retry later.
    Full,
}

impl Outlet {
    /// Creates the outlet to the TAP of host rings.
    pub fn tap(fd: Arc<OwnedFd>) -> Outlet {
        Outlet { fd, header: TAP_HEADER }
    }

    /// Creates the outlet to the wire of the interface `index`, which bypasses the stack's queueing disciplines and
    /// hooks.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`.
    pub fn wire(index: u32) -> Result<Outlet, Errno> {
        let last = || Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO);
        // Protocol 0: the socket receives nothing.
        // SAFETY: no pointers.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0) };
        if fd < 0 {
            return Err(last());
        }
        // SAFETY: the descriptor is new, and nothing else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let on: libc::c_int = 1;
        let at = std::ptr::from_ref(&on).cast();
        let len = size_of_val(&on) as libc::socklen_t;
        // SAFETY: the option takes a number and copies it.
        let set = unsafe { libc::setsockopt(fd.as_raw_fd(), libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, at, len) };
        // SAFETY: zeros are a valid sockaddr_ll.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_ifindex = index.cast_signed();
        let at = std::ptr::from_ref(&address).cast();
        let len = size_of_val(&address) as libc::socklen_t;
        // SAFETY: an address of that family and length; the kernel copies it.
        let bound = unsafe { libc::bind(fd.as_raw_fd(), at, len) };
        if set < 0 || bound < 0 {
            return Err(last());
        }
        Ok(Outlet { fd: Arc::new(fd), header: 0 })
    }

    /// Sends the frame that begins at slot `at` of a ring; from that slot on, `left` slots are available.
    pub fn send(&self, ring: &RingMem, at: u32, left: u32) -> SendResult {
        let header = [0u8; TAP_HEADER];
        let mut iov = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; 1 + MAX_FRAGS];
        iov[0] = libc::iovec { iov_base: header.as_ptr().cast_mut().cast(), iov_len: self.header };
        let mut i = at;
        let mut used = 0usize;
        let mut bytes = 0u64;
        let mut wrong = None;
        loop {
            if used as u32 == left {
                return SendResult::Incomplete;
            }
            let slot = ring.slot_word(i);
            let buf = ring.buf(slot.buf_idx).filter(|_| u32::from(slot.len) <= ring.buf_size());
            match (buf, iov.get_mut(used + 1)) {
                (Some(buf), Some(place)) => {
                    *place = libc::iovec { iov_base: buf.as_ptr().cast(), iov_len: slot.len.into() };
                }
                (None, _) => wrong = Some(DropReason::BadBuffer),
                (_, None) => wrong = Some(DropReason::EndlessFrame),
            }
            used += 1;
            bytes += u64::from(slot.len);
            i = ring.next(i);
            // Do not wait for the end of a frame that is already too long.
            if slot.flags & NS_MOREFRAG == 0 || used > MAX_FRAGS {
                break;
            }
        }
        match wrong {
            Some(why) => SendResult::No(used as u32, why),
            None => self.write(&iov[..=used], used as u32, bytes),
        }
    }

    fn write(&self, iov: &[libc::iovec], slots: u32, bytes: u64) -> SendResult {
        // SAFETY: our own header, and buffers of a region that the caller keeps mapped; the kernel copies them, and
        // nothing else reads them.
        let sent = unsafe { libc::writev(self.fd.as_raw_fd(), iov.as_ptr(), iov.len() as i32) };
        if sent >= 0 {
            return SendResult::Yes(slots, bytes);
        }
        match Errno::from_io_error(&std::io::Error::last_os_error()) {
            Some(Errno::AGAIN | Errno::NOBUFS) => SendResult::Full,
            _ => SendResult::No(slots, DropReason::Device),
        }
    }
}
