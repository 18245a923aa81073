//! Ports whose peers are at sockets: `stream:`, `dgram:`, `seqpacket:`, `unixgram:`, `vde:`.
//!
//! | module | what it is |
//! |---|---|
//! | [`attach`] | attaches a new or restored port |
//! | `port` | backend of a port: a line (one peer's place) of an exchange (all lines of an attached port) |
//! | [`peers`] | assigns lines to new peers, and disconnects peers that leave |
//! | [`methods`] | creates lines before their peers connect |
//! | [`kernel`] | system calls that the sandbox permits for these kinds |

pub mod attach;
pub mod kernel;
pub mod methods;
pub mod peers;
mod port;

pub use port::LINE;
