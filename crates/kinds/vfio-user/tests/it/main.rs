//! Integration tests of the server with real and hostile clients.

mod client;
