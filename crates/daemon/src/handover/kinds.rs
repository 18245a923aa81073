//! Items about what single kinds have beside their ports: capture files and network interfaces. A file's *progress* is
//! how far it has come.

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

/// What a user has captured.
#[derive(Debug, Serialize, Deserialize)]
pub struct UserCaptures {
    /// The user.
    pub user: u32,
    /// Portions of the user's allowance that are used up.
    pub used: u64,
    /// The files of captures that are over.
    pub files: Vec<KeptCapture>,
}

/// The file of a capture that is over.
#[derive(Debug, Serialize, Deserialize)]
pub struct KeptCapture {
    /// Its path.
    pub path: PathBuf,
    /// Its device and inode number.
    pub file: (u64, u64),
    /// The portions that it took when it was last looked at.
    pub portions: u64,
}

/// What a capture port says of itself.
#[derive(Debug, Serialize, Deserialize)]
pub struct FilesState {
    /// The file that is replayed.
    pub replay: Option<FileState<ReplayState>>,
    /// The file that is written, and whether its user's allowance limits it.
    pub capture: Option<(FileState<CaptureState>, bool)>,
}

/// A file.
#[derive(Debug, Serialize, Deserialize)]
pub struct FileState<T> {
    /// Its descriptor.
    pub file: Fd,
    /// How far it has come.
    pub progress: Progress<T>,
}

/// How far a file has come.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Progress<T> {
    /// It was said by who paused.
    Said(T),
    /// It is noted in this memory, as at any time.
    Noted(Fd),
}

/// A network interface.
#[derive(Debug, Serialize, Deserialize)]
pub struct InterfaceItem {
    /// Its name.
    pub name: String,
    index: u32,
    mtu: u32,
    queues: u32,
    up: bool,
    mac: [u8; 6],
    /// Whether the program runs in the driver.
    native: bool,
    /// Whether its driver was told to leave VLAN tags in frames.
    #[serde(default)]
    pub has_told: bool,
    /// What keeps it open.
    pub nic: NicState,
    /// What stands in for its stack.
    pub stack: Option<StackItem>,
}

/// What stands in for an interface's stack.
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
    /// The item of an interface.
    ///
    /// # Errors
    /// When the daemon is out of descriptors.
    pub fn new(nic: &Nic, stack: Option<StackItem>) -> std::io::Result<InterfaceItem> {
        let Interface { name, index, mtu, queues, up, mac } = nic.interface().clone();
        let native = nic.mode() == Mode::Native;
        let has_told = nic.has_told();
        Ok(InterfaceItem { name, index, mtu, queues, up, mac, native, has_told, nic: nic.save()?, stack })
    }

    /// The interface, and where its program runs.
    pub fn interface(&self) -> (Interface, Mode) {
        let &InterfaceItem { index, mtu, queues, up, mac, native, .. } = self;
        let name = self.name.clone();
        (Interface { name, index, mtu, queues, up, mac }, if native { Mode::Native } else { Mode::Generic })
    }
}

/// Rings of an interface that a connection has open.
#[derive(Debug, Serialize, Deserialize)]
pub struct OpenInterfaceItem {
    /// The connection.
    pub client: u64,
    /// The name that it asked for.
    pub name: String,
    /// The interface.
    pub interface: String,
    /// The user that owns the rings.
    pub owner: CallerItem,
    /// Whether its program binds the sockets itself.
    pub trusted: bool,
    /// If not: whether the driver works on the buffers, and whether frames may take several.
    pub bound: Option<(bool, bool)>,
    /// Number of the region.
    pub region: u32,
    /// Numbers of tx and rx rings, and of the slots of each.
    pub shape: [u32; 4],
    /// How many of the last tx and rx rings are host rings.
    pub host: (u32, u32),
    /// The first ring.
    pub first: u32,
    /// The tx rings and the rx rings that are open.
    pub rings: [Range<u32>; 2],
    /// Number of each queue that has a socket, entries of the socket's rings, and the socket.
    pub sockets: Vec<(u32, u32, Fd)>,
    /// Two bells of each host ring, tx rings first.
    pub bells: Vec<[Fd; 2]>,
    /// Counters of the host rings that are open, tx rings first.
    pub counters: Vec<Counts>,
}
