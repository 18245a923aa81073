//! Devices under a client.

mod client;
