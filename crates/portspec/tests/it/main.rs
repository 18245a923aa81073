//! Names of ports and what they mean.

mod grammar;
mod properties;
