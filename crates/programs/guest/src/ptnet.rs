//! The guest's side of a ptnet device, without a kernel driver. A program on the host may act as the guest, for tests
//! and measurements.

use std::any::Any;
use std::mem::offset_of;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use netvale_abi::ptnet::{COMMAND_START, FEATURE_VNET_HDR, HEADER_BYTES, PtnetHeader, word};
use netvale_control::attach::AttachReply;
use netvale_mem::Mapping;
use netvale_mem::notify::{Doorbell, nap};
use netvale_mem::words::Words;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType};

use crate::GuestError;

/// Time limit for an answer from the host.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Number of messages that precede the messages with doorbells: version, own peer number, memory.
const FIRST: usize = 3;

macro_rules! at {
    ($field:ident) => {
        word(offset_of!(PtnetHeader, $field))
    };
}

/// The guest's side of a device without a driver: its memory and doorbells. Nothing prevents invalid writes to the
/// memory.
pub struct BareGuest {
    /// The connection to the port, or the PCI function, which must stay open.
    pub(crate) keep: Arc<dyn Any + Send + Sync>,
    pub(crate) map: Arc<Mapping>,
    pub(crate) header: Words,
    pub(crate) doorbells: Vec<Doorbell>,
    pub(crate) vectors: Vec<Doorbell>,
}

impl BareGuest {
    /// Connects to the ptnet port that listens at `path`, in the guest's place.
    ///
    /// # Errors
    /// [`GuestError::System`] if a step fails; [`GuestError::Device`] if the other end is not a ptnet port.
    pub fn connect(path: &Path) -> Result<BareGuest, GuestError> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let connection = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
        let connection = Arc::new(connection.map_err(GuestError::system("create a socket"))?);
        let address = SocketAddrUnix::new(path).map_err(GuestError::system("use the path as a socket address"))?;
        rustix::net::connect(&connection, &address).map_err(GuestError::system("connect to the ptnet port"))?;
        let first = (0..FIRST).map(|_| recv(&connection)).collect::<Result<Vec<_>, _>>()?;
        let memory = first.into_iter().find_map(|(_, fd)| fd).ok_or(GuestError::Device("the host passed no memory"))?;
        let len = rustix::fs::fstat(&memory).map_err(GuestError::system("get the size of the memory"))?.st_size;
        let len = usize::try_from(len).map_err(|_| GuestError::Device("memory too large for this machine"))?;
        let map = Arc::new(Mapping::map(memory.as_fd(), len).map_err(GuestError::system("map the memory"))?);
        let (header, count) = header(&map)?;
        let bells = || (0..count).map(|_| bell(&connection)).collect::<Result<Vec<_>, _>>();
        let doorbells = bells()?;
        let vectors = bells()?;
        Ok(BareGuest { keep: connection, map, header, doorbells, vectors })
    }

    /// Returns the connection to the port, over which a guest sends nothing; `None` for a PCI device.
    pub fn connection(&self) -> Option<&OwnedFd> {
        self.keep.downcast_ref()
    }

    /// Returns the device's memory.
    pub fn memory(&self) -> &Arc<Mapping> {
        &self.map
    }

    /// Returns the doorbells that notify the host: first those of the tx rings, next those of the rx rings, last that
    /// of the command word.
    pub fn doorbells(&self) -> &[Doorbell] {
        &self.doorbells
    }

    /// Returns the doorbells that interrupt the guest, in the order of [`BareGuest::doorbells`].
    pub fn vectors(&self) -> &[Doorbell] {
        &self.vectors
    }

    /// Issues a command and waits for its result: 0, or an errno.
    ///
    /// # Errors
    /// [`GuestError::System`] if no answer arrives.
    pub fn command(&self, what: u32, features: u32, extra_bufs: u32) -> Result<u32, GuestError> {
        let words = &self.header;
        let bells = self.doorbells.last().zip(self.vectors.last());
        let (doorbell, news) = bells.ok_or(GuestError::Device("the host passed no doorbells"))?;
        let number = words.load(at!(number)).wrapping_add(1);
        words.store(at!(wanted), features);
        words.store(at!(wanted_bufs), extra_bufs);
        words.store(at!(command), what);
        words.store(at!(number), number);
        doorbell.ring();
        let limit = Instant::now() + TIMEOUT;
        while words.load(at!(answered)) != number {
            if Instant::now() > limit {
                return Err(GuestError::system("run a command on the host")(Errno::TIMEDOUT));
            }
            nap(news.as_fd(), Duration::from_millis(10));
            news.drain();
        }
        Ok(words.load(at!(result)))
    }

    /// Starts the rings, with `hdr_len` (0 or 12) bytes of virtio-net header before each frame.
    ///
    /// # Errors
    /// [`GuestError::Refused`] if the host refuses; otherwise the errors of [`BareGuest::command`].
    pub fn start(self, hdr_len: u32) -> Result<RunningDevice, GuestError> {
        let features = if hdr_len > 0 { FEATURE_VNET_HDR } else { 0 };
        GuestError::check_start(self.command(COMMAND_START, features, 0)?)?;
        let header: Vec<u32> = (0..size_of::<PtnetHeader>() / 4).map(|i| self.header.load(i)).collect();
        let reply = AttachReply::of_device(&header);
        let tx_bound = 0..reply.tx_rings.min(64);
        let rx_bound = 0..reply.rx_rings.min(64);
        let reply = AttachReply { tx_bound, rx_bound, hdr_len, alone: true, ..reply };
        let pairs = self.doorbells.into_iter().zip(self.vectors).flat_map(|(doorbell, wake)| [doorbell, wake]);
        Ok(RunningDevice { reply, map: self.map, bells: pairs.collect(), keep: self.keep })
    }
}

