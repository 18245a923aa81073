//! How programs talk to the daemon: the control protocol (JSON-RPC 2.0) and the attach handshake.
//!
//! | module | what it is |
//! |---|---|
//! | [`types`] | what the control protocol's methods take and give |
//! | [`options`] | the options of an attached port, defined once |
//! | [`request`] | the methods as one enum each for requests and replies |
//! | [`error`] | errors as the protocol carries them |
//! | [`dirs`] | where the daemon's sockets are |
//! | [`framing`] | lines out of a stream |
//! | [`server`] | the daemon's side: bytes in, bytes out |
//! | [`client`] | the other side: connect, ask |
//! | [`attach`] | the attach handshake's messages |
//! | [`device`] | netmap's control requests on the same connection |
//!
//! `docs/reference/control-protocol.md` describes the protocol for those who speak it without this crate.
#![forbid(unsafe_code)]

pub mod attach;
pub mod client;
pub mod device;
pub mod dirs;
pub mod error;
pub mod framing;
mod mac;
pub mod options;
pub mod request;
pub mod server;
pub mod types;

pub use error::{ErrorCode, RpcError};
pub use request::{Reply, Request};
