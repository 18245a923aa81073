//! Common parts of `bridge`, `fwd` and `lb`: whole frames move from a receive ring to a transmit ring, in a loop.

pub mod engine;
pub mod run;
pub mod under_way;
