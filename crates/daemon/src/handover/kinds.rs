//! Items of capture files and network interfaces, to which the items of their ports refer. The *progress* of a file is
//! the position up to which the file has been read or written.

use std::ops::Range;
use std::path::PathBuf;

use netvale_afxdp::Nic;
use netvale_afxdp::bpf::XdpMode;
use netvale_afxdp::iface::Interface;
use netvale_afxdp::nic::NicState;
use netvale_fdio::state::Fd;
use netvale_pcapport::{CaptureState, ReplayState};
use serde::{Deserialize, Serialize};

use super::parts::{CallerItem, RingCounts};

/// The captures of a user.
#[derive(Debug, Serialize, Deserialize)]
pub struct UserCaptures {
    /// ID of the user.
    pub user: u32,
    /// Number of portions (units of file size) that the captures take from the user's allowance.
    pub used: u64,
    /// Files of finished captures.
    pub files: Vec<KeptCapture>,
}

/// The file of a finished capture.
#[derive(Debug, Serialize, Deserialize)]
pub struct KeptCapture {
    /// Path of the file.
    pub path: PathBuf,
    /// Device and inode number.
    pub file: (u64, u64),
    /// Size in portions at the last check.
    pub portions: u64,
}

/// State of a capture port.
#[derive(Debug, Serialize, Deserialize)]
pub struct FilesState {
    /// The replayed file; `None` if the port replays no file.
    pub replay: Option<FileState<ReplayState>>,
    /// The file that is being written, and whether the file counts towards the user's allowance; `None` if the port
    /// writes no file.
    pub capture: Option<(FileState<CaptureState>, bool)>,
}

/// State of an open capture file.
#[derive(Debug, Serialize, Deserialize)]
pub struct FileState<T> {
    /// Descriptor of the file.
    pub file: Fd,
    /// Progress in the file.
    pub progress: FileProgress<T>,
}

/// Where the progress in a file is recorded.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileProgress<T> {
    /// In this value, which the port's paused thread reported.
    Said(T),
    /// In this shared memory, which can be read at any time, even after the daemon was killed.
    Noted(Fd),
}

/// State of a network interface.
#[derive(Debug, Serialize, Deserialize)]
pub struct InterfaceItem {
    /// Name of the interface.
    pub name: String,
    index: u32,
    mtu: u32,
    queues: u32,
    up: bool,
    mac: [u8; 6],
    /// Whether the XDP program runs in the driver, rather than in the generic code of the kernel.
    native: bool,
    /// Whether the driver was set to leave VLAN tags in frames.
    #[serde(default)]
    pub has_told: bool,
    /// Descriptors that keep the interface open.
    pub nic: NicState,
    /// The TAP that replaces the interface's host stack; `None` if there is no such TAP.
    pub stack: Option<StackItem>,
}

/// A TAP that replaces an interface's host stack.
#[derive(Debug, Serialize, Deserialize)]
pub struct StackItem {
    /// The name of the TAP.
    pub tap: String,
    /// Queues of the TAP.
    pub queues: Vec<Fd>,
    /// BPF objects that redirect the stack's frames to the TAP: first the map, then the three links.
    pub hooks: [Fd; 4],
}

impl InterfaceItem {
    /// Creates the item of an interface.
    ///
    /// # Errors
    /// Fails if the daemon is out of descriptors.
    pub fn new(nic: &Nic, stack: Option<StackItem>) -> std::io::Result<InterfaceItem> {
        let Interface { name, index, mtu, queues, up, mac } = nic.interface().clone();
        let native = nic.mode() == XdpMode::Native;
        let has_told = nic.has_told();
        Ok(InterfaceItem { name, index, mtu, queues, up, mac, native, has_told, nic: nic.save()?, stack })
    }

    /// Returns the interface, and the mode of its XDP program.
    pub fn interface(&self) -> (Interface, XdpMode) {
        let &InterfaceItem { index, mtu, queues, up, mac, native, .. } = self;
        let name = self.name.clone();
        (Interface { name, index, mtu, queues, up, mac }, if native { XdpMode::Native } else { XdpMode::Generic })
    }
}

/// The rings of an interface that a connection has opened.
#[derive(Debug, Serialize, Deserialize)]
pub struct OpenInterfaceItem {
    /// Number of the connection.
    pub client: u64,
    /// The port name that the program requested.
    pub name: String,
    /// Name of the interface.
    pub interface: String,
    /// The user who owns the rings.
    pub owner: CallerItem,
    /// Whether the program, which has the daemon's rights, binds the sockets itself.
    pub trusted: bool,
    /// If the daemon bound the sockets: whether the driver accesses the buffers directly (zero copy), and whether a
    /// frame may span several buffers. `None` if the daemon did not bind the sockets.
    pub bound: Option<(bool, bool)>,
    /// Number of the region that contains the rings.
    pub region: u32,
    /// Number of tx rings, of rx rings, of slots in each tx ring, and of slots in each rx ring.
    pub shape: [u32; 4],
    /// Number of host rings at the end of the tx and rx rings.
    pub host: (u32, u32),
    /// Index of the first ring in the region.
    pub first: u32,
    /// The open tx rings and rx rings.
    pub rings: [Range<u32>; 2],
    /// For each queue with an AF_XDP socket: number of the queue, number of entries of the socket's rings, and the
    /// socket.
    pub sockets: Vec<(u32, u32, Fd)>,
    /// The two doorbells of each host ring, tx rings first.
    pub bells: Vec<[Fd; 2]>,
    /// Counters of the open host rings, tx rings first.
    pub counters: Vec<RingCounts>,
}
