//! The hand-over of a daemon to its successor, which restores the ports where they stopped: items, with their
//! descriptors, over a socket.
//!
//! The sender is not trusted: a successor checks descriptors and numbers like those of a peer. Incompatible versions
//! ([`netvale_control::succession::VERSION`]) are refused before anything stops.
//!
//! State kept by the service manager has no version of its own: it is read like a configuration, and unreadable items
//! are attached anew.

pub mod items;
pub mod kinds;
pub mod parts;
pub mod store;
pub mod touched;
pub mod wire;
