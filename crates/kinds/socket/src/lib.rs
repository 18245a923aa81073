//! Ports whose peers are at sockets: QEMU's streams and datagrams, VDE's plugs, User-Mode Linux, libkrun, and their
//! like. A port is a [line](SocketLine): its queues stay while peers come and go. What peers connect through is an
//! [exchange](Exchange).
//!
//! ```text
//!  socket ──► reader (frames of a stream, or messages) ──► PeerIngress ──► switch ──► PeerEgress ──► socket
//!                                                          └───── seats of a line ──────┘
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | [`line`](mod@line) | what stays of a port while peers come and go |
//! | [`state`] | what another process needs to go on with one |
//! | [`exchange`] | how peers come: a listening socket, attempts to connect, datagrams |
//! | [`vde`] | requests of VDE's plugs |
//! | [`ingress`], [`egress`] | a peer's queues; `backlog` is the rest of a frame that was begun |
//! | `reader` | frames of a stream, and messages |
//! | [`rules`] | what frames are, and how long |
//! | `parts` | the common parts of a peer's queues |
//! | `news`, `room` | what workers tell of a peer, and whether its socket is watched for room |
//! | `sys` | system calls |

mod backlog;
pub mod egress;
pub mod exchange;
pub mod ingress;
pub mod line;
mod news;
mod parts;
mod reader;
mod room;
pub mod rules;
pub mod state;
mod sys;
pub mod vde;

pub use exchange::{Exchange, PeerArrival};
pub use line::{LeftPeer, LineQueues, LineStory, SocketLine, SocketPeer};
pub use rules::{FrameFormat, FrameRules};
pub use state::{LineState, SocketPeerState};
