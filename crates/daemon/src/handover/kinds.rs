//! Items of single kinds besides their ports: capture files and network interfaces. A file's *progress* is its
//! position.

use std::ops::Range;
use std::path::PathBuf;

use netvale_afxdp::Nic;
use netvale_afxdp::bpf::Mode;
use netvale_afxdp::iface::Interface;
use netvale_afxdp::nic::NicState;
use netvale_fdio::state::Fd;
use netvale_pcapport::{CaptureState, ReplayState};
use serde::{Deserialize, Serialize};

use super::parts::{CallerItem, Counts};

/// A user's captures.
#[derive(Debug, Serialize, Deserialize)]
pub struct UserCaptures {
    /// The user.
    pub user: u32,
    /// Used portions of the user's allowance.
    pub used: u64,
    /// Files of finished captures.
    pub files: Vec<KeptCapture>,
}

/// The file of a finished capture.
#[derive(Debug, Serialize, Deserialize)]
pub struct KeptCapture {
    /// Its path.
    pub path: PathBuf,
    /// Its device and inode number.
    pub file: (u64, u64),
    /// Its size in portions when last checked.
    pub portions: u64,
}

/// State of a capture port.
#[derive(Debug, Serialize, Deserialize)]
pub struct FilesState {
    /// The replayed file.
    pub replay: Option<FileState<ReplayState>>,
    /// The file being written, and whether it counts against its user's allowance.
    pub capture: Option<(FileState<CaptureState>, bool)>,
}

/// State of a file.
#[derive(Debug, Serialize, Deserialize)]
pub struct FileState<T> {
    /// Its descriptor.
    pub file: Fd,
    /// Its progress.
    pub progress: Progress<T>,
}

/// Progress of a file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Progress<T> {
    /// Reported by a paused thread.
    Said(T),
    /// Read from this memory, at any time.
    Noted(Fd),
}

/// State of a network interface.
#[derive(Debug, Serialize, Deserialize)]
pub struct InterfaceItem {
    /// Its name.
    pub name: String,
    index: u32,
    mtu: u32,
    queues: u32,
    up: bool,
    mac: [u8; 6],
    /// Whether its program runs in the driver.
    native: bool,
    /// Whether its driver was set to leave VLAN tags in frames.
    #[serde(default)]
    pub has_told: bool,
    /// State that keeps it open.
    pub nic: NicState,
    /// The stand-in for its stack.
    pub stack: Option<StackItem>,
}

/// The stand-in for an interface's stack.
#[derive(Debug, Serialize, Deserialize)]
pub struct StackItem {
    /// The name of the TAP.
    pub tap: String,
    /// Its queues.
    pub queues: Vec<Fd>,
    /// The map and the three links of its hooks.
    pub hooks: [Fd; 4],
}

impl InterfaceItem {
    /// Creates the item of an interface.
    ///
    /// # Errors
    /// Fails if the daemon is out of descriptors.
    pub fn new(nic: &Nic, stack: Option<StackItem>) -> std::io::Result<InterfaceItem> {
        let Interface { name, index, mtu, queues, up, mac } = nic.interface().clone();
        let native = nic.mode() == Mode::Native;
        let has_told = nic.has_told();
        Ok(InterfaceItem { name, index, mtu, queues, up, mac, native, has_told, nic: nic.save()?, stack })
    }

    /// The interface with the mode of its program.
    pub fn interface(&self) -> (Interface, Mode) {
        let &InterfaceItem { index, mtu, queues, up, mac, native, .. } = self;
        let name = self.name.clone();
        (Interface { name, index, mtu, queues, up, mac }, if native { Mode::Native } else { Mode::Generic })
    }
}

/// A connection's open rings of an interface.
#[derive(Debug, Serialize, Deserialize)]
pub struct OpenInterfaceItem {
    /// The connection.
    pub client: u64,
    /// The requested name.
    pub name: String,
    /// The interface.
    pub interface: String,
    /// The user that owns the rings.
    pub owner: CallerItem,
    /// Whether its program binds the sockets itself.
    pub trusted: bool,
    /// If not: whether the driver writes to the buffers directly, and whether frames may take several.
    pub bound: Option<(bool, bool)>,
    /// Its region's number.
    pub region: u32,
    /// Number of tx and rx rings, and of slots in each.
    pub shape: [u32; 4],
    /// Number of host rings at the end of the tx and rx rings.
    pub host: (u32, u32),
    /// The first ring.
    pub first: u32,
    /// The open tx rings and rx rings.
    pub rings: [Range<u32>; 2],
    /// For each queue with a socket: its number, the entries of the socket's rings, and the socket.
    pub sockets: Vec<(u32, u32, Fd)>,
    /// Two bells of each host ring, tx rings first.
    pub bells: Vec<[Fd; 2]>,
    /// Counters of the open host rings, tx rings first.
    pub counters: Vec<Counts>,
}
