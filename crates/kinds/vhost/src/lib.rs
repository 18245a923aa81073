//! Both ends of vhost-user, a protocol through which one process uses a virtio-net device of another process.
//!
//! | module | what it is |
//! |---|---|
//! | [`features`] | feature bits of vhost-user, and the features that netvale's device offers |
//! | [`proto`] | messages, and their effects on netvale's device |
//! | [`log`] | the dirty log: pages written by a device while its guest migrates |
//! | [`inflight`] | the state of queues that survives the back end |
//! | [`port`] | a port: a socket, a device behind it, and their saved state |
//! | [`frontend`] | the front end's side: a back end's device, for netvale's driver |
//!
//! Virtqueues and the path of frames are in [`netvale_virtio`].

pub mod features;
pub mod frontend;
pub mod inflight;
pub mod log;
pub mod port;
pub mod proto;
