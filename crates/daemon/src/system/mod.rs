//! What the daemon has of the machine it runs on: sockets, privileges, signals, the service manager.

pub mod closing;
pub mod keep;
pub mod realtime;
pub mod sandbox;
pub mod sockets;
pub mod watch;
