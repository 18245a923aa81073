//! AF_XDP sockets: one per queue, with the buffers of a netmap region as memory for frames.
//!
//! The region is registered unchanged, as memory with unaligned chunks, so a frame can begin at any buffer. A received
//! frame begins at its buffer's first byte, as netmap programs expect. The kernel reserves 256 bytes before each frame
//! for XDP programs; these are the last bytes of the previous buffer, which no frame reaches.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use netvale_mem::Mapping;
use rustix::io::Errno;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XdpOptionsFlags, XdpStatistics, XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

use crate::ring::XdpRing;

/// `XDP_PACKET_HEADROOM` (linux/bpf.h).
pub const HEADROOM: u64 = 256;
/// Lowest bit of the offset in an address (linux/if_xdp.h, `XSK_UNALIGNED_BUF_OFFSET_SHIFT`).
const OFFSET_SHIFT: u32 = 48;
/// `XDP_PKT_CONTD`: the frame continues in the next entry.
pub const CONTINUES: u32 = 1;
// Offsets at which mmap(2) maps the rings (linux/if_xdp.h).
const RX_RING: u64 = 0;
const TX_RING: u64 = 0x8000_0000;
const FILL_RING: u64 = 0x1_0000_0000;
const COMPLETION_RING: u64 = 0x1_8000_0000;

/// `struct xdp_desc`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct XdpDesc {
    /// Offset of the frame in the registered memory.
    pub addr: u64,
    /// Length in bytes.
    pub len: u32,
    /// [`CONTINUES`], or 0.
    pub options: u32,
}

impl XdpDesc {
    /// Offset of a received frame's first byte in the registered memory.
    #[inline]
    pub fn begin(&self) -> u64 {
        (self.addr & ((1 << OFFSET_SHIFT) - 1)) + (self.addr >> OFFSET_SHIFT)
    }
}

/// Layout of a region's buffers in the region's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferLayout {
    /// Offset of buffer 0 in bytes.
    pub first: u64,
    /// Distance between buffers in bytes.
    pub stride: u32,
    /// Number of buffers.
    pub count: u32,
}

impl BufferLayout {
    /// Offset of buffer `index` in bytes; `None` if there is no such buffer.
    #[inline]
    pub fn at(&self, index: u32) -> Option<u64> {
        (index < self.count).then(|| self.first + u64::from(index) * u64::from(self.stride))
    }

    /// Index of the buffer that contains `offset`; `None` if no buffer does.
    #[inline]
    pub fn index(&self, offset: u64) -> Option<u32> {
        let index = offset.checked_sub(self.first)? / u64::from(self.stride);
        u32::try_from(index).ok().filter(|&i| i < self.count)
    }

    /// The kernel's chunk size in bytes, headroom included. With this size, a frame never reaches the last 256 bytes of
    /// its buffer, which are the next buffer's headroom. `None` if buffers are smaller than the smallest chunk, 2,048
    /// bytes.
    #[inline]
    pub fn chunk(&self) -> Option<u32> {
        [4096, 2048].into_iter().find(|&chunk| u64::from(chunk) <= u64::from(self.stride))
    }

    /// Maximum length in bytes of a frame in one buffer; 0 if buffers are too small.
    pub fn longest(&self) -> u32 {
        self.chunk().map_or(0, |chunk| chunk - HEADROOM as u32)
    }
}

/// The interface and queue to which a socket is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueAddress {
    /// Index of the interface.
    pub ifindex: u32,
    /// Index of the queue.
    pub queue: u32,
}

/// The capabilities of a bound socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindResult {
    /// Whether the driver uses the region's buffers directly.
    pub zero_copy: bool,
    /// Whether a frame may span several buffers.
    pub multi_buffer: bool,
}

/// An AF_XDP socket.
#[derive(Debug)]
pub struct XdpSocket {
    fd: OwnedFd,
    entries: u32,
    /// Keeps the registered memory mapped while the kernel uses it.
    _memory: Arc<Mapping>,
}

/// The receiving half of a socket: filled buffers arrive in `rx`, empty buffers go to the kernel through `fill`.
#[derive(Debug)]
pub struct XdpReceiver {
    /// Filled buffers.
    pub rx: XdpRing<XdpDesc>,
    /// Empty buffers for the kernel.
    pub fill: XdpRing<u64>,
    /// The socket.
    pub socket: Arc<XdpSocket>,
}

/// The sending half of a socket.
#[derive(Debug)]
pub struct XdpSender {
    /// Frames to send.
    pub tx: XdpRing<XdpDesc>,
    /// Frames that were sent.
    pub completion: XdpRing<u64>,
    /// The socket.
    pub socket: Arc<XdpSocket>,
}

/// Maximum number of frames that one send(2) call sends in copy mode. With more frames per call, frames would be
/// evicted from the caches before they are received; with fewer frames, more calls are needed.
const SENT_AT_ONCE: u32 = 128;

