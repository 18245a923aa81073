//! VALE: a learning Ethernet switch that forwards whole batches.
//!
//! A [`Switch`] consists of a table of ports and an [`Fdb`], which maps addresses to ports. A [`Forwarder`] forwards
//! the frames of one ingress in two phases: it **classifies** the whole batch, then **delivers** it destination by
//! destination.
//!
//! ```text
//!  take ─► learn sources, look destinations up ─► group by destination ─► deliver each group ─► release
//! ```
//!
//! A forwarder runs in the thread that calls [`Forwarder::pass`]: a worker of the daemon, or a thread of a program that
//! embeds the switch. Any number of threads may forward on one switch at the same time, each with its own forwarders.
//!
//! The crate has no unsafe code: it reads frames through a [`netvale_port::Source`], whose lifetimes end before the
//! frames are released.
//!
//! ```compile_fail
//! #![forbid(unsafe_code)]
//! # use netvale_port::{Batch, Ingress};
//! fn take(ingress: &mut dyn Ingress, batch: &mut Batch) {
//!     unsafe { ingress.take(batch) }
//! }
//! ```
#![forbid(unsafe_code)]

pub mod classify;
mod clock;
mod elsewhere;
mod entry;
pub mod fdb;
pub mod filters;
pub mod forward;
pub mod holding;
mod link_task;
mod mix;
mod owners;
pub mod policies;
mod query_task;
pub mod snooping;
mod summary;
pub mod table;
pub mod trace;

pub use elsewhere::AddressFinder;
pub use entry::{AttachedPort, MonitorRings};
pub use fdb::{Fdb, FdbEntry, PortId};
pub use forward::{ForwardMemory, Forwarder, WaitingFrames};
pub use link_task::LinkTask;
pub use netvale_port::{PassResult, Task};
pub use owners::MAX_PORTS;
pub use policies::CompiledPolicies;
pub use query_task::QueryTask;
pub use table::{AttachError, GroupPort, GroupPorts, Switch, SwitchSettings};
