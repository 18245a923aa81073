//! Parameters and results for ports: attaching, detaching, showing.

pub use netvale_portspec::PortKind;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Drops, PortOptions};
use crate::kinds::{Detail, PortDetail};

/// Parameters of `port.attach`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttachParams {
    /// Switch, e.g. `vale0`. It is created if it does not exist. Empty with [`PortOptions::backend`].
    pub switch: String,
    /// The port to attach, in the grammar of `netvale attach`: `a`, `vale0:a`, `tap:NAME`, `pcap:FILE`,
    /// `pcap:in=FILE,out=FILE`.
    pub port: String,
    /// The port's options.
    #[serde(default)]
    pub options: PortOptions,
}

/// Parameters of `port.detach`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DetachParams {
    /// Switch, e.g. `vale0`.
    pub switch: String,
    /// The port's name on the switch, e.g. `a`.
    pub port: String,
}

/// Parameters of `port.list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ListParams {
    /// Limits the list to this switch's ports; `None` lists all ports.
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

/// Parameters of `port.set`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetParams {
    /// Full name, e.g. `vale0:a`.
    pub port: String,
    /// New values of policies and of `mtu`, by key; null restores the default. If one value is invalid, no value
    /// changes.
    pub set: Map<String, Value>,
}

/// A port. Only `port.show` returns [`PortInfo::rings`]; `port.list` and `port.attach` omit them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortInfo {
    /// Full name, e.g. `vale0:a` or `netmap:p{1`.
    pub name: String,
    /// Name of the port's switch; `None` for a pipe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch: Option<String>,
    /// The kind of port.
    pub kind: PortKind,
    /// Whether the port is open.
    pub state: PortState,
    /// User and process that created the port; `None` for ports of the configuration file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
    /// The port's region; `None` for ports without one, such as a TAP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<RegionInfo>,
    /// Bytes of virtio-net header before each frame: 0, 10 or 12.
    pub vnet_hdr: u32,
    /// Whether the port holds senders back when full.
    pub lossless: bool,
    /// Dropped frames of all the port's rings, by reason.
    #[serde(default, skip_serializing_if = "Drops::is_empty")]
    pub drops: Drops,
    /// The port's policies that are set, by key.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub policies: Map<String, Value>,
    /// Rules of the port's filters, in order; the rules for sent frames come first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleInfo>,
    /// The port's rings, `in` rings first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rings: Vec<RingInfo>,
    /// Details specific to the kind of port, under the kind's name; `None` for a kind without details.
    #[serde(flatten)]
    pub detail: Option<PortDetail>,
    /// Notes for the port's user, e.g. `buffer used twice`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A rule of a filter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleInfo {
    /// `in` for frames that the port sends, `out` for frames that it receives.
    pub dir: Direction,
    /// Whether matching frames are dropped.
    pub drops: bool,
    /// The expression, in the language of pcap-filter(7); the program if the expression is unknown.
    pub expression: String,
    /// Number of frames that this rule decided.
    pub frames: u64,
}

/// A program that lost its port, because the program's doorbell blocked the daemon, or the port's memory vanished (the
/// file that backs it was truncated).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvictionInfo {
    /// Full name of the port, e.g. `vale0:a`. A new port may have taken the name.
    pub port: String,
    /// User and process that created the port.
    pub owner: Owner,
    /// The reason for the eviction.
    pub reason: String,
    /// Seconds since the eviction.
    pub age_seconds: u64,
}

/// Whether a port is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PortState {
    /// The port waits for a program to open it; the switch delivers to it until its rings are full.
    #[default]
    Idle,
    /// A program holds at least one of the port's rings, or an end of the pipe. A port to a device is always open.
    Open,
}

impl PortState {
    /// Returns the protocol's word for this state.
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

/// User and process that created a port, as reported by the kernel (`SO_PEERCRED`) at that time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// User ID.
    pub uid: u32,
    /// Process ID.
    pub pid: i32,
}

/// A region: memory with the rings and buffers of one or several ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionInfo {
    /// Number of the region; ports with the same number share memory.
    pub id: u32,
    /// Total size in bytes.
    pub bytes: u64,
    /// Buffer size in bytes.
    pub buf_size: u32,
    /// Number of buffers.
    pub bufs: u32,
    /// Whether the region is on huge pages.
    pub huge: bool,
}

/// The direction of a ring's frames, seen from the switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// The port sends into the switch: a tx ring in netmap's terms.
    #[default]
    In,
    /// The switch delivers to the port: an rx ring in netmap's terms.
    Out,
}

impl Direction {
    /// Returns the protocol's word for this direction.
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

/// A netmap ring, or a queue of a port without netmap rings; the slot indices of such a queue are 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingInfo {
    /// Direction of the ring's frames.
    pub dir: Direction,
    /// Number among the port's rings of that direction, from 0.
    pub index: u32,
    /// Number of slots.
    pub slots: u32,
    /// First slot the application owns, as the application last published it.
    pub head: u32,
    /// The application's wake-up index, as the application last published it.
    pub cur: u32,
    /// First slot the application does not own, as its last sync left it in the ring's header. Until the next sync, it
    /// may lag behind [`hwtail`](Self::hwtail).
    pub tail: u32,
    /// First slot the daemon has not taken yet.
    pub hwcur: u32,
    /// First slot that the daemon has not passed to the application yet.
    pub hwtail: u32,
    /// Number of frames that have passed through the ring.
    pub frames: u64,
    /// Number of bytes in the frames that have passed through the ring, without virtio-net headers.
    pub bytes: u64,
    /// Frames dropped, by reason; reasons without a drop are omitted.
    #[serde(default)]
    pub drops: Drops,
    /// Frames that arrived without a receiver: no program has the ring open, the guest has no driver, the interface is
    /// down. Not counted among drops.
    #[serde(default)]
    pub idle: u64,
    /// Kicks (wake-ups by eventfd) that the daemon sent to the application.
    pub kicks_sent: u64,
    /// Kicks that the daemon did not send, because the application had not armed `need_kick`.
    pub kicks_suppressed: u64,
    /// Kicks that the daemon received from the application.
    pub kicks_received: u64,
    /// The worker that takes frames from this ring; `None` for `out` rings, to which every worker delivers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<u32>,
}

impl PortInfo {
    /// Returns the details specific to one kind of port; `None` if the port is of another kind.
    #[must_use]
    pub fn detail<D: Detail<PortDetail>>(&self) -> Option<&D> {
        self.detail.as_ref().and_then(D::of)
    }
}
