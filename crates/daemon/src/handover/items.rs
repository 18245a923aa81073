//! The items: what is said of each thing, with its descriptors in their places.

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

/// One thing that is handed over.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Item {
    /// The process.
    Process(ProcessItem),
    /// A region.
    Region(RegionItem),
    /// A switch.
    Switch(SwitchItem),
    /// What a user has captured.
    Captures(UserCaptures),
    /// A network interface.
    Interface(Box<InterfaceItem>),
    /// A port.
    Port(Box<PortItem>),
    /// A pipe between programs.
    Pipe(PipeItem),
    /// Rings of an interface that a program has open.
    OpenInterface(Box<OpenInterfaceItem>),
    /// A connection.
    Client(ClientItem),
    /// What changes with every frame, as it was a moment before the process ended without notice.
    Counters(CountersItem),
    /// All items have been sent.
    End,
    /// Nothing is handed over, for this reason.
    Failed(String),
}

/// Where an address's VLAN stands beside it.
pub const VLAN_SHIFT: u32 = 48;

/// How keys of users' captures begin.
pub const CAPTURES: &str = "captures ";
/// How keys of interfaces begin, before their names.
pub const INTERFACE: &str = "interface ";
/// How keys of rings of interfaces begin, before the numbers of the connections.
pub const OPEN_INTERFACE: &str = "rings ";

/// The key of a user's region.
pub fn region_key(id: u32, uid: u32) -> String {
    format!("{}{uid}", regions_key(id))
}

/// How keys of regions with that number begin, before their users.
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
    /// Names of ports, and counters of their ingresses and egresses.
    pub ports: Vec<(String, [Vec<Counts>; 2])>,
    /// Connections that have host rings open, and counters of those, tx rings first.
    #[serde(default)]
    pub host_rings: Vec<(u64, Vec<Counts>)>,
    /// Names of switches, and their addresses and ports.
    pub switches: Vec<(String, Vec<(u64, String)>)>,
}

impl Item {
    /// What it is about: of one thing there is one item.
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

    /// The user whose memory it has.
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

