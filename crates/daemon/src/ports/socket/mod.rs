//! Ports whose peers are at sockets: `stream:`, `dgram:`, `seqpacket:`, `unixgram:`, `vde:`.
//!
//! | module | what it is |
//! |---|---|
//! | [`attach`] | attaches a port, new or restored |
//! | `port` | backend of a port: a line of an exchange |
//! | [`peers`] | gives new peers lines, and disconnects those that leave |
//! | [`kernel`] | kernel needs of these kinds |

pub mod attach;
pub mod kernel;
pub mod peers;
mod port;

pub use port::LINE;
