//! What a port may send and get, and how: policies, as functions of frames and of the time that they are told.
//!
//! Nothing here reads a clock, a socket or shared memory: a policy gets a private copy of a frame's first bytes, the
//! frame's length and a time, and says what is to be done. The switch does it.
//!
//! | module | what it decides |
//! |---|---|
//! | [`bpf`] | filters: classic BPF, verified once and run for each frame |
//! | [`bucket`] | rates: token buckets, alone or shared by a group |
//! | [`guard`] | whether a frame's addresses are its port's |
//! | [`impair`] | a bad link: delay, loss, duplicates, order, damage |
//! | [`snoop`] | which ports want which multicast groups |
//! | [`units`] | rates, sizes, times and parts as iproute2 writes them |
//! | [`vlan`] | VLANs: which tag a frame has, gets and loses |
#![forbid(unsafe_code)]

pub mod bpf;
pub mod bucket;
pub mod guard;
pub mod impair;
pub mod snoop;
pub mod units;
pub mod vlan;
