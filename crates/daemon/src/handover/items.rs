//! The items: the saved state of each thing, with its descriptors in place.

use std::any::Any;
use std::ops::Range;
use std::path::PathBuf;

use netvale_control::types::{AttachParams, Policies, PortKind, SubscribeParams};
use netvale_fdio::state::{Fd, State};
use netvale_mem::layout::{PoolSize, RegionSizes};
use netvale_mem::region::{Binding, RegionState};
use serde::{Deserialize, Serialize};

use super::kinds::{InterfaceItem, OpenInterfaceItem, UserCaptures};
pub use super::parts::{CallerItem, Counts};
use crate::caller::Caller;

/// An item of the hand-over.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Item {
    /// The process itself.
    Process(ProcessItem),
    /// A region.
    Region(RegionItem),
    /// A switch.
    Switch(SwitchItem),
    /// A user's captures.
    Captures(UserCaptures),
    /// A network interface.
    Interface(Box<InterfaceItem>),
    /// A port.
    Port(Box<PortItem>),
    /// A pipe between programs.
    Pipe(PipeItem),
    /// Rings of an interface that a program has open.
    OpenInterface(Box<OpenInterfaceItem>),
    /// A client's connection.
    Client(ClientItem),
    /// Counters and addresses, which change with every frame: the last snapshot before the process was killed.
    Counters(CountersItem),
    /// All items have been sent.
    End,
    /// The hand-over was refused, for this reason.
    Failed(String),
}

/// Position of the VLAN above the address's bits.
pub const VLAN_SHIFT: u32 = 48;

/// Prefix of the keys of users' captures.
pub const CAPTURES: &str = "captures ";
/// Prefix of the keys of interfaces, before their names.
pub const INTERFACE: &str = "interface ";
/// Prefix of the keys of open interfaces, before the connection numbers.
pub const OPEN_INTERFACE: &str = "rings ";

/// The key of a user's region.
pub fn region_key(id: u32, uid: u32) -> String {
    format!("{}{uid}", regions_key(id))
}

/// Prefix of the keys of regions with that number, before their users.
pub fn regions_key(id: u32) -> String {
    format!("region {id} ")
}

/// The key of a switch.
pub fn switch_key(name: &str) -> String {
    format!("switch {name}")
}

/// The key of a port.
pub fn port_key(full: &str) -> String {
    format!("port {full}")
}

/// The key of a pipe.
pub fn pipe_key(name: &str) -> String {
    format!("pipe {name}")
}

/// The key of a connection.
pub fn client_key(client: u64) -> String {
    format!("client {client}")
}

/// The key of [`Item::Counters`].
pub const COUNTERS: &str = "counters";

/// Counters of ports, and addresses of switches.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CountersItem {
    /// Names of ports, with the counters of their ingresses and egresses.
    pub ports: Vec<(String, [Vec<Counts>; 2])>,
    /// Connections with open host rings, and the counters of those rings, tx first.
    #[serde(default)]
    pub host_rings: Vec<(u64, Vec<Counts>)>,
    /// Names of switches, with their addresses and ports.
    pub switches: Vec<(String, Vec<(u64, String)>)>,
}

impl Item {
    /// The item's key; a thing has exactly one item.
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

    /// The user whose memory the item holds.
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

    /// Position in the order of restoration: dependencies come first.
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
    /// The listening socket of attach connections.
    pub attach: Fd,
    /// The listening socket of control connections.
    pub control: Fd,
    /// Standard output and error.
    pub output: [Fd; 2],
    /// Names under which the service manager keeps its state.
    pub kept: Vec<String>,
    /// Socket files that it bound itself.
    pub own: Vec<PathBuf>,
}

/// State of a region.
#[derive(Debug, Serialize, Deserialize)]
pub struct RegionItem {
    /// Its number.
    pub id: u32,
    /// The user that owns it.
    pub uid: u32,
    /// Count and size of `netmap_if`s, rings and buffers.
    pub sizes: [(u32, u32); 3],
    /// Whether it uses huge pages.
    pub huge: bool,
    /// Device and inode of the user's file, then offset and length in it.
    pub file: Option<[u64; 4]>,
    /// Ranges of buffers in use.
    pub used_bufs: Option<Vec<Range<u32>>>,
    /// Its memory: one file, or the user's file and a second one for the rest.
    pub memory: Vec<Fd>,
}

impl RegionItem {
    /// The state of the region.
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
    /// Its name.
    pub name: String,
    /// The user that owns it.
    pub owner: u32,
    /// Its addresses (in wire order, first byte lowest, VLAN above), with the names of their ports.
    pub addresses: Vec<(u64, String)>,
    /// Key of its flow hash: each flow stays on its queue, and in order.
    #[serde(default)]
    pub flows: Option<[u64; 2]>,
}

