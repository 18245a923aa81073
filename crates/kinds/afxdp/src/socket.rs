//! AF_XDP sockets: one per queue, with the buffers of a netmap region as its frames.
//!
//! The region is registered unchanged, as memory with unaligned chunks, so a frame may begin wherever a buffer does.
//! The kernel keeps 256 bytes before a received frame for XDP programs. They are the last ones of the previous buffer,
//! which no frame reaches: a frame begins at its own buffer's first byte, as netmap programs expect.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use netvale_mem::Mapping;
use rustix::io::Errno;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XdpOptionsFlags, XdpStatistics, XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

use crate::ring::Ring;

/// `XDP_PACKET_HEADROOM` (linux/bpf.h).
pub const HEADROOM: u64 = 256;
/// Bit of an address at which the offset begins (linux/if_xdp.h, `XSK_UNALIGNED_BUF_OFFSET_SHIFT`).
const OFFSET_SHIFT: u32 = 48;
/// `XDP_PKT_CONTD`: the frame continues in the next entry.
pub const CONTINUES: u32 = 1;
/// Offsets at which mmap(2) maps the rings (linux/if_xdp.h).
const RX_RING: u64 = 0;
const TX_RING: u64 = 0x8000_0000;
const FILL_RING: u64 = 0x1_0000_0000;
const COMPLETION_RING: u64 = 0x1_8000_0000;

/// `struct xdp_desc`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Desc {
    /// Offset of the frame in the registered memory.
    pub addr: u64,
    /// Length in bytes.
    pub len: u32,
    /// [`CONTINUES`], or 0.
    pub options: u32,
}

impl Desc {
    /// Offset of a received frame's first byte.
    #[inline]
    pub fn begin(&self) -> u64 {
        (self.addr & ((1 << OFFSET_SHIFT) - 1)) + (self.addr >> OFFSET_SHIFT)
    }
}

/// The buffers of a region: offset of the first, distance, number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffers {
    /// Offset of buffer 0 in bytes.
    pub first: u64,
    /// Distance between buffers in bytes.
    pub stride: u32,
    /// Number of buffers.
    pub count: u32,
}

impl Buffers {
    /// Offset of buffer `index`; `None` if there is no such buffer.
    #[inline]
    pub fn at(&self, index: u32) -> Option<u64> {
        (index < self.count).then(|| self.first + u64::from(index) * u64::from(self.stride))
    }

    /// Index of the buffer at `offset`.
    #[inline]
    pub fn index(&self, offset: u64) -> Option<u32> {
        let index = offset.checked_sub(self.first)? / u64::from(self.stride);
        u32::try_from(index).ok().filter(|&i| i < self.count)
    }

    /// The kernel's chunk size, headroom included: a frame then never reaches the last 256 bytes of its buffer, the
    /// next one's headroom. `None` if buffers are too small: chunks have at least 2,048 bytes.
    #[inline]
    pub fn chunk(&self) -> Option<u32> {
        [4096, 2048].into_iter().find(|&chunk| u64::from(chunk) <= u64::from(self.stride))
    }

    /// Longest frame, in bytes, that fits one buffer.
    pub fn longest(&self) -> u32 {
        self.chunk().map_or(0, |chunk| chunk - HEADROOM as u32)
    }
}

/// The queue that a socket is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueAddress {
    /// The interface.
    pub ifindex: u32,
    /// Number of the queue.
    pub queue: u32,
}

/// The result of binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindResult {
    /// Whether the driver uses the region's buffers directly.
    pub zero_copy: bool,
    /// Whether frames may have several buffers.
    pub multi_buffer: bool,
}

/// A socket.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    entries: u32,
    /// The registered memory, mapped while the kernel uses it.
    _memory: Arc<Mapping>,
}

/// The receiving half: filled buffers arrive, empty ones leave.
#[derive(Debug)]
pub struct Receiver {
    /// Filled buffers.
    pub rx: Ring<Desc>,
    /// Empty buffers for the kernel.
    pub fill: Ring<u64>,
    /// The socket.
    pub socket: Arc<Socket>,
}

