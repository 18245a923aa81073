//! Network interfaces as ports of a switch, through AF_XDP sockets ([`netvale_afxdp`]).
//!
//! | module | what it is |
//! |---|---|
//! | [`ingress`], [`egress`] | the two sides of a queue, as the switch uses them |
//! | [`continued`] | where each buffer is when another process restores a queue |
//! | [`stack`] | host rings: the stack behind an interface |

use std::any::Any;
use std::sync::Arc;

pub mod continued;
pub mod egress;
pub mod ingress;
pub mod stack;

/// Keeps the resources of a queue until it is dropped. [`egress`] and [`ingress`] hold it as long as they use the
/// queue.
pub type QueueGuard = Arc<dyn Any + Send + Sync>;
