//! TAP devices as switch ports: the host's network stack.
//!
//! A TAP here carries a virtio-net header, so that the stack hands over and takes 64 KiB segments whole, without their
//! checksums (linux/if_tun.h; virtio 1.3 §5.1.6). Between two TAPs such a segment crosses the switch as it is.
//!
//! | module | what it is |
//! |---|---|
//! | [`device`] | opening one |
//! | [`adopt`](mod@adopt) | one that somebody else has opened |
//! | [`restore`] | one that another process had open |
//! | [`link`] | the interface behind it, which may go |
//! | [`ingress`], [`egress`] | its queues as the switch sees them |
//! | `sys` | the ioctls of /dev/net/tun and of interfaces |

pub mod adopt;
pub mod device;
pub mod egress;
pub mod ingress;
pub mod link;
pub mod restore;
mod sys;

pub use adopt::{Adopted, Unfit, adopt};
pub use device::{Tap, TapError, TapOptions};
pub use egress::TapEgress;
pub use ingress::TapIngress;
pub use link::Link;
pub use sys::IOCTLS;
