//! Wrappers that go around any ingress or egress, instead of options in each of them.
//!
//! | wrapper | what it does |
//! |---|---|
//! | [`mod@loopback`] | what is delivered comes out again, from private memory |
//! | [`fault`] | drops, corrupts, duplicates and reorders what an ingress brings |
//! | [`mirror`] | a second egress gets a copy of what passes: with a capture file behind it, a tracer |
//!
//! They allocate and, where said, take locks: they are for tests, examples and looking into things, not for the fast path.

pub mod fault;
pub mod loopback;
pub mod mirror;

pub use fault::{FaultCounts, FaultIngress, Faults};
pub use loopback::{LoopbackEgress, LoopbackIngress, loopback};
pub use mirror::{MirrorEgress, MirrorIngress};

#[cfg(test)]
pub(crate) mod tests;
