//! A vfio-user client for simulated guests: memory, registers, an interrupt.

use std::io::{self, Read, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::net::SendFlags;

use crate::dma::Place;
use crate::wire::{HEADER, Header, MAX_MESSAGE, NO_REPLY, Writer, command};

/// The longest wait for an answer.
const LIMIT: Duration = Duration::from_secs(10);
/// Connects an interrupt's trigger to an eventfd (linux/vfio.h).
const RING: u32 = 1 << 2 | 1 << 5;

/// A connection to a vfio-user server.
#[derive(Debug)]
pub struct Client {
    socket: UnixStream,
    next: u16,
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl Client {
    /// Connects, and negotiates the version.
    ///
    /// # Errors
    /// The socket fails, or the server refuses.
    pub fn connect(path: &Path) -> io::Result<Client> {
        let socket = UnixStream::connect(path)?;
        socket.set_read_timeout(Some(LIMIT))?;
        let mut this = Client { socket, next: 0 };
        this.ask(command::VERSION, &[0, 0, 1, 0], &[])?;
        Ok(this)
    }

    /// Gives the device a window of memory.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn map(&mut self, place: Place, fd: BorrowedFd<'_>) -> io::Result<()> {
        let mut w = Writer::default();
        w.u32(32).u32(place.flags).u64(place.offset).u64(place.address).u64(place.size);
        self.ask(command::DMA_MAP, &w.0, &[fd]).map(|_| ())
    }

    /// Removes a window of memory.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn unmap(&mut self, address: u64, size: u64) -> io::Result<()> {
        let mut w = Writer::default();
        w.u32(24).u32(0).u64(address).u64(size);
        self.ask(command::DMA_UNMAP, &w.0, &[]).map(|_| ())
    }

    /// Makes the first interrupt of a kind ring `bell`.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn interrupt(&mut self, kind: usize, bell: BorrowedFd<'_>) -> io::Result<()> {
        let mut w = Writer::default();
        w.u32(20).u32(RING).u32(kind as u32).u32(0).u32(1);
        self.ask(command::DEVICE_SET_IRQS, &w.0, &[bell]).map(|_| ())
    }

    /// Reads from a region.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn read(&mut self, region: u32, at: u64, into: &mut [u8]) -> io::Result<()> {
        let mut w = Writer::default();
        w.u64(at).u32(region).u32(into.len() as u32);
        let answer = self.ask(command::REGION_READ, &w.0, &[])?;
        let data = answer.get(16..).filter(|data| data.len() == into.len()).ok_or_else(|| bad("a short answer"))?;
        into.copy_from_slice(data);
        Ok(())
    }

    /// Posts a write to a region, as hypervisors write memory: without waiting for an answer.
    ///
    /// # Errors
    /// The socket fails.
    pub fn post(&mut self, region: u32, at: u64, data: &[u8]) -> io::Result<()> {
        let mut w = Writer::default();
        w.u64(at).u32(region).u32(data.len() as u32).0.extend_from_slice(data);
        self.send(command::REGION_WRITE, NO_REPLY, &w.0, &[]).map(|_| ())
    }

    /// Writes to a region.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn write(&mut self, region: u32, at: u64, data: &[u8]) -> io::Result<()> {
        let mut w = Writer::default();
        w.u64(at).u32(region).u32(data.len() as u32).0.extend_from_slice(data);
        self.ask(command::REGION_WRITE, &w.0, &[]).map(|_| ())
    }

    fn send(&mut self, command: u16, flags: u32, payload: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<u16> {
        self.next = self.next.wrapping_add(1);
        let bytes = Header { id: self.next, command, flags, ..Header::default() }.question(payload);
        let sent = netvale_fdio::send(&self.socket, &bytes, fds, SendFlags::empty())?;
        self.socket.write_all(bytes.get(sent..).unwrap_or_default())?;
        Ok(self.next)
    }

    fn ask(&mut self, command: u16, payload: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<Vec<u8>> {
        let id = self.send(command, 0, payload, fds)?;
        let mut head = [0; HEADER];
        self.socket.read_exact(&mut head)?;
        let header = Header::parse(&head);
        let size = (header.size as usize).checked_sub(HEADER).filter(|n| *n <= MAX_MESSAGE);
        let mut payload = vec![0; size.ok_or_else(|| bad("an answer of no length"))?];
        self.socket.read_exact(&mut payload)?;
        if header.id != id || header.is_command() {
            return Err(bad("an answer to another question"));
        }
        match header.errno() {
            0 => Ok(payload),
            errno => Err(io::Error::from_raw_os_error(errno.cast_signed())),
        }
    }
}
