//! VALE: a learning Ethernet switch that forwards whole batches.
//!
//! A [`Switch`] is a table of ports and an [`Fdb`] (the port of each address). A [`Forwarder`] moves the frames of one
//! ingress: **classify** the whole batch, then **deliver** it destination by destination.
//!
//! ```text
//!  take ─► learn sources, look destinations up ─► group by destination ─► deliver each group ─► release
//! ```
//!
//! It runs where [`Forwarder::pass`] is called: on the daemon's workers, or in a program that embeds the switch, in the
//! program's own sync. Any number of threads may forward on one switch at the same time, each with its own forwarders.
//!
//! Nothing here is unsafe: frames are read through a [`netvale_port::Source`], whose lifetimes end their use in time.
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

pub use elsewhere::Knows;
pub use entry::{MonitorRings, Port};
pub use fdb::{Fdb, FdbEntry, PortId};
pub use forward::{Forwarder, WaitingFrames, Work};
pub use link_task::LinkTask;
pub use netvale_port::{Passed, Task};
pub use policies::CompiledPolicies;
pub use query_task::QueryTask;
pub use table::{AttachError, GroupPort, GroupPorts, MAX_PORTS, Settings, Switch};
