//! Policies of a port's traffic, as functions of frames and of a given time.
//!
//! Nothing here reads a clock, a socket or shared memory: a policy gets a private copy of a frame's first bytes, the
//! frame's length and a time, and returns a decision. The switch carries it out.
//!
//! | module | subject |
//! |---|---|
//! | [`bpf`] | filters: classic BPF, verified once and run for each frame |
//! | [`bucket`] | rates: token buckets, alone or shared by a group |
//! | [`guard`] | anti-spoofing: whether a frame's addresses are its port's |
//! | [`impair`] | a bad link: delay, loss, duplicates, reordering, damage |
//! | [`snoop`] | multicast groups and their member ports |
//! | [`units`] | rates, sizes, times and shares as iproute2 writes them |
//! | [`vlan`] | VLANs: tags that a frame has, gets and loses |
#![forbid(unsafe_code)]

pub mod bpf;
pub mod bucket;
pub mod guard;
pub mod impair;
pub mod snoop;
pub mod units;
pub mod vlan;
