//! Ports: attaching, detaching, showing.

use serde::{Deserialize, Serialize};

use super::{Drops, Mac, PortOptions};

/// Parameters of `port.attach`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttachParams {
    /// Switch, e.g. `vale0`. Made where there is none. Empty with [`PortOptions::backend`].
    pub switch: String,
    /// What to attach, in the grammar of `netvale attach`: `a`, `vale0:a`, `tap:NAME`, `pcap:FILE`, `pcap:in=FILE,out=FILE`.
    pub port: String,
    /// How.
    #[serde(default)]
    pub options: PortOptions,
}

/// Parameters of `port.detach`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DetachParams {
    /// Switch, e.g. `vale0`.
    pub switch: String,
    /// The port's name on it, e.g. `a`.
    pub port: String,
}

/// Parameters of `port.list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ListParams {
    /// Only this switch's ports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switch: Option<String>,
}

/// Parameters of `port.show`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShowParams {
    /// Full name, e.g. `vale0:a`.
    pub port: String,
}

/// A port. `port.show` gives all of it; `port.list` and `port.attach` leave [`PortInfo::rings`] empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortInfo {
    /// Full name, e.g. `vale0:a` or `netmap:p{1`.
    pub name: String,
    /// Its switch; a pipe has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch: Option<String>,
    /// What it is.
    pub kind: PortKind,
    /// Whether anybody has it open.
    pub state: PortState,
    /// Who made it; none for those of the configuration file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
    /// Its memory; none for ports without a region, such as a TAP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<RegionInfo>,
    /// Bytes of virtio-net header before each frame: 0, 10 or 12.
    pub vnet_hdr: u32,
    /// Whether senders are held back when it is full.
    pub lossless: bool,
    /// Frames dropped, by reason, over all its rings.
    #[serde(default, skip_serializing_if = "Drops::is_empty")]
    pub drops: Drops,
    /// Its rings, in first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rings: Vec<RingInfo>,
    /// Of a vhost-user device: what attaches a virtual machine to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vhost: Option<VhostInfo>,
    /// Of a ptnet device: what attaches a virtual machine to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ptnet: Option<PtnetInfo>,
    /// Of an e1000: what attaches a virtual machine to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub e1000: Option<E1000Info>,
    /// What its user should know, e.g. `buffer used twice`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A program that lost its port: it made somebody wait who wakes it, or its memory is gone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evicted {
    /// Full name of the port, e.g. `vale0:a`. There may be a new one of that name.
    pub port: String,
    /// Who had made it.
    pub owner: Owner,
    /// Why.
    pub reason: String,
    /// How long ago that was.
    pub age_seconds: u64,
}

/// A vhost-user device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VhostInfo {
    /// Its socket.
    pub path: String,
    /// Whether it connects there, instead of listening.
    pub client: bool,
    /// Queue pairs.
    pub pairs: u32,
    /// Ethernet address offered to the driver.
    pub mac: Mac,
    /// MTU offered to the driver.
    pub mtu: u32,
}

/// An Intel 82540EM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct E1000Info {
    /// Its socket.
    pub path: String,
    /// Ethernet address in its EEPROM.
    pub mac: Mac,
    /// Registers that guests have read, and written: each takes a guest out of its work.
    pub register_reads: u64,
    /// See above.
    pub register_writes: u64,
    /// Interrupts sent to guests.
    pub interrupts: u64,
}

/// A ptnet device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PtnetInfo {
    /// Its socket.
    pub path: String,
    /// By vfio-user: the memory device's socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// Doorbells and interrupt vectors.
    pub vectors: u32,
    /// Ethernet address.
    pub mac: Mac,
    /// MTU.
    pub mtu: u32,
}

/// What a port is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PortKind {
    /// Rings that local processes open.
    #[default]
    Local,
    /// A pipe between two processes.
    Pipe,
    /// A TAP device.
    Tap,
    /// Capture files.
    Pcap,
    /// A vhost-user device, for a virtual machine.
    Vhost,
    /// A virtio-net driver on a vhost-user back end.
    Virtio,
    /// A ptnet device, for a virtual machine.
    Ptnet,
    /// An Intel 82540EM, for a virtual machine.
    E1000,
    /// A network interface.
    Nic,
    /// A copy of another port's traffic.
    Monitor,
    /// Swallows every frame.
    Null,
    /// Sends every frame back.
    Echo,
}

impl PortKind {
    /// The word the protocol has for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            PortKind::Local => "local",
            PortKind::Pipe => "pipe",
            PortKind::Tap => "tap",
            PortKind::Pcap => "pcap",
            PortKind::Vhost => "vhost",
            PortKind::Virtio => "virtio",
            PortKind::Ptnet => "ptnet",
            PortKind::E1000 => "e1000",
            PortKind::Nic => "nic",
            PortKind::Monitor => "monitor",
            PortKind::Null => "null",
            PortKind::Echo => "echo",
        }
    }
}

impl std::fmt::Display for PortKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// Whether anybody has a port open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PortState {
    /// It waits for a program to open it; the switch delivers to it until its rings are full.
    #[default]
    Idle,
    /// A program has at least one of its rings, or an end of the pipe. A device is always open.
    Open,
}

impl PortState {
    /// The word the protocol has for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            PortState::Idle => "idle",
            PortState::Open => "open",
        }
    }
}

impl std::fmt::Display for PortState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// User and process that made a port, as the kernel vouched for them then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// User.
    pub uid: u32,
    /// Process.
    pub pid: i32,
}

/// A region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionInfo {
    /// Number; ports that give the same number share memory.
    pub id: u32,
    /// Bytes in all.
    pub bytes: u64,
    /// Bytes a buffer.
    pub buf_size: u32,
    /// Buffers.
    pub bufs: u32,
    /// Whether it lies on huge pages.
    pub huge: bool,
}

/// Which way a ring carries frames, as the switch sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// The port sends into the switch: netmap's tx ring.
    #[default]
    In,
    /// The switch delivers to the port: netmap's rx ring.
    Out,
}

impl Direction {
    /// The word the protocol has for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Direction::In => "in",
            Direction::Out => "out",
        }
    }
}

impl std::fmt::Display for Direction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// A ring, or a queue that stands for one. Indices are 0 where there is no netmap ring.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingInfo {
    /// Direction.
    pub dir: Direction,
    /// Number among the port's rings of that direction, from 0.
    pub index: u32,
    /// Slots.
    pub slots: u32,
    /// First slot the application owns, as the application last published it.
    pub head: u32,
    /// Where the application wants to be woken, as it last published it.
    pub cur: u32,
    /// First slot the application does not own, as its last sync left it in the ring's header; behind
    /// [`hwtail`](Self::hwtail) until it syncs again.
    pub tail: u32,
    /// First slot the daemon has not yet taken.
    pub hwcur: u32,
    /// First slot the daemon owns after those it has handed to the application.
    pub hwtail: u32,
    /// Frames that passed.
    pub frames: u64,
    /// Bytes of those, without any virtio-net header.
    pub bytes: u64,
    /// Frames dropped, by reason; reasons without a drop are omitted.
    #[serde(default)]
    pub drops: Drops,
    /// Kicks the daemon sent to the application.
    pub kicks_sent: u64,
    /// Kicks the daemon saved because the application did not ask for them.
    pub kicks_suppressed: u64,
    /// Kicks the daemon got from the application.
    pub kicks_received: u64,
    /// Worker that takes from it; none for `out` rings, to which every worker delivers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<u32>,
}
