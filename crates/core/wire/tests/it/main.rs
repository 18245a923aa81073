//! Tests of headers, checksums and segments.

mod common;
mod half_summed;
mod offload;
mod properties;
mod segment;
mod unfilled;
