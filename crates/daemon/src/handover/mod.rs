//! The hand-over of a daemon to its successor, which restores the ports exactly as they were. The hand-over transfers
//! items, with their descriptors, over a socket.
//!
//! The sender is not trusted: a successor checks descriptors and numbers as if they came from a peer. Incompatible
//! versions ([`netvale_control::succession::VERSION`]) are refused before the predecessor stops anything.
//!
//! State in the service manager's store has no version. It is read like a configuration file: a port whose state cannot
//! be read is attached anew.

pub mod items;
pub mod kinds;
pub mod parts;
pub mod store;
pub mod touched;
pub mod wire;
