//! Devices under a client.

mod client;
mod killed;
