//! Headers, checksums and segments.

mod common;
mod offload;
mod properties;
mod segment;
mod unfilled;