/// State of a port.
#[derive(Debug, Serialize, Deserialize)]
pub struct PortItem {
    /// Its full name.
    pub name: String,
    /// Its switch and its name there, if attached to one.
    pub on: Option<(String, String)>,
    /// Its kind.
    pub kind: PortKind,
    /// The owner, and the process that created it.
    pub owner: CallerItem,
    /// Attach parameters, and whether they came from the configuration.
    pub declared: Option<(AttachParams, bool)>,
    /// Whether it stays when no program holds its rings.
    pub persistent: bool,
    /// Bare name of a netmap persistent port; also set for the port that joins it to a second switch.
    pub lasting: Option<String>,
    /// Whether it holds senders back.
    pub lossless: bool,
    /// Its policies.
    #[serde(default)]
    pub policies: Policies,
    /// Frames decided by each rule of its filters.
    #[serde(default)]
    pub rules: Vec<u64>,
    /// Whether root or the daemon's own user set some of them.
    #[serde(default)]
    pub policies_are_set: bool,
    /// Whether its workers are kept awake.
    pub polled: bool,
    /// Counters of its ingresses and egresses.
    pub counters: [Vec<Counts>; 2],
    /// State of its kind; without one, the port is attached anew.
    pub state: Option<State>,
    /// For each ingress, the receivers (port name and ring) of waiting frames, and their number.
    pub waiting: Vec<Vec<(String, usize, usize)>>,
    /// File with the waiting frames, if there are any.
    pub frames: Option<Fd>,
}

/// State of a pipe between programs.
#[derive(Debug, Serialize, Deserialize)]
pub struct PipeItem {
    /// Its name, without the end.
    pub name: String,
    /// The user that owns it.
    pub uid: u32,
    /// Its region.
    pub region: u32,
    /// Slots of each ring.
    pub slots: u32,
    /// The first ring of each end.
    pub first: [u32; 2],
    /// Connections that hold each end, and whether they share it.
    pub held: [Vec<(u64, bool)>; 2],
    /// Offset rules of the rings of each end, tx first.
    pub offsets: [Vec<Option<[u32; 3]>>; 2],
    /// The virtual machine's end; its port's item holds the rest.
    pub guest: Option<usize>,
    /// Doorbells in each direction: frames have arrived, room is free. Empty for a virtual machine's pipe.
    pub bells: Vec<[Fd; 2]>,
}

/// State of a connection.
#[derive(Debug, Serialize, Deserialize)]
pub struct ClientItem {
    /// Its number and its peer.
    pub caller: CallerItem,
    /// Its socket.
    pub socket: Fd,
    /// State of its protocol.
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
        /// Whether the client has closed its sending side.
        ended: bool,
        /// Event filters, and the number of the last event.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        events: Option<(SubscribeParams, u64)>,
    },
    /// The attach protocol: a connection that holds a port, or may open one.
    Attach {
        /// The hold with its note.
        holds: Option<(HoldItem, Vec<u8>)>,
    },
}

/// A connection's hold on a port.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HoldItem {
    /// Rings of a port on a switch.
    Rings {
        /// The port's name.
        port: String,
        /// The tx rings and the rx rings.
        rings: [Range<u32>; 2],
        /// The `netmap_if`.
        binding: BindingItem,
    },
    /// Rings of a monitor.
    Monitor {
        /// The monitor's name.
        port: String,
        /// The tx rings and the rx rings.
        rings: [Range<u32>; 2],
        /// The `netmap_if`.
        binding: BindingItem,
    },
    /// Rings of an open interface.
    Interface {
        /// The connection that opened it.
        client: u64,
        /// The `netmap_if`.
        binding: BindingItem,
    },
    /// Rings with no backend; no other item describes them.
    Bare {
        /// The rings.
        rings: State,
        /// The `netmap_if`.
        binding: BindingItem,
    },
    /// One end of a pipe.
    PipeEnd {
        /// The pipe's name, without the end.
        pipe: String,
        /// The end.
        end: usize,
        /// The `netmap_if`.
        binding: BindingItem,
    },
}

/// A program's `netmap_if`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct BindingItem {
    /// Its number.
    pub index: u32,
    /// Initial number of extra buffers.
    pub extra_bufs: u32,
}

impl From<&Binding> for BindingItem {
    fn from(binding: &Binding) -> Self {
        BindingItem { index: binding.index(), extra_bufs: binding.extra_bufs() }
    }
}

/// Exact state of a parked port, for another process.
pub struct ParkedPort {
    /// The state of its kind.
    pub state: State,
    /// Pauses its threads until dropped, which happens only if no successor takes over.
    pub paused: Vec<Box<dyn Any>>,
}

impl ParkedPort {
    /// Creates it from a state and the pauses of its threads.
    ///
    /// # Errors
    /// Fails if the state cannot be serialised.
    pub fn of<T: Any>(state: &impl Serialize, paused: impl IntoIterator<Item = T>) -> std::io::Result<ParkedPort> {
        let paused = paused.into_iter().map(|one| Box::new(one) as Box<dyn Any>).collect();
        Ok(ParkedPort { state: State::of(state)?, paused })
    }
}

/// For a port without threads of its own.
impl From<State> for ParkedPort {
    fn from(state: State) -> ParkedPort {
        ParkedPort { state, paused: Vec::new() }
    }
}
