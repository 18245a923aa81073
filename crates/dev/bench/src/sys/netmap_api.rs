//! A program in netmap's style: open, ioctl, mmap and poll, through the C library and any preloaded library.
#![allow(unsafe_code)]

use std::hint::black_box;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{from_mut, null_mut};

use netvale_abi::ioctl::NIOCCTRL;
use netvale_abi::nmreq::{NETMAP_REQ_REGISTER, NR_REG_ALL_NIC, NmreqHeader, NmreqRegister};
use netvale_abi::{NETMAP_API, NetmapIf, NetmapRing, NetmapSlot};
use netvale_portspec::PortName;

use crate::error::{BenchError, Result};
use crate::frames::LINE;

/// A registered and mapped port with one ring in each direction.
pub struct ApiPort {
    fd: OwnedFd,
    nifp: *const NetmapIf,
}

fn check(result: i64, what: &str) -> Result<i64> {
    if result == -1 { Err(BenchError::io(what)(std::io::Error::last_os_error())) } else { Ok(result) }
}

impl ApiPort {
    /// Registers the port `name`, with rings of `slots` slots (0: netmap's default), and maps its region.
    pub fn open(name: &str, slots: u32) -> Result<ApiPort> {
        let port = PortName::parse(name).map_err(|e| BenchError::Usage(e.to_string()))?;
        // SAFETY: the argument is a C string.
        let fd = unsafe { libc::open(c"/dev/netmap".as_ptr(), libc::O_RDWR) };
        check(fd.into(), "opening /dev/netmap")?;
        // SAFETY: the descriptor was just opened, and no other code has it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let nr_tx_slots = slots;
        let nr_rx_slots = slots;
        let mut reg = NmreqRegister { nr_mode: NR_REG_ALL_NIC, nr_tx_slots, nr_rx_slots, ..NmreqRegister::default() };
        let mut header = NmreqHeader {
            nr_version: NETMAP_API as u16,
            nr_reqtype: NETMAP_REQ_REGISTER,
            nr_name: port.nr_name_field(),
            nr_body: from_mut(&mut reg) as u64,
            ..NmreqHeader::default()
        };
        // SAFETY: the structures exist for the duration of the call.
        let done = unsafe { libc::ioctl(fd.as_raw_fd(), NIOCCTRL.into(), from_mut(&mut header)) };
        check(done.into(), "registering")?;
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let len = reg.nr_memsize as usize;
        // SAFETY: the mapping is new, and replaces no other.
        let base = unsafe { libc::mmap(null_mut(), len, prot, libc::MAP_SHARED, fd.as_raw_fd(), 0) };
        check(base as i64, "mapping the region")?;
        // SAFETY: the registration returned the offset of the netmap_if in the region.
        let nifp = unsafe { base.cast::<u8>().add(reg.nr_offset as usize).cast() };
        Ok(ApiPort { fd, nifp })
    }

    /// Returns the ring whose offset is the `index`-th in the netmap_if.
    fn ring(&self, index: usize) -> ApiRing {
        // SAFETY: the offsets follow the structure (netmap.h, NETMAP_TXRING), and point to rings in the region.
        unsafe {
            let offset = self.nifp.add(1).cast::<isize>().add(index).read();
            ApiRing { ring: self.nifp.cast::<u8>().offset(offset).cast_mut().cast() }
        }
    }

    /// Returns the ring for sending.
    pub fn tx(&self) -> ApiRing {
        self.ring(0)
    }

    /// Returns the ring for receiving, which follows the tx rings of the NIC and the host.
    pub fn rx(&self) -> ApiRing {
        // SAFETY: the structure belongs to the host, which does not change it.
        let (nic, host) = unsafe { ((*self.nifp).ni_tx_rings, (*self.nifp).ni_host_tx_rings) };
        self.ring((nic + host) as usize)
    }

    /// Calls poll(2), which syncs, for up to a second.
    pub fn poll(&self, events: i16) -> Result<()> {
        let mut one = libc::pollfd { fd: self.fd.as_raw_fd(), events, revents: 0 };
        // SAFETY: one structure, which exists for the duration of the call.
        check(unsafe { libc::poll(&raw mut one, 1, 1000) }.into(), "waiting at the port").map(drop)
    }
}

/// A ring, used as netmap's macros use it.
pub struct ApiRing {
    ring: *mut NetmapRing,
}

impl ApiRing {
    /// Returns the number of slots from `head` up to `tail` (nm_ring_space).
    #[inline]
    pub fn space(&self) -> u32 {
        // SAFETY: the header of a mapped ring; the read is volatile because the host writes `tail`.
        let (head, tail, n) =
            unsafe { ((*self.ring).head, (&raw const (*self.ring).tail).read_volatile(), (*self.ring).num_slots) };
        if tail >= head { tail - head } else { tail + n - head }
    }

    /// Writes `bytes` to the buffers of all free slots.
    pub fn fill(&mut self, bytes: &[u8]) {
        let count = self.space();
        // The frames are not sent: head does not move.
        self.each(count, |_, buffer| {
            // SAFETY: frames of the bench are shorter than a buffer.
            unsafe { buffer.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
        });
    }

    /// Releases the next `count` slots as frames of `len` bytes, after writing `line` to the beginning of each frame.
    /// The next poll sends the frames.
    #[inline]
    pub fn send(&mut self, count: u32, len: u16, line: Option<&[u8]>) {
        let head = self.each(count, |slot, buffer| {
            if let Some(line) = line {
                // SAFETY: frames of the bench are shorter than a buffer, and `line` is the beginning of a frame.
                unsafe { buffer.copy_from_nonoverlapping(line.as_ptr(), line.len()) };
            }
            slot.len = len;
            slot.flags = 0;
        });
        self.advance_to(head);
    }

    /// Takes the next `count` frames and, if `touch` is true, reads the first cache line of each. Returns the number of
    /// frames whose length is not `len`.
    #[inline]
    pub fn receive(&mut self, count: u32, len: u32, touch: bool) -> u64 {
        let mut wrong = 0;
        let head = self.each(count, |slot, buffer| {
            wrong += u64::from(u32::from(slot.len) != len);
            if touch {
                // SAFETY: a buffer is longer than a cache line.
                black_box(unsafe { buffer.cast::<[u8; LINE]>().read() });
            }
        });
        self.advance_to(head);
        wrong
    }

    /// Calls `f` with each of the next `count` slots and its buffer. Returns the index of the slot after them.
    #[inline]
    fn each(&mut self, count: u32, mut f: impl FnMut(&mut NetmapSlot, *mut u8)) -> u32 {
        // SAFETY: the slots between head and tail belong to the program, and so do their buffers (netmap.h,
        // NETMAP_BUF); the other side is the bench's own daemon.
        unsafe {
            let ring = self.ring;
            let slots = ring.add(1).cast::<NetmapSlot>();
            let pool = ring.cast::<u8>().offset((*ring).buf_ofs as isize);
            let mut head = (*ring).head;
            let n = (*ring).num_slots;
            let size = (*ring).nr_buf_size as usize;
            for _ in 0..count {
                let slot = &mut *slots.add(head as usize);
                f(slot, pool.add(slot.buf_idx as usize * size));
                head = if head + 1 == n { 0 } else { head + 1 };
            }
            head
        }
    }

    fn advance_to(&mut self, head: u32) {
        // SAFETY: these fields of a mapped ring belong to the application.
        unsafe { ((*self.ring).head, (*self.ring).cur) = (head, head) };
    }
}
