//! VXLAN (RFC 7348) as a switch's port: Ethernet frames in UDP datagrams, to other hosts' tunnel endpoints (VTEPs).
//!
//! ```text
//!   switch ──▶ egress ──▶ table: address → VTEP ──▶ sender ──▶ UDP sockets ──▶ underlay
//!                            ▲ learned, or given                (source port: the flow's)
//!   switch ◀── ingress ◀─────┘◀── endpoint: VNI → tunnel ◀────── UDP socket, port 4789
//! ```
//!
//! Sockets are ordinary and need no privilege. Frames of one flow and of equal length leave as one message, which the
//! kernel cuts into datagrams (UDP GSO); the receiver's kernel merges the datagrams back into one message (UDP GRO).
//!
//! | module | what it is |
//! |---|---|
//! | [`header`] | the header before a frame |
//! | [`table`] | the VTEP of each Ethernet address |
//! | [`peers`] | known VTEPs, and those that get flooded frames |
//! | [`tunnel`] | state shared by the queues of one VNI |
//! | [`endpoint`] | the UDP socket of one address, shared by its tunnels |
//! | [`ingress`], [`egress`] | a tunnel's queues, for the switch |
//! | `ecn` | congestion marks of routers |
//! | [`partial`] | datagrams with a frame that stands for several packets |
//! | [`neighbors`] | answers to requests for addresses (ARP, ND) |
//! | [`heard`] | IP addresses claimed by stations behind this host's ports |
//! | [`too_long`] | replies to senders of frames that do not fit |
//! | [`ip`] | addresses of VTEPs as words |
//! | [`check`] | checks whether a remote endpoint is reachable |
//! | `sender` | packs frames into datagrams and sends them |
//! | `sys` | system calls that send and receive several datagrams a message |

pub mod check;
mod ecn;
pub mod egress;
pub mod endpoint;
pub mod header;
pub mod heard;
pub mod ingress;
pub mod ip;
pub mod neighbors;
pub mod partial;
pub mod peers;
mod sender;
mod sys;
pub mod table;
pub mod too_long;
pub mod tunnel;

pub use egress::TunnelEgress;
pub use endpoint::{Endpoint, EndpointError};
pub use ingress::TunnelIngress;
pub use tunnel::{Tunnel, TunnelOptions};
