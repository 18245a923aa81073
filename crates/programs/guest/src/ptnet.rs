//! A ptnet device without a driver, from the guest's side. A program on the host may play the guest, for tests and
//! measurements.

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

use crate::Error;

/// Upper bound on waiting for the host.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Number of messages before those with doorbells: version, own peer number, memory.
const FIRST: usize = 3;

macro_rules! at {
    ($field:ident) => {
        word(offset_of!(PtnetHeader, $field))
    };
}

/// A guest without a driver: memory, doorbells, and no safeguard against writing nonsense.
pub struct Guest {
    /// A connection or a function, kept as long as the guest.
    pub(crate) keep: Arc<dyn Any + Send + Sync>,
    pub(crate) map: Arc<Mapping>,
    pub(crate) header: Words,
    pub(crate) doorbells: Vec<Doorbell>,
    pub(crate) vectors: Vec<Doorbell>,
}

impl Guest {
    /// Connects to the port that listens at `path`.
    ///
    /// # Errors
    /// [`Error::System`] if a step fails; [`Error::Device`] if the other end is not a ptnet port.
    pub fn connect(path: &Path) -> Result<Guest, Error> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let connection = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
        let connection = Arc::new(connection.map_err(Error::system("make a socket"))?);
        let address = SocketAddrUnix::new(path).map_err(Error::system("use the path as a socket's"))?;
        rustix::net::connect(&connection, &address).map_err(Error::system("reach the ptnet port"))?;
        let first = (0..FIRST).map(|_| recv(&connection)).collect::<Result<Vec<_>, _>>()?;
        let memory = first.into_iter().find_map(|(_, fd)| fd).ok_or(Error::Device("no memory"))?;
        let len = rustix::fs::fstat(&memory).map_err(Error::system("look at the memory"))?.st_size;
        let len = usize::try_from(len).map_err(|_| Error::Device("memory too large for this machine"))?;
        let map = Arc::new(Mapping::map(memory.as_fd(), len).map_err(Error::system("map the memory"))?);
        let (header, count) = header(&map)?;
        let bells = || (0..count).map(|_| bell(&connection)).collect::<Result<Vec<_>, _>>();
        let doorbells = bells()?;
        let vectors = bells()?;
        Ok(Guest { keep: connection, map, header, doorbells, vectors })
    }

    /// The connection, if any: a guest sends nothing on it.
    pub fn connection(&self) -> Option<&OwnedFd> {
        self.keep.downcast_ref()
    }

    /// The device's memory.
    pub fn memory(&self) -> &Arc<Mapping> {
        &self.map
    }

    /// The doorbells that ring the host: tx rings, rx rings, commands.
    pub fn doorbells(&self) -> &[Doorbell] {
        &self.doorbells
    }

    /// The doorbells that interrupt the guest, in the same order.
    pub fn vectors(&self) -> &[Doorbell] {
        &self.vectors
    }

    /// Issues a command and waits for its answer: 0, or an error number.
    ///
    /// # Errors
    /// [`Error::System`] without an answer.
    pub fn command(&self, what: u32, features: u32, extra_bufs: u32) -> Result<u32, Error> {
        let words = &self.header;
        let bells = self.doorbells.last().zip(self.vectors.last());
        let (doorbell, news) = bells.ok_or(Error::Device("no doorbells"))?;
        let number = words.load(at!(number)).wrapping_add(1);
        words.store(at!(wanted), features);
        words.store(at!(wanted_bufs), extra_bufs);
        words.store(at!(command), what);
        words.store(at!(number), number);
        doorbell.ring();
        let limit = Instant::now() + TIMEOUT;
        while words.load(at!(answered)) != number {
            if Instant::now() > limit {
                return Err(Error::System { what: "have the host obey", source: Errno::TIMEDOUT.into() });
            }
            nap(news.as_fd(), Duration::from_millis(10));
            news.drain();
        }
        Ok(words.load(at!(result)))
    }

    /// Starts the rings, with `hdr_len` (0 or 12) bytes of virtio-net header before each frame.
    ///
    /// # Errors
    /// [`Error::Refused`] if the host refuses; otherwise like [`Guest::command`].
    pub fn start(self, hdr_len: u32) -> Result<Running, Error> {
        let features = if hdr_len > 0 { FEATURE_VNET_HDR } else { 0 };
        match self.command(COMMAND_START, features, 0)? {
            0 => {}
            errno => {
                let text = "the host does not start the rings".into();
                return Err(Error::Refused { errno: errno.cast_signed(), text });
            }
        }
        let header: Vec<u32> = (0..size_of::<PtnetHeader>() / 4).map(|i| self.header.load(i)).collect();
        let reply = AttachReply::of_device(&header);
        let tx_bound = 0..reply.tx_rings.min(64);
        let rx_bound = 0..reply.rx_rings.min(64);
        let reply = AttachReply { tx_bound, rx_bound, hdr_len, alone: true, ..reply };
        let pairs = self.doorbells.into_iter().zip(self.vectors).flat_map(|(doorbell, wake)| [doorbell, wake]);
        Ok(Running { reply, map: self.map, bells: pairs.collect(), keep: self.keep })
    }
}