/// The sending half.
#[derive(Debug)]
pub struct Sender {
    /// Frames to send.
    pub tx: Ring<Desc>,
    /// Sent frames.
    pub completion: Ring<u64>,
    /// The socket.
    pub socket: Arc<Socket>,
}

/// Number of frames sent by one call. More would leave the caches before they are received; fewer cost more calls.
const SENT_AT_ONCE: u32 = 128;

/// The step that failed, and the kernel's error.
pub type Failed = (&'static str, Errno);

/// Opens a socket with `entries` entries in each ring, on `memory` with its `buffers`. It is not bound yet: older
/// kernels (Linux 6.1) map rings only before that.
///
/// Each socket registers the memory for itself and does not depend on other sockets.
///
/// # Errors
/// The step that failed, and the kernel's error.
pub fn open(memory: &Arc<Mapping>, buffers: &Buffers, entries: u32) -> Result<Arc<Socket>, Failed> {
    let fd = rustix::net::socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None)
        .map_err(|e| ("open an AF_XDP socket", e))?;
    register(&fd, memory, buffers).map_err(|e| ("register the region's memory", e))?;
    let sized = sockopt::set_xdp_umem_fill_ring_size(&fd, entries)
        .and_then(|()| sockopt::set_xdp_umem_completion_ring_size(&fd, entries))
        .and_then(|()| sockopt::set_xdp_rx_ring_size(&fd, entries))
        .and_then(|()| sockopt::set_xdp_tx_ring_size(&fd, entries));
    sized.map_err(|e| ("make the socket's rings", e))?;
    send_more_at_once(&fd, entries.min(SENT_AT_ONCE));
    Ok(Arc::new(Socket { fd, entries, _memory: Arc::clone(memory) }))
}

impl Socket {
    /// Takes over a socket that another process has opened, with `entries` entries in each ring, on `memory`.
    pub fn adopt(fd: OwnedFd, entries: u32, memory: &Arc<Mapping>) -> Arc<Socket> {
        Arc::new(Socket { fd, entries, _memory: Arc::clone(memory) })
    }

    /// Binds the socket to its queue, with frames of several buffers if the kernel supports them (Linux 6.6). From then
    /// on, frames pass.
    ///
    /// # Errors
    /// `EBUSY` if the queue has another socket; otherwise the kernel's error.
    pub fn bind(&self, address: QueueAddress) -> Result<BindResult, Errno> {
        let usual = SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
        let with = |more| {
            let place = SocketAddrXdp::new(usual | more, address.ifindex, address.queue);
            match rustix::net::bind(&self.fd, &place) {
                // The program with the queue's other ring was faster. The kernel checks the flags before that.
                Err(Errno::BUSY) if self.is_bound() => Ok(()),
                bound => bound,
            }
        };
        let multi_buffer = match with(SocketAddrXdpFlags::XDP_USE_SG) {
            Err(Errno::INVAL | Errno::OPNOTSUPP) => with(SocketAddrXdpFlags::empty()).map(|()| false),
            bound => bound.map(|()| true),
        }?;
        Ok(BindResult { zero_copy: self.is_zero_copy(), multi_buffer })
    }

    /// Whether the socket is bound to an existing queue: false once the interface is gone.
    pub fn is_bound(&self) -> bool {
        let mut nothing = [0u8; 0];
        rustix::net::recv(&self.fd, &mut nothing[..], RecvFlags::DONTWAIT) != Err(Errno::NXIO)
    }