/// The step that failed, and the kernel's error.
pub type XdpStepError = (&'static str, Errno);

/// Opens a socket with `entries` entries in each ring and its frames in the `buffers` of `memory`. The socket is not
/// bound yet, because older kernels (Linux 6.1) map rings only before the socket is bound.
///
/// Each socket registers the memory itself and does not depend on other sockets.
///
/// # Errors
/// The step that failed, and the kernel's error.
pub fn open(memory: &Arc<Mapping>, buffers: &BufferLayout, entries: u32) -> Result<Arc<XdpSocket>, XdpStepError> {
    let fd = rustix::net::socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None)
        .map_err(|e| ("open an AF_XDP socket", e))?;
    register(&fd, memory, buffers).map_err(|e| ("register the region's memory", e))?;
    let sized = sockopt::set_xdp_umem_fill_ring_size(&fd, entries)
        .and_then(|()| sockopt::set_xdp_umem_completion_ring_size(&fd, entries))
        .and_then(|()| sockopt::set_xdp_rx_ring_size(&fd, entries))
        .and_then(|()| sockopt::set_xdp_tx_ring_size(&fd, entries));
    sized.map_err(|e| ("create the socket's rings", e))?;
    send_more_at_once(&fd, entries.min(SENT_AT_ONCE));
    Ok(Arc::new(XdpSocket { fd, entries, _memory: Arc::clone(memory) }))
}

impl XdpSocket {
    /// Adopts a socket that another process opened, with `entries` entries in each ring, on `memory`.
    pub fn adopt(fd: OwnedFd, entries: u32, memory: &Arc<Mapping>) -> Arc<XdpSocket> {
        Arc::new(XdpSocket { fd, entries, _memory: Arc::clone(memory) })
    }

    /// Binds the socket to its queue, with frames that span several buffers if the kernel supports them (Linux 6.6). A
    /// bound socket can send, and receives the frames redirected to it.
    ///
    /// # Errors
    /// `EBUSY` if the queue has another socket; otherwise the kernel's error.
    pub fn bind(&self, address: QueueAddress) -> Result<BindResult, Errno> {
        let usual = SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
        let with = |more| {
            let place = SocketAddrXdp::new(usual | more, address.ifindex, address.queue);
            match rustix::net::bind(&self.fd, &place) {
                // Another program, which has the queue's other ring, has already bound the socket. The kernel checks
                // the flags before it returns this error, so the flags are supported.
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

    /// Whether the socket is bound to an existing queue; false once the interface is deleted.
    pub fn is_bound(&self) -> bool {
        let mut nothing = [0u8; 0];
        rustix::net::recv(&self.fd, &mut nothing[..], RecvFlags::DONTWAIT) != Err(Errno::NXIO)
    }

    /// Whether the driver uses the region's buffers directly.
    pub fn is_zero_copy(&self) -> bool {
        sockopt::xdp_options(&self.fd).is_ok_and(|o| o.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY))
    }

    /// Number of entries of each ring.
    pub fn entries(&self) -> u32 {
        self.entries
    }

    /// Maps the receiving half. At most one receiving half may exist at a time.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn receiver(self: &Arc<Self>) -> Result<XdpReceiver, Errno> {
        let at = sockopt::xdp_mmap_offsets(&self.fd)?;
        let rx = XdpRing::map(self.as_fd(), RX_RING, &at.rx, self.entries, false)?;
        let fill = XdpRing::map(self.as_fd(), FILL_RING, &at.fr, self.entries, true)?;
        Ok(XdpReceiver { rx, fill, socket: Arc::clone(self) })
    }

    /// Maps the sending half. At most one sending half may exist at a time.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn sender(self: &Arc<Self>) -> Result<XdpSender, Errno> {
        let at = sockopt::xdp_mmap_offsets(&self.fd)?;
        let tx = XdpRing::map(self.as_fd(), TX_RING, &at.tx, self.entries, true)?;
        let completion = XdpRing::map(self.as_fd(), COMPLETION_RING, &at.cr, self.entries, false)?;
        Ok(XdpSender { tx, completion, socket: Arc::clone(self) })
    }

    /// Returns the kernel's counters, for example of frames that found no buffer; `None` if the request fails.
    pub fn statistics(&self) -> Option<XdpStatistics> {
        sockopt::xdp_statistics(&self.fd).ok()
    }

    /// Makes the kernel send frames of the transmit ring. Frames that it cannot take now stay in the ring.
    ///
    /// # Errors
    /// `ENETDOWN` while the interface is down, `ENXIO` once the interface is deleted.
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

impl XdpSender {
    /// Publishes the filled entries. If the kernel must be woken, calls the kernel until it has taken all entries or a
    /// call takes none.
    ///
    /// # Errors
    /// `ENETDOWN` while the interface is down; the entries wait. `ENXIO` once the interface is deleted.
    #[inline]
    pub fn push(&mut self) -> Result<(), Errno> {
        self.push_while(|_| true)
    }

    /// Like [`XdpSender::push`], but stops when `goes_on` returns false. `goes_on` is called after each call to the
    /// kernel, with the number of entries that the kernel took. The remaining entries stay in the ring.
    ///
    /// # Errors
    /// As for [`XdpSender::push`].
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

/// Raises the limit of 32 frames per call in copy mode, if the kernel supports it (Linux 6.17,
/// `XDP_MAX_TX_SKB_BUDGET`).
fn send_more_at_once(fd: &OwnedFd, entries: u32) {
    const MAX_TX_SKB_BUDGET: libc::c_int = 9;
    let len = size_of_val(&entries) as libc::socklen_t;
    // SAFETY: the option takes a number of four bytes and copies it. An older kernel refuses it, without harm.
    unsafe {
        libc::setsockopt(fd.as_raw_fd(), libc::SOL_XDP, MAX_TX_SKB_BUDGET, std::ptr::from_ref(&entries).cast(), len);
    }
}

fn register(fd: &OwnedFd, memory: &Mapping, buffers: &BufferLayout) -> Result<(), Errno> {
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

impl AsFd for XdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
