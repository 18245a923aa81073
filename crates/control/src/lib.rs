//! The control protocol (JSON-RPC 2.0) and the attach handshake.

pub mod attach;
pub mod dirs;
