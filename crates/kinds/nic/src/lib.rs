//! Network interfaces, as AF_XDP sockets ([`netvale_afxdp`]), for a switch and its workers.
//!
//! | module | what it is |
//! |---|---|
//! | [`ingress`], [`egress`] | a queue as the switch uses it |
//! | [`continued`] | the owner of each buffer after a change of process |
//! | [`stack`] | host rings: the stack behind an interface |

use std::any::Any;
use std::sync::Arc;

pub mod continued;
pub mod egress;
pub mod ingress;
pub mod stack;

/// The owner of a queue's resources, kept while the queue is used.
pub type Keep = Arc<dyn Any + Send + Sync>;
