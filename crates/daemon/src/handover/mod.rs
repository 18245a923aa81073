//! What a daemon hands over to its successor, which continues its ports where they stopped: items, with their
//! descriptors in them, over a socket.
//!
//! Nothing in it is believed because of who sent it: a successor checks descriptors and numbers as if a peer had passed
//! them. Versions that do not fit ([`netvale_control::succession::VERSION`]) are refused before anything stops.
//!
//! What the service manager keeps has no version of its own: it is read like a configuration, and what cannot be read
//! is attached anew.

pub mod items;
pub mod kinds;
pub mod parts;
pub mod store;
pub mod touched;
pub mod wire;
