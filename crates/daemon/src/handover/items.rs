//! The items of a hand-over: the saved state of each object, with the descriptors that belong to it.

use std::any::Any;
use std::ops::Range;
use std::path::PathBuf;

use netvale_control::types::{AttachParams, Policies, PortKind, SubscribeParams};
use netvale_fdio::state::{Fd, State};
use netvale_mem::layout::{PoolSize, RegionSizes};
use netvale_mem::region::{Binding, RegionState};
use serde::{Deserialize, Serialize};

use super::kinds::{InterfaceItem, OpenInterfaceItem, UserCaptures};
pub use super::parts::{CallerItem, RingCounts};
use crate::caller::Caller;

/// An item: the state of one object, or a message that controls the hand-over.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Item {
    /// The daemon's process: its lock, listening sockets and standard output.
    Process(ProcessItem),
    Region(RegionItem),
    Switch(SwitchItem),
    /// The captures of a user.
    Captures(UserCaptures),
    Interface(Box<InterfaceItem>),
    Port(Box<PortItem>),
    Pipe(PipeItem),
    /// Rings of an interface that a program has opened.
    OpenInterface(Box<OpenInterfaceItem>),
    Client(ClientItem),
    /// Counters and learned addresses, which change with every frame: the state at the last save before the process was
    /// killed.
    Counters(CountersItem),
    /// The end of the hand-over: all items have been sent.
    End,
    /// The hand-over was refused, for this reason.
    Failed(String),
}

/// Position of the VLAN's lowest bit in the word of an address; the 48 bits below it are the MAC address.
pub const VLAN_SHIFT: u32 = 48;

/// Prefix of the keys of users' captures; the user ID follows the prefix.
pub const CAPTURES: &str = "captures ";
/// Prefix of the keys of interfaces; the name of the interface follows the prefix.
pub const INTERFACE: &str = "interface ";
/// Prefix of the keys of interfaces' open rings; the number of the connection follows the prefix.
pub const OPEN_INTERFACE: &str = "rings ";

/// Returns the key of a user's region.
pub fn region_key(id: u32, uid: u32) -> String {
    format!("{}{uid}", regions_key(id))
}

/// Returns the prefix of the keys of all regions with number `id`; the user ID follows the prefix.
pub fn regions_key(id: u32) -> String {
    format!("region {id} ")
}

/// Returns the key of a switch.
pub fn switch_key(name: &str) -> String {
    format!("switch {name}")
}

/// Returns the key of a port.
pub fn port_key(full: &str) -> String {
    format!("port {full}")
}

/// Returns the key of a pipe.
pub fn pipe_key(name: &str) -> String {
    format!("pipe {name}")
}

/// Returns the key of a connection.
pub fn client_key(client: u64) -> String {
    format!("client {client}")
}

/// The key of [`Item::Counters`].
pub const COUNTERS: &str = "counters";

/// Counters of ports, and learned addresses of switches.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CountersItem {
    /// For each port, its full name and the counters of its ingresses and egresses.
    pub ports: Vec<(String, [Vec<RingCounts>; 2])>,
    /// For each connection with open host rings, its number and the counters of those rings, tx rings first.
    #[serde(default)]
    pub host_rings: Vec<(u64, Vec<RingCounts>)>,
    /// For each switch, its name and the learned addresses with the names of their ports.
    pub switches: Vec<(String, Vec<(u64, String)>)>,
}

impl Item {
    /// Returns the item's key. Each object has exactly one item.
    pub fn key(&self) -> String {
        match self {
            Item::Process(_) | Item::End | Item::Failed(_) => String::new(),
            Item::Region(r) => region_key(r.id, r.uid),
            Item::Switch(s) => switch_key(&s.name),
            Item::Captures(c) => format!("{CAPTURES}{}", c.user),
            Item::Interface(i) => format!("{INTERFACE}{}", i.name),
            Item::Port(p) => port_key(&p.name),
            Item::Pipe(p) => pipe_key(&p.name),
            Item::OpenInterface(o) => format!("{OPEN_INTERFACE}{}", o.client),
            Item::Client(c) => client_key(c.caller.client),
            Item::Counters(_) => COUNTERS.to_owned(),
        }
    }

    /// Returns the user whose memory the item contains; `None` if it contains no user's memory.
    pub fn user(&self) -> Option<u32> {
        match self {
            Item::Region(region) => Some(region.uid),
            Item::Port(port) => Some(Caller::from(port.owner).uid),
            Item::Pipe(pipe) => Some(pipe.uid),
            Item::OpenInterface(open) => Some(Caller::from(open.owner).uid),
            Item::Client(client) => Some(Caller::from(client.caller).uid),
            Item::Process(_) | Item::Switch(_) | Item::Captures(_) | Item::Interface(_) => None,
            Item::Counters(_) | Item::End | Item::Failed(_) => None,
        }
    }

