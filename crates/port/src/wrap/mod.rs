//! Wrappers that go around any ingress or egress, instead of options in each of them.
//!
//! | wrapper | what it does |
//! |---|---|
//! | [`mod@loopback`] | delivered frames come out again, from private memory |
//! | [`fault`] | drops, corrupts, duplicates and reorders the frames of an ingress |
//! | [`mirror`] | a second egress gets a copy of the frames: with a capture file behind it, a tracer |
//!
//! They allocate and, where stated, take locks: they are for tests, examples and diagnosis, not for the fast path.

pub mod fault;
pub mod loopback;
pub mod mirror;

pub use fault::{FaultCounts, FaultIngress, Faults};
pub use loopback::{LoopbackEgress, LoopbackIngress, loopback};
pub use mirror::{MirrorEgress, MirrorIngress};

#[cfg(test)]
pub(crate) mod tests;
