//! VXLAN (RFC 7348) as a switch's port: Ethernet frames in UDP datagrams, to other hosts' tunnel endpoints (VTEPs).
//!
//! ```text
//!   switch ──▶ egress ──▶ table: address → VTEP ──▶ sender ──▶ UDP sockets ──▶ underlay
//!                            ▲ learned, or given                (source port: the flow's)
//!   switch ◀── ingress ◀─────┘◀── endpoint: VNI → tunnel ◀────── UDP socket, port 4789
//! ```
//!
//! Sockets are ordinary ones, so that no privilege is needed. Frames of one flow and length leave as one datagram that
//! the kernel cuts (UDP GSO), and come as one that it has put together (UDP GRO).
//!
//! | module | what it is |
//! |---|---|
//! | [`header`] | the header in front of a frame |
//! | [`table`] | which address is behind which VTEP |
//! | [`peers`] | the VTEPs that are known, and those that get what goes to all |
//! | [`tunnel`] | what the queues of one VNI share |
//! | [`endpoint`] | the UDP socket of one address, shared by its tunnels |
//! | [`ingress`], [`egress`] | a tunnel's queues, as a switch sees them |
//! | `ecn` | marks of congested routers |
//! | [`partial`] | datagrams whose frame stands for several |
//! | [`neighbors`] | requests for addresses (ARP, ND) that are answered here |
//! | [`heard`] | who has said to have which address, by whose ports they are behind |
//! | [`too_long`] | what a sender is told whose frame does not fit |
//! | [`ip`] | addresses of VTEPs as words |
//! | [`check`] | whether another host's endpoint answers |
//! | `sender` | puts frames together to datagrams, and sends them |
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
