//! Tests of socket ports without a daemon.

mod common;
mod datagrams;
mod guests;
mod listening;
mod overruns;
mod plugs;
mod streams;
mod succession;
