//! The folder with the sockets of a case, and a running switch.

use tempfile::TempDir;

use super::ends::PeerEnd;
use crate::prelude::*;

/// Number of datagrams that a socket may queue, as systemd sets it (`max_dgram_qlen`); the kernel's default is 10.
pub const QUEUE: &str = "512";

/// A kind of sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SocketKind {
    /// A stream, with each frame's length before it.
    Stream,
    /// Datagram sockets that are bound to paths.
    Dgram,
    /// A connection whose messages are frames.
    Seqpacket,
    /// The sockets of a VDE switch.
    Vde,
}

impl SocketKind {
    /// Returns the kind of a case, with which its variant's name begins.
    pub fn of(case: &Case) -> Self {
        let all = [Self::Dgram, Self::Seqpacket, Self::Vde];
        all.into_iter().find(|kind| case.variant.starts_with(kind.word())).unwrap_or(Self::Stream)
    }

    /// Returns the kind's name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Dgram => "dgram",
            Self::Seqpacket => "seqpacket",
            Self::Vde => "vde",
        }
    }

    /// Connects a peer to the socket `port`. The peer has the socket `own` if the kind has no connections.
    pub fn connect(self, [port, own]: &[PathBuf; 2]) -> Result<PeerEnd> {
        match self {
            Self::Stream => PeerEnd::to_stream(port),
            Self::Seqpacket => PeerEnd::to_seqpacket(port),
            Self::Dgram => PeerEnd::datagrams(own, port),
            Self::Vde => PeerEnd::plug(port, own),
        }
    }
}

/// The folder with the sockets of a case.
pub struct SocketPlace {
    /// The namespace of the sockets, in which a datagram socket queues up to [`QUEUE`] datagrams.
    pub space: Netns,
    /// The CPU of the switch.
    pub core: usize,
    /// Number of peers.
    pub count: usize,
    folder: TempDir,
}

impl SocketPlace {
    /// Creates the namespace and the folder for a case's sockets.
    pub fn new(case: &Case, cores: Cores) -> Result<Self> {
        let space = Netns::new()?;
        space.set("unix/max_dgram_qlen", QUEUE)?;
        Ok(Self { space, core: cores.1, count: case.ports as usize, folder: sys::scratch("sockets")? })
    }

    /// Returns a path in the place's folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns a command that runs in the namespace, on the switch's CPU.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = self.space.command("taskset");
        command.arg("-c").arg(self.core.to_string()).arg(program);
        command
    }

    /// Returns the socket of a switch to which peer `index` connects, and the peer's own socket.
    pub fn sockets(&self, kind: SocketKind, index: usize) -> [PathBuf; 2] {
        let port = if kind == SocketKind::Dgram { format!("port{index}") } else { "port".into() };
        [port, format!("peer{index}")].map(|name| self.path(&name))
    }
}

/// A running switch, or a link without a switch.
#[derive(Default)]
pub struct RunningSwitch {
    /// The switch's processes.
    pub parts: Parts,
    /// What must exist as long as the switch.
    pub kept: Vec<Box<dyn std::any::Any>>,
    /// Connects the peer of a given index; `None`: peers connect to the sockets in the case's folder.
    pub connect: Option<Box<dyn FnMut(usize) -> Result<PeerEnd>>>,
}

impl RunningSwitch {
    /// Creates a switch whose processes are the processes of `part`.
    pub fn of(part: &Rc<impl Part + 'static>) -> Self {
        Self { parts: vec![Rc::clone(part) as Rc<dyn Part>], ..Self::default() }
    }

    /// Returns the switch's processes.
    pub fn pids(&self) -> Vec<u32> {
        self.parts.iter().flat_map(|part| part.pids()).collect()
    }

    /// Connects all peers, and returns their ends of the sockets.
    pub fn take_ends(&mut self, kind: SocketKind, place: &SocketPlace) -> Result<Vec<PeerEnd>> {
        let connect = &mut self.connect;
        (0..place.count)
            .map(|index| match connect {
                Some(connect) => connect(index),
                None => place.space.inside(|| kind.connect(&place.sockets(kind, index))),
            })
            .collect()
    }
}
