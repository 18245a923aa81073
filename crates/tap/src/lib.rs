//! TAP devices as switch ports: the host's network stack.
//!
//! A TAP here carries a virtio-net header, so that the stack hands over and takes 64 KiB segments whole, without their checksums
//! (linux/if_tun.h; virtio 1.3 §5.1.6). Between two TAPs such a segment crosses the switch as it is.
//!
//! | module | what it is |
//! |---|---|
//! | [`device`] | opening one |
//! | [`ingress`], [`egress`] | its queues as the switch sees them |

pub mod device;
pub mod egress;
pub mod ingress;
mod sys;

pub use device::{Tap, TapError, TapOptions};
pub use egress::TapEgress;
pub use ingress::TapIngress;
pub use sys::IOCTLS;