    /// Returns the item's position in the order of restoration: an item precedes all items that depend on it.
    pub fn rank(&self) -> u8 {
        match self {
            Item::Process(_) => 0,
            Item::Region(_) => 1,
            Item::Switch(_) | Item::Captures(_) | Item::Interface(_) => 2,
            Item::Port(_) => 3,
            Item::Pipe(_) | Item::OpenInterface(_) => 4,
            Item::Client(_) => 5,
            Item::Counters(_) => u8::MAX - 1,
            Item::End | Item::Failed(_) => 6,
        }
    }
}

/// State of the process.
#[derive(Debug, Serialize, Deserialize)]
pub struct ProcessItem {
    /// Lock of the run directory.
    pub lock: Fd,
    /// The listening socket for attach connections.
    pub attach: Fd,
    /// The listening socket for control connections.
    pub control: Fd,
    /// Standard output and error.
    pub output: [Fd; 2],
    /// Names of the process's items in the service manager's store.
    pub kept: Vec<String>,
    /// Paths of the sockets that the daemon itself created, not the service manager.
    pub own: Vec<PathBuf>,
}

/// State of a region.
#[derive(Debug, Serialize, Deserialize)]
pub struct RegionItem {
    /// Number of the region.
    pub id: u32,
    /// The user who owns the region.
    pub uid: u32,
    /// Number and size in bytes of the region's `netmap_if`s, then of its rings, then of its buffers.
    pub sizes: [(u32, u32); 3],
    /// Whether the region uses huge pages.
    pub huge: bool,
    /// For a region in a user's file: device, inode, offset and length of the region in the file, in bytes. `None` for
    /// a region in the daemon's own memory.
    pub file: Option<[u64; 4]>,
    /// Index ranges of the buffers in use; `None` if they are unknown.
    pub used_bufs: Option<Vec<Range<u32>>>,
    /// The files that contain the region's memory: one file, or the user's file and a second file for the rest of the
    /// memory.
    pub memory: Vec<Fd>,
}

impl RegionItem {
    /// Returns the state of the region.
    pub fn state(self) -> RegionState {
        let [ifs, rings, bufs] = self.sizes.map(|(num, size)| PoolSize { num, size });
        RegionState {
            sizes: RegionSizes { ifs, rings, bufs },
            huge: self.huge,
            file: self.file.map(|[_, _, offset, len]| (offset, len)),
            used_bufs: self.used_bufs,
            memory: self.memory,
        }
    }
}

/// State of a switch.
#[derive(Debug, Serialize, Deserialize)]
pub struct SwitchItem {
    /// Name of the switch.
    pub name: String,
    /// The user who owns the switch.
    pub owner: u32,
    /// Learned addresses with the names of their ports. An address is a word with the first byte of the MAC address in
    /// the lowest bits and the VLAN above the MAC address.
    pub addresses: Vec<(u64, String)>,
    /// Key of the flow hash, kept so that each flow stays on its queue and in order. `None` if an older version without
    /// this field saved the item.
    #[serde(default)]
    pub flows: Option<[u64; 2]>,
}

/// State of a port.
#[derive(Debug, Serialize, Deserialize)]
pub struct PortItem {
    /// Full name of the port.
    pub name: String,
    /// The switch, and the port's name on that switch; `None` if the port is on no switch.
    pub on: Option<(String, String)>,
    /// Kind of the port.
    pub kind: PortKind,
    /// The owning user, and the connection and process that created the port.
    pub owner: CallerItem,
    /// Attach parameters, and whether they came from the configuration; `None` for a port without attach parameters: a
    /// program created the port, a client passed it as a TAP, or it was created together with another port.
    pub declared: Option<(AttachParams, bool)>,
    /// Whether the port remains when no program holds its rings.
    pub persistent: bool,
    /// For a persistent port of netmap, the port's name without a switch. The name is also set for the port that joins
    /// a persistent port to a second switch; `None` for other ports.
    pub lasting: Option<String>,
    /// Whether the port is lossless, so that it holds senders back when its queue is full.
    pub lossless: bool,
    /// Policies of the port.
    #[serde(default)]
    pub policies: Policies,
    /// Number of frames that each filter rule has decided.
    #[serde(default)]
    pub rules: Vec<u64>,
    /// Whether root or the daemon's own user has set the port's policies.
    #[serde(default)]
    pub policies_are_set: bool,
    /// Whether the port keeps its workers awake (netmap's polling).
    pub polled: bool,
    /// Counters of the ingresses and of the egresses.
    pub counters: [Vec<RingCounts>; 2],
    /// State specific to the kind of port; `None` if the port must be attached anew.
    pub state: Option<State>,
    /// For each ingress, the receivers at which frames wait for room: port name, ring, and number of frames.
    pub waiting: Vec<Vec<(String, usize, usize)>>,
    /// File that contains the waiting frames; `None` if no frames wait.
    pub frames: Option<Fd>,
}

