//! virtio-net by vhost-user.
//!
//! | module | what it is |
//! |---|---|
//! | [`driver`] | the other end: a virtio-net driver |
//! | [`memory`] | the guest's memory, addresses checked |
//! | [`queue`] | virtqueues, split and packed, the device's side |
//! | [`net`] | virtio-net queues as ingress and egress |
//! | [`proto`] | vhost-user messages |
//! | [`port`] | a socket, a device behind it |

pub mod driver;
pub mod memory;
pub mod net;
pub mod port;
pub mod proto;
pub mod queue;
