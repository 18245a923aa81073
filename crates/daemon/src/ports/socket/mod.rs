//! Ports whose peers are at sockets: `stream:`, `dgram:`, `seqpacket:`, `unixgram:`, `vde:`.
//!
//! | module | what it is |
//! |---|---|
//! | [`attach`] | attaches a port, new or restored |
//! | `port` | backend of a port: a line (one peer's place) of an exchange |
//! | [`peers`] | assigns lines to new peers, and disconnects peers that leave |
//! | [`methods`] | makes lines before their peers come |
//! | [`kernel`] | kernel needs of these kinds |

pub mod attach;
pub mod kernel;
pub mod methods;
pub mod peers;
mod port;

pub use port::LINE;
