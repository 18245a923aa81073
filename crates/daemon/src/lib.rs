//! The netvale daemon: switches, the workers that forward on them, and the sockets for clients.
//!
//! Each module imports those above it in this table, and none below:
//!
//! | module | what it is |
//! |---|---|
//! | `refusal`, `caller` | a refused request and its reason; the caller |
//! | [`worker`] | the threads that forward |
//! | [`config`] | TOML file and command line, parsed |
//! | `system` | sockets, privileges, signals, the service manager |
//! | `rings` | rings that programs map: their parts, their holders, their descriptions |
//! | `registry` | the daemon's maps, one each: switches, regions, ports, pipes, … |
//! | `daemon` | the registries together, and the interface of a port |
//! | `policy` | who may do what |
//! | `ports` | the kinds of ports, a file each, and the table of them |
//! | `api` | requests and their answers: JSON-RPC, attach connections, netmap's requests |
//! | `server` | the main thread: connections, signals, ageing |
//!
//! A request climbs the table from the bottom: `server` reads it, `api` parses it, `policy` admits it, a kind in
//! `ports` executes it on the registries.

mod api;
mod caller;
pub mod config;
mod daemon;
mod policy;
mod ports;
mod refusal;
mod registry;
mod rings;
mod server;
mod system;
pub mod worker;

#[cfg(fuzzing)]
pub use server::fuzzing;

use std::os::unix::net::UnixStream;

use netvale_control::dirs::{ATTACH_SOCKET, CONTROL_SOCKET};
use rustix::net::SocketType;
use signal_hook::consts::{SIGINT, SIGTERM};
use thiserror::Error;

use crate::config::Config;
use crate::daemon::Daemon;
use crate::server::{Listeners, Server};
use crate::system::{realtime, sandbox, sockets, watch};

/// Why the daemon did not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// A socket could not be opened.
    #[error(transparent)]
    Socket(#[from] sockets::SocketError),
    /// A port of the configuration could not be attached.
    #[error("port {port} of the configuration: {refusal}")]
    Port {
        /// Name of the port.
        port: String,
        /// The refusal.
        refusal: refusal::Refusal,
    },
    /// The workers could not get a real-time priority.
    #[error(
        "workers cannot run at real-time priority {priority}: {source}; run the daemon as root, or with CAP_SYS_NICE or a limit (ulimit -r) of \
         at least {priority}"
    )]
    RealTime {
        /// The priority.
        priority: u8,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// The sandbox could not be entered.
    #[error("cannot enter the sandbox: {0}; --no-sandbox starts without it")]
    Sandbox(#[from] sandbox::SandboxError),
    /// A system call for threads, signals or descriptors failed.
    #[error("cannot start: {0}")]
    System(#[from] std::io::Error),
}

/// Runs the daemon in the foreground until SIGTERM, SIGINT or a `shutdown` request.
///
/// # Errors
/// [`StartError`] if the daemon cannot start; once it serves, it does not fail.
pub fn run(config: Config) -> Result<(), StartError> {
    let dir = config.run_dir.clone();
    let lock = sockets::lock_run_dir(&dir)?;
    let (signal, from_signal) = UnixStream::pair()?;
    signal_hook::low_level::pipe::register(SIGTERM, from_signal.try_clone()?)?;
    signal_hook::low_level::pipe::register(SIGINT, from_signal)?;
    raise_descriptor_limit();
    let (attach, control) = (dir.join(ATTACH_SOCKET), dir.join(CONTROL_SOCKET));
    let listeners = Listeners {
        attach: sockets::listen(&attach, SocketType::SEQPACKET, &config.sockets)?,
        control: sockets::listen(&control, SocketType::STREAM, &config.sockets)?,
        signal,
    };
    let real_time = realtime::RealTime::begin(config.rt_priority)
        .map_err(|source| StartError::RealTime { priority: config.rt_priority.unwrap_or_default(), source })?;
    if config.sandbox {
        sandbox::enter(&dir, &[&config.allow_dirs[..], &policy::configured_folders(&config)].concat())?;
    }
    watch::start()?;
    let mut daemon = Daemon::new(config)?;
    // The workers have been started.
    drop(real_time);
    api::attaching::attach_configured(&mut daemon).map_err(|(port, refusal)| StartError::Port { port, refusal })?;
    let server = Server::new(daemon, listeners)?;
    tracing::info!("ready in {}", dir.display());
    // Notifies systemd, if it started the daemon; an error means that it did not.
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    let mut captures = server.run();
    // The last frames may still have to reach their capture files.
    captures.wait();
    for path in [attach, control] {
        let _ = std::fs::remove_file(path);
    }
    drop(lock);
    Ok(())
}

/// Raises the limit of descriptors to the hard limit: a ring takes three or four.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(e) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!("the limit of open files stays as it is: {e}");
    }
}
