//! Ports whose peers are at sockets: `stream:`, `dgram:`, `seqpacket:`, `unixgram:`, `vde:`.
//!
//! | module | what it is |
//! |---|---|
//! | [`attach`] | makes a port, or goes on with one |
//! | `port` | what is behind a port: a line of an exchange |
//! | [`peers`] | seats peers that come, and ends those that go |
//! | [`methods`] | makes lines before their peers come |
//! | [`kernel`] | what these kinds need of the kernel |

pub mod attach;
pub mod kernel;
pub mod methods;
pub mod peers;
mod port;

pub use port::LINE;
