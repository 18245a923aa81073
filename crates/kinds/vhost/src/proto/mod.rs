//! vhost-user: messages, and the device's side of the protocol (QEMU, docs/interop/vhost-user.rst).
//!
//! | module | what it is |
//! |---|---|
//! | [`message`] | messages as bytes |
//! | [`wire`] | the socket that carries messages and descriptors |
//! | [`device`] | the effect of messages on netvale's device, without sockets |
//! | [`state`] | saved state of the device |
//! | `migrate` | the device's part in a guest's migration |

pub mod device;
pub mod message;
mod migrate;
pub mod state;
pub mod wire;
