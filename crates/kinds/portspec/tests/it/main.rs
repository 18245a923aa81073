//! Names of ports and what they mean.

mod documented;
mod grammar;
mod properties;