    /// Its place in the order in which items are continued: what others need comes first.
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

/// A process.
#[derive(Debug, Serialize, Deserialize)]
pub struct ProcessItem {
    /// Its lock.
    pub lock: Fd,
    /// The listening socket of attach connections.
    pub attach: Fd,
    /// The listening socket of control connections.
    pub control: Fd,
    /// Standard output and error.
    pub output: [Fd; 2],
    /// Names of what the service manager keeps for it.
    pub kept: Vec<String>,
    /// Files of the sockets that it has bound itself.
    pub own: Vec<PathBuf>,
}

/// A region.
#[derive(Debug, Serialize, Deserialize)]
pub struct RegionItem {
    /// Its number.
    pub id: u32,
    /// The user that owns it.
    pub uid: u32,
    /// Number and size of `netmap_if`s, rings and buffers.
    pub sizes: [(u32, u32); 3],
    /// Whether it uses huge pages.
    pub huge: bool,
    /// Device and inode of its user's file, and offset and length in it.
    pub file: Option<[u64; 4]>,
    /// Runs of used buffers.
    pub used_bufs: Option<Vec<Range<u32>>>,
    /// Its memory: one file, or its user's and that with what is not the user's.
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

/// A switch.
#[derive(Debug, Serialize, Deserialize)]
pub struct SwitchItem {
    /// Its name.
    pub name: String,
    /// The user that owns it.
    pub owner: u32,
    /// Its addresses (in wire order, first byte lowest, their VLANs above them), and the names of the ports behind
    /// which they were seen.
    pub addresses: Vec<(u64, String)>,
    /// The key by which it spreads flows over queues: each of them stays on its queue, and in order.
    #[serde(default)]
    pub flows: Option<[u64; 2]>,
}

/// A port.
#[derive(Debug, Serialize, Deserialize)]
pub struct PortItem {
    /// Its full name.
    pub name: String,
    /// Its switch and its name there, if it is on one.
    pub on: Option<(String, String)>,
    /// Its kind.
    pub kind: PortKind,
    /// The user that owns it and the process that made it.
    pub owner: CallerItem,
    /// What it was attached with, and whether that came from the configuration.
    pub declared: Option<(AttachParams, bool)>,
    /// Whether it stays when nobody holds its rings.
    pub persistent: bool,
    /// The bare name of a persistent port of netmap's; for a port that joins it to a second switch, the name, too.
    pub lasting: Option<String>,
    /// Whether it holds senders back.
    pub lossless: bool,
    /// Its policies.
    #[serde(default)]
    pub policies: Policies,
    /// How many frames each rule of its filters decided about.
    #[serde(default)]
    pub rules: Vec<u64>,
    /// Whether root or the daemon's own user has set some.
    #[serde(default)]
    pub policies_are_set: bool,
    /// Whether its workers are kept awake.
    pub polled: bool,
    /// Counters of its ingresses and egresses.
    pub counters: [Vec<Counts>; 2],
    /// What its kind needs to go on; if that says nothing, it is attached anew.
    pub state: Option<State>,
    /// For each ingress, the port names and rings for which frames wait, and how many.
    pub waiting: Vec<Vec<(String, usize, usize)>>,
    /// A file with these frames, if there are any.
    pub frames: Option<Fd>,
}

/// A pipe between programs.
#[derive(Debug, Serialize, Deserialize)]
pub struct PipeItem {
    /// Its name without the end.
    pub name: String,
    /// The user that owns it.
    pub uid: u32,
    /// Its region.
    pub region: u32,
    /// Slots of each ring.
    pub slots: u32,
    /// The first ring of each end.
    pub first: [u32; 2],
    /// The connections that hold each end, and whether they share it.
    pub held: [Vec<(u64, bool)>; 2],
    /// Offset rules of the rings of each end, tx first.
    pub offsets: [Vec<Option<[u32; 3]>>; 2],
    /// The end that is a virtual machine's: its port has said the rest.
    pub guest: Option<usize>,
    /// What is rung when frames have arrived, and when there is room, in each direction; not of a virtual machine's.
    pub bells: Vec<[Fd; 2]>,
}

/// A connection.
#[derive(Debug, Serialize, Deserialize)]
pub struct ClientItem {
    /// Its number, and who is at the other end.
    pub caller: CallerItem,
    /// Its socket.
    pub socket: Fd,
    /// What goes on there.
    pub connection: ConnectionItem,
}

/// What goes on on a connection.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionItem {
    /// Requests of the control protocol: bytes of an unfinished one, and of answers that were not sent.
    Control {
        /// Bytes of a request that is not complete.
        pending: Vec<u8>,
        /// Bytes of answers that the client has not taken yet.
        unsent: Vec<u8>,
        /// Whether the client has sent its last request.
        ended: bool,
        /// What events the client is told of, and the number of the last one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        events: Option<(SubscribeParams, u64)>,
    },
    /// A connection that holds a port, or may open one.
    Attach {
        /// What it holds, and its note.
        holds: Option<(HoldItem, Vec<u8>)>,
    },
}

/// What a connection holds of a port.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HoldItem {
    /// Rings of a switch's port.
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
    /// Rings of an interface.
    Interface {
        /// The connection that opened them.
        client: u64,
        /// The `netmap_if`.
        binding: BindingItem,
    },
    /// Rings with nothing behind them, which no other item is about.
    Bare {
        /// The rings.
        rings: State,
        /// The `netmap_if`.
        binding: BindingItem,
    },
    /// An end of a pipe.
    PipeEnd {
        /// The pipe's name without the end.
        pipe: String,
        /// The end.
        end: usize,
        /// The `netmap_if`.
        binding: BindingItem,
    },
}

/// An application's `netmap_if`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct BindingItem {
    /// Its number.
    pub index: u32,
    /// How many extra buffers it had at first.
    pub extra_bufs: u32,
}

impl From<&Binding> for BindingItem {
    fn from(binding: &Binding) -> Self {
        BindingItem { index: binding.index(), extra_bufs: binding.extra_bufs() }
    }
}

/// What a kind of port needs to go on in another process, while nothing of it moves.
pub struct ParkedPort {
    /// What it says of itself.
    pub state: State,
    /// What pauses until it is dropped, which happens only if no successor goes on.
    pub paused: Vec<Box<dyn Any>>,
}

impl ParkedPort {
    /// The state of a port, and what pauses.
    ///
    /// # Errors
    /// It cannot be written down.
    pub fn of<T: Any>(state: &impl Serialize, paused: impl IntoIterator<Item = T>) -> std::io::Result<ParkedPort> {
        let paused = paused.into_iter().map(|one| Box::new(one) as Box<dyn Any>).collect();
        Ok(ParkedPort { state: State::of(state)?, paused })
    }
}

/// Of a port that has no threads of its own.
impl From<State> for ParkedPort {
    fn from(state: State) -> ParkedPort {
        ParkedPort { state, paused: Vec::new() }
    }
}
