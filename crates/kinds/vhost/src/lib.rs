//! vhost-user, from both ends: a protocol by which one process uses virtio-net devices of another.
//!
//! | module | what it is |
//! |---|---|
//! | [`features`] | feature bits of vhost-user, and the features that netvale's device offers |
//! | [`proto`] | messages, and their effects on netvale's device |
//! | [`log`] | the dirty log: pages that a device wrote to while its guest moves |
//! | [`inflight`] | the state of queues that survives the back end |
//! | [`port`] | a socket, our device behind it; what another process needs to go on with it |
//! | [`frontend`] | the other end: a back end's device, for our driver |
//!
//! Queues, and how frames pass them, are virtio's: [`netvale_virtio`].

pub mod features;
pub mod frontend;
pub mod inflight;
pub mod log;
pub mod port;
pub mod proto;
