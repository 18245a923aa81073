//! vhost-user, from both ends: a protocol by which virtio-net devices are had from another process.
//!
//! | module | what it is |
//! |---|---|
//! | [`features`] | feature bits that are vhost-user's, and what our device offers |
//! | [`proto`] | messages, and what they do to our device |
//! | [`log`] | which pages a device wrote to, while its guest moves |
//! | [`inflight`] | what is kept of queues for a back end after us |
//! | [`port`] | a socket, our device behind it |
//! | [`frontend`] | the other end: a back end's device, for our driver |
//!
//! What a queue is, and how frames pass it, is virtio's: [`netvale_virtio`].

pub mod features;
pub mod frontend;
pub mod inflight;
pub mod log;
pub mod port;
pub mod proto;
