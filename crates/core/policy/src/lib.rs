//! Policies of a port's traffic, as functions of frames and of the time.
//!
//! Nothing here reads a clock, a socket or shared memory: a policy takes a private copy of a frame's first bytes, the
//! frame's length and the time, and returns a decision, which the switch carries out.
//!
//! | module | subject |
//! |---|---|
//! | [`bpf`] | filters: classic BPF, verified once and run for each frame |
//! | [`bucket`] | rates: token buckets, alone or shared by a group |
//! | [`guard`] | anti-spoofing: whether a frame's port may use its addresses |
//! | [`impair`] | impaired links: delay, loss, duplication, reordering, corruption |
//! | [`snoop`] | multicast groups and their member ports |
//! | [`units`] | rates, sizes, times and shares in the syntax of iproute2 |
//! | [`vlan`] | VLANs: membership of ports, and tags of frames |
#![forbid(unsafe_code)]

pub mod bpf;
pub mod bucket;
pub mod guard;
pub mod impair;
pub mod snoop;
pub mod units;
pub mod vlan;