/// A device with running rings.
pub struct Running {
    /// Its description.
    pub reply: AttachReply,
    /// Its memory.
    pub map: Arc<Mapping>,
    /// For each ring, the bell that rings the host and the bell that the host rings: tx rings first.
    pub bells: Vec<Doorbell>,
    /// Owner of everything that must live as long as the rings.
    pub keep: Arc<dyn Any + Send + Sync>,
}

/// The header of a device's memory, and the number of its vectors; the other words are checked when the rings are made.
pub(crate) fn header(map: &Arc<Mapping>) -> Result<(Words, usize), Error> {
    let header = Words::new(map, 0, (HEADER_BYTES / 4) as usize).ok_or(Error::Device("no header"))?;
    let found = [header.load(at!(magic)), header.load(at!(magic) + 1)];
    if found != netvale_abi::ptnet::MAGIC {
        return Err(Error::Device("no ptnet header"));
    }
    let version = header.load(at!(version));
    if version != netvale_abi::ptnet::VERSION {
        return Err(Error::Device("a version of ptnet that this program does not know"));
    }
    let vectors = header.load(at!(vectors)) as usize;
    Ok((header, vectors.clamp(3, 64)))
}

fn bell(connection: &OwnedFd) -> Result<Doorbell, Error> {
    let (_, fd) = recv(connection)?;
    fd.map(Doorbell::from_fd).ok_or(Error::Device("a vector without a descriptor"))
}

/// Receives a number, and the descriptor that came with it.
fn recv(connection: &OwnedFd) -> Result<(i64, Option<OwnedFd>), Error> {
    let mut bytes = [0u8; 8];
    let mut got = 0;
    let mut fd = None;
    while got < bytes.len() {
        let limit = Timespec { tv_sec: TIMEOUT.as_secs().cast_signed(), tv_nsec: 0 };
        let ready = poll(&mut [PollFd::new(connection, PollFlags::IN)], Some(&limit));
        if matches!(ready, Ok(0)) {
            return Err(Error::System {
                what: "wait for an answer from the ptnet port",
                source: Errno::TIMEDOUT.into(),
            });
        }
        match netvale_fdio::receive(connection, bytes.get_mut(got..).unwrap_or_default(), RecvFlags::empty()) {
            Ok(message) if message.bytes == 0 => return Err(Error::Closed),
            Ok(message) => {
                got += message.bytes;
                fd = message.fds.into_iter().next().or(fd);
            }
            Err(Errno::AGAIN | Errno::INTR) => continue,
            Err(e) => return Err(Error::system("wait for an answer from the ptnet port")(e)),
        }
    }
    Ok((i64::from_le_bytes(bytes), fd))
}
