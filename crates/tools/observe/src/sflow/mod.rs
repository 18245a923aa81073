//! Samples for collectors that speak sFlow version 5 (sflow.org, "sFlow Version 5", July 2004).
//!
//! | module | what it is |
//! |---|---|
//! | [`samples`] | one sample: a frame that came into the switch, or a port's counters |
//! | [`datagram`] | samples on the way to collectors, several in a datagram |
//! | [`indices`] | the numbers that collectors know ports by |
//! | [`agent`] | what the daemon says, made into samples |
//! | [`sessions`] | the daemon's traces, from which sampled frames come |
//! | `xdr` | numbers and strings as RFC 4506 has them |

pub mod agent;
pub mod datagram;
pub mod indices;
pub mod samples;
pub mod sessions;
mod xdr;
