//! An sFlow agent: samples for collectors of sFlow version 5 (sflow.org, "sFlow Version 5", July 2004).
//!
//! | module | what it is |
//! |---|---|
//! | [`samples`] | one sample: a frame that the switch received, or a port's counters |
//! | [`datagram`] | datagrams, each with several samples, for the collectors |
//! | [`indices`] | the numbers by which collectors identify ports |
//! | [`agent`] | makes samples from the daemon's answers |
//! | [`sessions`] | connections to the daemon, whose traces are the source of sampled frames |
//! | `xdr` | numbers and strings as in RFC 4506 |

pub mod agent;
pub mod datagram;
pub mod indices;
pub mod samples;
pub mod sessions;
mod xdr;
