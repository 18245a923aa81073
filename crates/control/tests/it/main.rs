//! The control protocol, its options and pages.

mod documented;
mod handshake;
mod options;
mod views;
