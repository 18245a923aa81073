//! FRR as the control plane of netvale's VXLAN ports (EVPN, RFC 7432 and 8365).
//!
//! FRR's zebra uses VXLAN only through the kernel's devices. For each VXLAN port with EVPN, this crate's *agent*
//! therefore creates kernel devices: a bridge, a VXLAN device and a port for local addresses. These devices carry no
//! traffic. They are a *mirror*, through which zebra sees the daemon's MAC addresses and the agent sees zebra's MAC
//! addresses. Each VXLAN port is the end of a tunnel to other hosts; the IP address of a tunnel's end is a VTEP (VXLAN
//! tunnel endpoint).
//!
//! ```text
//!                       the kernel's mirror of VNI 100
//!  daemon                    nvb100 (bridge)                     zebra ── bgpd ── peers
//!    │ vxlan.local ─► agent ─► nvl100: local addresses ──────────► │  type-2 routes
//!    │                agent ─► nvb100: neighbours (MAC/IP) ──────► │
//!    ▲ vxlan.set ◄─── agent ◄─ nvx100: remote addresses ◄───────── │
//!                     agent ◄─ nvx100: flood list ◄─────────────── │  type-3 routes
//!                     agent ◄─ nvb100: remote neighbours ◄──────── │
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | [`entry`] | a MAC address, a VTEP or a neighbour in the kernel's tables |
//! | [`devices`] | creates, reuses and removes the devices of a mirror |
//! | [`tables`] | the kernel's tables for one VNI |
//! | [`feed`] | the remote entries that were sent to the daemon, and withdrawals that wait |
//! | [`listed`] | the daemon's list of local addresses, and the resulting changes to the kernel |
//! | [`session`] | the connection to the daemon |
//! | [`instance`] | one VNI, with its tables, feed, list and mirror |
//! | [`agent`] | the agent's loop |
//! | [`report`] | the status of each VNI, for people and scripts |
#![forbid(unsafe_code)]

pub mod agent;
pub mod devices;
pub mod entry;
pub mod feed;
pub mod instance;
pub mod listed;
pub mod report;
pub mod session;
pub mod tables;

use std::time::Duration;

/// Default UDP port of the mirrors' VXLAN devices. The daemon's socket uses VXLAN's standard port.
pub const MIRROR_UDP_PORT: u16 = 14_789;
/// Default time for which entries are kept after zebra has withdrawn them together with their VTEP.
pub const HOLD: Duration = Duration::from_secs(30);

/// Maximum number of VNIs with EVPN.
pub const MAX_INSTANCES: usize = 4096;
/// Maximum number of local MAC addresses of a VNI, and maximum number of its remote MAC addresses. Further addresses
/// are ignored.
pub const MAX_ADDRESSES: usize = 1 << 18;
/// Maximum number of local IP addresses of a VNI, and maximum number of its remote IP addresses.
pub const MAX_NEIGHBORS: usize = 1 << 18;
/// Maximum number of VTEPs of a VNI: the VTEPs on the flood list, and the VTEPs behind which MAC addresses are.
pub const MAX_VTEPS: usize = 4096;
/// Maximum number of IP addresses of one local MAC address.
pub const MAX_IPS_OF_ADDRESS: usize = 256;