/// A device with running rings.
pub struct RunningDevice {
    /// Description of the port.
    pub reply: AttachReply,
    /// Memory of the device.
    pub map: Arc<Mapping>,
    /// Two doorbells per ring: the one that notifies the host, and the one that the host rings. Tx rings come first.
    pub bells: Vec<Doorbell>,
    /// Owner of everything that must exist as long as the rings are used.
    pub keep: Arc<dyn Any + Send + Sync>,
}

/// Returns the header of a device's memory, and its number of interrupt vectors. The header's other words are checked
/// when the rings are built.
pub(crate) fn header(map: &Arc<Mapping>) -> Result<(Words, usize), GuestError> {
    let header = Words::new(map, 0, (HEADER_BYTES / 4) as usize).ok_or(GuestError::Device("no header"))?;
    let found = [header.load(at!(magic)), header.load(at!(magic) + 1)];
    if found != netvale_abi::ptnet::MAGIC {
        return Err(GuestError::Device("the memory has no ptnet header"));
    }
    let version = header.load(at!(version));
    if version != netvale_abi::ptnet::VERSION {
        return Err(GuestError::Device("the device has an unsupported version of ptnet"));
    }
    let vectors = header.load(at!(vectors)) as usize;
    Ok((header, vectors.clamp(3, 64)))
}

fn bell(connection: &OwnedFd) -> Result<Doorbell, GuestError> {
    let (_, fd) = recv(connection)?;
    fd.map(Doorbell::from_fd).ok_or(GuestError::Device("the host passed an interrupt vector without a descriptor"))
}

/// Receives a message of the ivshmem protocol: a number, and the descriptor that came with the message; `None` if there
/// was no descriptor.
fn recv(connection: &OwnedFd) -> Result<(i64, Option<OwnedFd>), GuestError> {
    let mut bytes = [0u8; 8];
    let mut got = 0;
    let mut fd = None;
    while got < bytes.len() {
        let limit = Timespec { tv_sec: TIMEOUT.as_secs().cast_signed(), tv_nsec: 0 };
        let ready = poll(&mut [PollFd::new(connection, PollFlags::IN)], Some(&limit));
        if matches!(ready, Ok(0)) {
            return Err(GuestError::system("wait for an answer from the ptnet port")(Errno::TIMEDOUT));
        }
        match netvale_fdio::receive(connection, bytes.get_mut(got..).unwrap_or_default(), RecvFlags::empty()) {
            Ok(message) if message.bytes == 0 => return Err(GuestError::Closed),
            Ok(message) => {
                got += message.bytes;
                fd = message.fds.into_iter().next().or(fd);
            }
            Err(Errno::AGAIN | Errno::INTR) => continue,
            Err(e) => return Err(GuestError::system("wait for an answer from the ptnet port")(e)),
        }
    }
    Ok((i64::from_le_bytes(bytes), fd))
}
