//! The poller of the event loop: an epoll set that reports the readiness of descriptors, each with a [`WatchedThing`]
//! that names its owner.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use crate::slots::SlotId;

/// Maximum number of events that one call takes from the kernel.
const EVENTS: usize = 256;

/// The owner of a watched descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WatchedThing {
    /// The gateway's switch port: a descriptor that is readable when frames have arrived or there is room.
    Link,
    /// The connection to the daemon, which ends when the switch port is closed.
    LinkEnd,
    /// The descriptor that becomes readable when the gateway must end.
    Stop,
    /// The socket of a TCP flow.
    Tcp(SlotId),
    /// The socket of a guest's UDP address and port.
    Udp(SlotId),
    /// A socket for ICMP echo requests.
    Ping(SlotId),
    /// The socket of a question to a name server.
    Question(SlotId),
    /// The name service's end of a guest's TCP connection to the name service.
    NameClient(SlotId),
    /// The socket of a published port.
    Published(SlotId),
    /// The dial socket.
    Dial,
    /// A connection to the dial socket.
    DialCaller(SlotId),
    /// The control socket.
    Control,
    /// The connection of a client of the control socket.
    ControlClient(SlotId),
    /// The connection on which the daemon reports the switch's ports.
    Ports,
}

impl WatchedThing {
    fn to_word(self) -> u64 {
        let word = |kind: u64, id: SlotId| kind << 56 | u64::from(id.generation) << 32 | u64::from(id.index);
        let none = SlotId { index: 0, generation: 0 };
        match self {
            Self::Link => word(0, none),
            Self::Stop => word(1, none),
            Self::Tcp(id) => word(2, id),
            Self::Udp(id) => word(3, id),
            Self::Ping(id) => word(4, id),
            Self::Question(id) => word(5, id),
            Self::NameClient(id) => word(6, id),
            Self::Published(id) => word(7, id),
            Self::LinkEnd => word(8, none),
            Self::Control => word(9, none),
            Self::ControlClient(id) => word(10, id),
            Self::Dial => word(11, none),
            Self::DialCaller(id) => word(12, id),
            Self::Ports => word(13, none),
        }
    }

    fn from_word(word: u64) -> Option<Self> {
        let id = SlotId { index: word as u32, generation: (word >> 32) as u32 & 0xff_ffff };
        Some(match word >> 56 {
            0 => Self::Link,
            1 => Self::Stop,
            2 => Self::Tcp(id),
            3 => Self::Udp(id),
            4 => Self::Ping(id),
            5 => Self::Question(id),
            6 => Self::NameClient(id),
            7 => Self::Published(id),
            8 => Self::LinkEnd,
            9 => Self::Control,
            10 => Self::ControlClient(id),
            11 => Self::Dial,
            12 => Self::DialCaller(id),
            13 => Self::Ports,
            _ => return None,
        })
    }
}

/// The events at a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Readiness {
    /// Data can be read, or the peer has closed its direction, or there is an error.
    pub readable: bool,
    /// Data can be written, or there is an error.
    pub writable: bool,
    /// An error is pending at the socket.
    pub error: bool,
}

/// The way in which a descriptor is watched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WatchMode {
    /// Level-triggered, for reading.
    Readable,
    /// Edge-triggered, for reading and writing.
    Changes,
}

/// An epoll set. Closing a descriptor removes it from the set.
#[derive(Debug)]
pub struct Poller(OwnedFd);

impl Poller {
    /// Creates an empty set.
    ///
    /// # Errors
    /// The kernel cannot create the set, for lack of descriptors or memory.
    pub fn new() -> io::Result<Self> {
        Ok(Poller(epoll::create(CreateFlags::CLOEXEC)?))
    }

    /// Adds a descriptor to the set.
    ///
    /// # Errors
    /// The kernel cannot add the descriptor.
    pub fn add(&self, fd: impl AsFd, thing: WatchedThing, mode: WatchMode) -> io::Result<()> {
        let flags = match mode {
            WatchMode::Readable => EventFlags::IN,
            WatchMode::Changes => EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET,
        };
        Ok(epoll::add(&self.0, fd, EventData::new_u64(thing.to_word()), flags)?)
    }

    /// Removes a descriptor from the set.
    ///
    /// # Errors
    /// The descriptor is not in the set.
    pub fn remove(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.0, fd)?)
    }

    /// Waits for up to `limit`, and replaces the contents of `ready` by the events. A signal may end the wait early.
    pub fn wait(&self, limit: Duration, ready: &mut Vec<(WatchedThing, Readiness)>) {
        ready.clear();
        let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
        let mut events = [const { MaybeUninit::<epoll::Event>::uninit() }; EVENTS];
        let Ok((events, _)) = epoll::wait(&self.0, &mut events[..], Some(&limit)) else { return };
        for event in events {
            let flags = event.flags;
            let error = flags.intersects(EventFlags::ERR);
            let ended = flags.intersects(EventFlags::HUP | EventFlags::RDHUP);
            let readable = flags.contains(EventFlags::IN) || ended || error;
            let writable = flags.contains(EventFlags::OUT) || error;
            if let Some(thing) = WatchedThing::from_word(event.data.u64()) {
                ready.push((thing, Readiness { readable, writable, error }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thing_reads_back_from_its_word() {
        let id = SlotId { index: u32::MAX, generation: 0xff_ffff };
        use WatchedThing::*;
        for thing in [Link, LinkEnd, Stop, Tcp(id), Udp(id), Ping(id), Question(id), NameClient(id), Published(id)] {
            assert_eq!(WatchedThing::from_word(thing.to_word()), Some(thing));
        }
        for thing in [Control, ControlClient(id)] {
            assert_eq!(WatchedThing::from_word(thing.to_word()), Some(thing));
        }
        assert_eq!(WatchedThing::from_word(u64::MAX), None);
    }

    #[test]
    fn what_can_be_read_is_reported_until_it_is_read() {
        let poller = Poller::new().unwrap();
        let (mut a, b) = std::os::unix::net::UnixStream::pair().unwrap();
        poller.add(&b, WatchedThing::Stop, WatchMode::Readable).unwrap();
        let mut ready = Vec::new();
        poller.wait(Duration::ZERO, &mut ready);
        assert_eq!(ready, []);
        std::io::Write::write_all(&mut a, b"x").unwrap();
        for _ in 0..2 {
            poller.wait(Duration::from_secs(5), &mut ready);
            assert!(matches!(ready[..], [(WatchedThing::Stop, Readiness { readable: true, .. })]));
        }
    }
}
