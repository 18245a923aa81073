//! TAP devices as switch ports: the host's network stack.
//!
//! The queues use virtio-net headers: the stack sends and accepts whole 64 KiB segments without checksums
//! (linux/if_tun.h; virtio 1.3 §5.1.6). Such a segment crosses the switch unchanged between two TAPs.
//!
//! | module | what it is |
//! |---|---|
//! | [`device`] | opens a TAP |
//! | [`adopt`](mod@adopt) | takes over a TAP that another program opened |
//! | [`restore`] | restores a predecessor's TAP |
//! | [`link`] | the state of the TAP's interface, which may be deleted |
//! | [`ingress`], [`egress`] | the TAP's queues, for the switch |
//! | `sys` | the ioctls of /dev/net/tun and of interfaces |

pub mod adopt;
pub mod device;
pub mod egress;
pub mod ingress;
pub mod link;
pub mod restore;
mod sys;

pub use adopt::{AdoptError, AdoptedInterface, adopt};
pub use device::{Tap, TapError, TapOptions};
pub use egress::TapEgress;
pub use ingress::TapIngress;
pub use link::TapLink;
pub use sys::IOCTLS;
