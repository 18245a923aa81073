//! The common parts of `bridge`, `fwd` and `lb`: moving whole frames from a receive ring to a transmit ring, and the
//! loop around it.

pub mod engine;
pub mod run;
pub mod under_way;
