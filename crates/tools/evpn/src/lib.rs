//! FRR as the control plane of netvale's VXLAN ports (EVPN, RFC 7432 and 8365).
//!
//! FRR's zebra knows VXLAN by the kernel's devices only. So this crate's *agent* makes some for each VXLAN port that
//! has EVPN: a bridge, a VXLAN device and a port for local addresses. They carry no traffic; they are a *mirror*, in
//! which zebra sees what the daemon knows, and the agent what zebra knows:
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
//! | [`entry`] | what the kernel says of a MAC address, a VTEP or a neighbour |
//! | [`devices`] | the devices of a mirror: made, continued, removed |
//! | [`tables`] | what the kernel's tables hold for one VNI |
//! | [`feed`] | what the daemon was told of them, and withdrawals that are held |
//! | [`listed`] | local addresses as the daemon lists them, and what has to change in the kernel |
//! | [`session`] | the connection to the daemon |
//! | [`instance`] | one VNI: all of these together |
//! | [`agent`] | the loop |
//! | [`report`] | what there is, for people and scripts |
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

/// UDP port of the mirror's VXLAN devices: another than VXLAN's own, whose socket is the daemon's.
pub const MIRROR_UDP_PORT: u16 = 14_789;
/// How long what is withdrawn together with its VTEP is kept all the same.
pub const HOLD: Duration = Duration::from_secs(30);

/// Most VNIs with EVPN.
pub const MAX_INSTANCES: usize = 4096;
/// Most MAC addresses of a VNI, local and remote ones each; those beyond are not taken.
pub const MAX_ADDRESSES: usize = 1 << 18;
/// Most IP addresses of a VNI, local and remote ones each.
pub const MAX_NEIGHBORS: usize = 1 << 18;
/// Most VTEPs on the flood list of a VNI.
pub const MAX_VTEPS: usize = 4096;
/// Most IP addresses of one local MAC address.
pub const MAX_IPS_OF_ADDRESS: usize = 256;