    /// Whether the driver uses the buffers directly.
    pub fn is_zero_copy(&self) -> bool {
        sockopt::xdp_options(&self.fd).is_ok_and(|o| o.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY))
    }

    /// Entries of each ring.
    pub fn entries(&self) -> u32 {
        self.entries
    }

    /// Maps the receiving half, at most one at a time.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn receiver(self: &Arc<Self>) -> Result<Receiver, Errno> {
        let at = sockopt::xdp_mmap_offsets(&self.fd)?;
        let rx = Ring::map(self.as_fd(), RX_RING, &at.rx, self.entries, false)?;
        let fill = Ring::map(self.as_fd(), FILL_RING, &at.fr, self.entries, true)?;
        Ok(Receiver { rx, fill, socket: Arc::clone(self) })
    }

    /// Maps the sending half, at most one at a time.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn sender(self: &Arc<Self>) -> Result<Sender, Errno> {
        let at = sockopt::xdp_mmap_offsets(&self.fd)?;
        let tx = Ring::map(self.as_fd(), TX_RING, &at.tx, self.entries, true)?;
        let completion = Ring::map(self.as_fd(), COMPLETION_RING, &at.cr, self.entries, false)?;
        Ok(Sender { tx, completion, socket: Arc::clone(self) })
    }
}

impl Sender {
    /// Publishes the entries and calls the kernel while it takes some: each call takes a part of them.
    ///
    /// # Errors
    /// `ENETDOWN` while the interface is down: the entries wait. `ENXIO` once it is gone.
    #[inline]
    pub fn push(&mut self) -> Result<(), Errno> {
        self.push_while(|_| true)
    }

    /// The same while `goes_on`, called with the number of entries of each call, returns true. The rest waits.
    ///
    /// # Errors
    /// As for [`Sender::push`].
    #[inline]
    pub fn push_while(&mut self, mut goes_on: impl FnMut(u32) -> bool) -> Result<(), Errno> {
        self.tx.publish();
        let mut left = self.tx.pending();
        while left > 0 && self.tx.needs_wakeup() {
            let kicked = self.socket.kick();
            let now = self.tx.pending();
            if now == left {
                return kicked;
            }
            if !goes_on(left - now) {
                break;
            }
            left = now;
        }
        Ok(())
    }
}

/// For drivers with copies, raises the 32 frames of one call, if the kernel supports this option (Linux 6.17,
/// `XDP_MAX_TX_SKB_BUDGET`).
fn send_more_at_once(fd: &OwnedFd, entries: u32) {
    const MAX_TX_SKB_BUDGET: libc::c_int = 9;
    let len = size_of_val(&entries) as libc::socklen_t;
    // SAFETY: the option takes a number of four bytes and copies it. An older kernel refuses it, without harm.
    unsafe {
        libc::setsockopt(fd.as_raw_fd(), libc::SOL_XDP, MAX_TX_SKB_BUDGET, std::ptr::from_ref(&entries).cast(), len);
    }
}

fn register(fd: &OwnedFd, memory: &Mapping, buffers: &Buffers) -> Result<(), Errno> {
    let region = XdpUmemReg {
        addr: memory.start().as_ptr() as u64,
        len: memory.len() as u64,
        chunk_size: buffers.chunk().ok_or(Errno::INVAL)?,
        headroom: 0,
        flags: XdpUmemRegFlags::XDP_UMEM_UNALIGNED_CHUNK_FLAG,
        tx_metadata_len: 0,
    };
    sockopt::set_xdp_umem_reg(fd, region)
}

impl Socket {
    /// The kernel's counters: frames that found no buffer, and so on.
    pub fn statistics(&self) -> Option<XdpStatistics> {
        sockopt::xdp_statistics(&self.fd).ok()
    }

    /// Makes the kernel send frames of the transmit ring. Frames that it cannot take now stay there.
    ///
    /// # Errors
    /// `ENETDOWN` while the interface is down, `ENXIO` once it is gone.
    pub fn kick(&self) -> Result<(), Errno> {
        match rustix::net::send(&self.fd, &[], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Err(why @ (Errno::NETDOWN | Errno::NXIO)) => Err(why),
            _ => Ok(()),
        }
    }

    /// Makes the kernel check the fill ring again.
    #[inline]
    pub fn poke(&self) {
        let mut nothing = [0u8; 0];
        let _ = rustix::net::recv(&self.fd, &mut nothing[..], RecvFlags::DONTWAIT);
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
