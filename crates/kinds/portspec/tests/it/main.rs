//! Tests of port names and their meaning.

mod documented;
mod grammar;
mod properties;
