//! A vfio-user client for simulated guests. The client gives a device access to memory and an interrupt, and accesses
//! the device's registers.

use std::io::{self, Read, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::net::SendFlags;

use crate::dma::WindowPlace;
use crate::wire::{HEADER, MAX_MESSAGE, NO_REPLY, VfioHeader, WireWriter, command};

/// Maximum wait for an answer.
const LIMIT: Duration = Duration::from_secs(10);
/// `VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER`.
const RING: u32 = 1 << 2 | 1 << 5;

/// A connection to a vfio-user server.
#[derive(Debug)]
pub struct VfioUserClient {
    socket: UnixStream,
    next: u16,
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl VfioUserClient {
    /// Connects, and negotiates the version.
    ///
    /// # Errors
    /// An error of the socket, or the error number with which the server refuses.
    pub fn connect(path: &Path) -> io::Result<VfioUserClient> {
        let socket = UnixStream::connect(path)?;
        socket.set_read_timeout(Some(LIMIT))?;
        let mut this = VfioUserClient { socket, next: 0 };
        this.ask(command::VERSION, &[0, 0, 1, 0], &[])?;
        Ok(this)
    }

    /// Gives the device DMA access to a part of the file `fd`, at an address of the guest (`DMA_MAP`).
    ///
    /// # Errors
    /// The errors of [`VfioUserClient::connect`].
    pub fn map(&mut self, place: WindowPlace, fd: BorrowedFd<'_>) -> io::Result<()> {
        let mut w = WireWriter::default();
        w.u32(32).u32(place.flags).u64(place.offset).u64(place.address).u64(place.size);
        self.ask(command::DMA_MAP, &w.0, &[fd]).map(|_| ())
    }

    /// Withdraws the device's access to the guest's memory at `address` (`DMA_UNMAP`).
    ///
    /// # Errors
    /// The errors of [`VfioUserClient::connect`].
    pub fn unmap(&mut self, address: u64, size: u64) -> io::Result<()> {
        let mut w = WireWriter::default();
        w.u32(24).u32(0).u64(address).u64(size);
        self.ask(command::DMA_UNMAP, &w.0, &[]).map(|_| ())
    }

    /// Connects vector 0 of an interrupt kind (see [`crate::irqs`]) to `bell`, an eventfd.
    ///
    /// # Errors
    /// The errors of [`VfioUserClient::connect`].
    pub fn interrupt(&mut self, kind: usize, bell: BorrowedFd<'_>) -> io::Result<()> {
        let mut w = WireWriter::default();
        w.u32(20).u32(RING).u32(kind as u32).u32(0).u32(1);
        self.ask(command::DEVICE_SET_IRQS, &w.0, &[bell]).map(|_| ())
    }

    /// Reads `into.len()` bytes at offset `at` of a region into `into`.
    ///
    /// # Errors
    /// The errors of [`VfioUserClient::connect`].
    pub fn read(&mut self, region: u32, at: u64, into: &mut [u8]) -> io::Result<()> {
        let mut w = WireWriter::default();
        w.u64(at).u32(region).u32(into.len() as u32);
        let answer = self.ask(command::REGION_READ, &w.0, &[])?;
        let data = answer.get(16..).filter(|data| data.len() == into.len()).ok_or_else(|| bad("short answer"))?;
        into.copy_from_slice(data);
        Ok(())
    }

    /// Writes to a region at offset `at` without waiting for an answer, as hypervisors do for memory BARs.
    ///
    /// # Errors
    /// An error of the socket.
    pub fn post(&mut self, region: u32, at: u64, data: &[u8]) -> io::Result<()> {
        let mut w = WireWriter::default();
        w.u64(at).u32(region).u32(data.len() as u32).0.extend_from_slice(data);
        self.send(command::REGION_WRITE, NO_REPLY, &w.0, &[]).map(|_| ())
    }

    /// Writes to a region at offset `at` and waits for the answer.
    ///
    /// # Errors
    /// The errors of [`VfioUserClient::connect`].
    pub fn write(&mut self, region: u32, at: u64, data: &[u8]) -> io::Result<()> {
        let mut w = WireWriter::default();
        w.u64(at).u32(region).u32(data.len() as u32).0.extend_from_slice(data);
        self.ask(command::REGION_WRITE, &w.0, &[]).map(|_| ())
    }

    fn send(&mut self, command: u16, flags: u32, payload: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<u16> {
        self.next = self.next.wrapping_add(1);
        let bytes = VfioHeader { id: self.next, command, flags, ..VfioHeader::default() }.question(payload);
        let sent = netvale_fdio::send(&self.socket, &bytes, fds, SendFlags::empty())?;
        self.socket.write_all(bytes.get(sent..).unwrap_or_default())?;
        Ok(self.next)
    }

    fn ask(&mut self, command: u16, payload: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<Vec<u8>> {
        let id = self.send(command, 0, payload, fds)?;
        let mut head = [0; HEADER];
        self.socket.read_exact(&mut head)?;
        let header = VfioHeader::parse(&head);
        let size = (header.size as usize).checked_sub(HEADER).filter(|n| *n <= MAX_MESSAGE);
        let mut payload = vec![0; size.ok_or_else(|| bad("an answer without a length"))?];
        self.socket.read_exact(&mut payload)?;
        if header.id != id || header.is_command() {
            return Err(bad("an answer to another request"));
        }
        match header.errno() {
            0 => Ok(payload),
            errno => Err(io::Error::from_raw_os_error(errno.cast_signed())),
        }
    }
}
