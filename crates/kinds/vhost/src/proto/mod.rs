//! vhost-user: messages, and the device's side of the conversation (QEMU, docs/interop/vhost-user.rst).
//!
//! | module | what it is |
//! |---|---|
//! | [`message`] | messages as bytes |
//! | [`wire`] | a socket that carries them, with descriptors |
//! | [`device`] | the effect of messages on netvale's device, without sockets |
//! | [`state`] | what another process needs to go on with the device |
//! | `migrate` | the device's part when its guest moves to another host |

pub mod device;
pub mod message;
mod migrate;
pub mod state;
pub mod wire;
