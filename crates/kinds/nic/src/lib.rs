//! Network interfaces, which are AF_XDP sockets ([`netvale_afxdp`]), as a switch and its workers see them.
//!
//! | module | what it is |
//! |---|---|
//! | [`ingress`], [`egress`] | a queue as the switch sees it |
//! | [`continued`] | which buffers are whose when another process goes on |
//! | [`stack`] | host rings: the stack behind an interface |

use std::any::Any;
use std::sync::Arc;

pub mod continued;
pub mod egress;
pub mod ingress;
pub mod stack;

/// What has to live as long as a queue is used: whatever opened it.
pub type Keep = Arc<dyn Any + Send + Sync>;
