//! Ports with peers at sockets: QEMU's streams and datagrams, VDE's plugs, User-Mode Linux, libkrun, and similar
//! programs. A port consists of [lines](SocketLine), whose queues stay while peers come and go. An [exchange](Exchange)
//! connects peers with lines.
//!
//! ```text
//!  socket ──► reader (frames of a stream, or messages) ──► PeerIngress ──► switch ──► PeerEgress ──► socket
//!                                                          └───── seats of a line ──────┘
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | [`line`](mod@line) | the part of a port that stays while peers come and go |
//! | [`state`] | the state of a line for a successor |
//! | [`exchange`] | sources of peers: a listening socket, attempts to connect, datagrams |
//! | [`vde`] | requests of VDE's plugs |
//! | [`ingress`], [`egress`] | a peer's queues; `backlog` is accepted data that waits for room |
//! | `reader` | reads frames from streams and messages |
//! | [`rules`] | the format and length of frames |
//! | `parts` | the common parts of a peer's queues |
//! | `news`, `room` | workers' reports about a peer; the wait for room in its socket |
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
