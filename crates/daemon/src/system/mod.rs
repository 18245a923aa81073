//! The daemon's interface to its host: sockets, privileges, signals, the service manager.

pub mod activation;
pub mod closing;
pub(crate) mod freed;
pub mod journal;
pub mod keep;
pub mod leaving;
pub mod lock;
pub mod log;
pub mod manager;
pub mod peer;
pub mod realtime;
pub mod sandbox;
pub mod sockets;
pub mod user;
pub mod watch;
pub mod watchdog;