/// State of a pipe between programs.
#[derive(Debug, Serialize, Deserialize)]
pub struct PipeItem {
    /// Name of the pipe, without the suffix that selects one of its ends.
    pub name: String,
    /// The user who owns the pipe.
    pub uid: u32,
    /// Number of the region that contains the pipe's rings.
    pub region: u32,
    /// Number of slots in each ring.
    pub slots: u32,
    /// For each end, the index of its first ring in the region.
    pub first: [u32; 2],
    /// For each end, the connections that hold the end, and for each connection whether it shares the end.
    pub held: [Vec<(u64, bool)>; 2],
    /// For each end, the offset rules (bits, maximum, initial value) of its rings, tx rings first; `None` for a ring
    /// without offsets.
    pub offsets: [Vec<Option<[u32; 3]>>; 2],
    /// Index of the end that belongs to a virtual machine; `None` if neither end does. The state of a machine's end is
    /// in the item of the machine's port.
    pub guest: Option<usize>,
    /// For each direction, two doorbells: the first is rung when frames have arrived, the second when there is room.
    /// Empty for a pipe of a virtual machine.
    pub bells: Vec<[Fd; 2]>,
}

/// State of a connection.
#[derive(Debug, Serialize, Deserialize)]
pub struct ClientItem {
    /// The connection's number, and its peer.
    pub caller: CallerItem,
    /// The connection's socket.
    pub socket: Fd,
    /// State of the connection's protocol.
    pub connection: ConnectionItem,
}

/// The protocol of a connection.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionItem {
    /// The control protocol.
    Control {
        /// Bytes of an incomplete request.
        pending: Vec<u8>,
        /// Bytes of answers not yet sent.
        unsent: Vec<u8>,
        /// Whether the client has closed the sending side of the connection.
        ended: bool,
        /// Event filters, and the number of the last event; `None` if the connection has no subscription.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        events: Option<(SubscribeParams, u64)>,
    },
    /// The attach protocol.
    Attach {
        /// The connection's hold on a port, and the note that the client left with the daemon; `None` if the connection
        /// holds no port.
        holds: Option<(HoldItem, Vec<u8>)>,
    },
}

/// A connection's hold on a port.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HoldItem {
    /// Rings of a port on a switch, which programs share with the daemon.
    Rings {
        /// The port's name.
        port: String,
        /// The ranges of tx rings and of rx rings that the program holds.
        rings: [Range<u32>; 2],
        /// The program's `netmap_if` for the rings.
        binding: BindingItem,
    },
    /// Rings of a monitor, which get copies of another port's frames.
    Monitor {
        /// The monitor's name.
        port: String,
        /// The ranges of tx rings and of rx rings that the program holds.
        rings: [Range<u32>; 2],
        /// The program's `netmap_if` for the rings.
        binding: BindingItem,
    },
    /// Rings of an interface that a program has opened.
    Interface {
        /// Number of the connection that opened the interface.
        client: u64,
        /// The program's `netmap_if` for the rings.
        binding: BindingItem,
    },
    /// Rings that are connected to nothing; no other item describes them.
    Bare {
        /// State of the rings.
        rings: State,
        /// The program's `netmap_if` for the rings.
        binding: BindingItem,
    },
    /// One end of a pipe.
    PipeEnd {
        /// The pipe's name, without the suffix that selects one of its ends.
        pipe: String,
        /// Index of the end.
        end: usize,
        /// The program's `netmap_if` for the rings.
        binding: BindingItem,
    },
}

/// A program's `netmap_if`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct BindingItem {
    /// Index of the `netmap_if` in the region.
    pub index: u32,
    /// Number of extra buffers that the `netmap_if` had at the start.
    pub extra_bufs: u32,
}

impl From<&Binding> for BindingItem {
    fn from(binding: &Binding) -> Self {
        BindingItem { index: binding.index(), extra_bufs: binding.extra_bufs() }
    }
}

/// Exact state of a port for a successor. It is saved while the workers are parked.
pub struct ParkedPort {
    /// State specific to the port's kind.
    pub state: State,
    /// Guards that keep the port's threads paused. If no successor takes over, they are dropped, which resumes the
    /// threads.
    pub paused: Vec<Box<dyn Any>>,
}

impl ParkedPort {
    /// Creates the value from a state and the guards of paused threads.
    ///
    /// # Errors
    /// Fails if the state cannot be serialised.
    pub fn of<T: Any>(state: &impl Serialize, paused: impl IntoIterator<Item = T>) -> std::io::Result<ParkedPort> {
        let paused = paused.into_iter().map(|one| Box::new(one) as Box<dyn Any>).collect();
        Ok(ParkedPort { state: State::of(state)?, paused })
    }
}

/// Creates the state of a port that has no threads of its own.
impl From<State> for ParkedPort {
    fn from(state: State) -> ParkedPort {
        ParkedPort { state, paused: Vec::new() }
    }
}
