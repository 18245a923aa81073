//! Communication of programs with the daemon: the control protocol (JSON-RPC 2.0) and the attach handshake.
//!
//! | module | what it is |
//! |---|---|
//! | [`types`] | parameters and results of the control protocol's methods |
//! | [`options`] | the options of an attached port, defined once |
//! | [`request`] | the methods as one enum each for requests and replies |
//! | [`error`] | errors of the protocol |
//! | `params` | parses a request's parameters |
//! | [`dirs`] | paths of the daemon's sockets |
//! | [`framing`] | splits a stream into lines |
//! | [`server`] | the daemon's side: bytes in, bytes out |
//! | [`client`] | the client's side: connections and requests |
//! | [`attach`] | the attach handshake's messages |
//! | [`device`] | netmap's control requests on the same connection |
//! | [`succession`] | the messages of a daemon's successor on the same connection |
//! | [`kinds`] | data specific to a kind of port: details, counters, requests |
//! | `mac` | an Ethernet address as text |
//!
//! `docs/reference/control-protocol.md` describes the protocol for programs that do not use this crate.
#![forbid(unsafe_code)]

pub mod attach;
pub mod client;
pub mod device;
pub mod dirs;
pub mod error;
pub mod framing;
pub mod kinds;
mod mac;
pub mod options;
mod params;
pub mod request;
pub mod server;
pub mod succession;
pub mod types;

pub use error::{ErrorCode, RpcError};
pub use request::{Reply, Request};

/// Writes a line to standard error. The line is lost if standard error is closed or full; `eprintln!` would panic,
/// which a library must not do to its program.
#[macro_export]
macro_rules! note {
    ($($text:tt)*) => {{
        use ::std::io::Write as _;
        let _ = ::std::writeln!(::std::io::stderr().lock(), $($text)*);
    }};
}
