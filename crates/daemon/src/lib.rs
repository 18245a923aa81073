//! The netvale daemon: switches, the workers that forward on them, and the sockets through which clients come.
//!
//! | module | what it is |
//! |---|---|
//! | [`config`] | TOML file and command line, parsed |
//! | [`server`] | the main thread: sockets, signals, ageing |
//! | [`open`] | opening ports for local clients |
//! | [`netmap`] | netmap's control requests |
//! | `persistent` | ports that stay, on a switch or not |
//! | `joints` | such a port on two switches |
//! | [`holders`] | who holds a ring |
//! | [`rpc`] | the control protocol's methods |
//! | [`state`] | switches, ports, pipes, regions |
//! | [`rings`], [`pipes`], [`devices`], [`captures`], `vhosts`, `ptnets` | the kinds of ports |
//! | [`worker`] | the threads that forward |
//! | [`inspect`] | what `list`, `show` and `top` are told |
//! | [`sandbox`] | capabilities, seccomp, Landlock |

mod attach;
mod brought;
pub mod captures;
pub mod config;
pub mod devices;
mod e1000s;
mod evict;
pub mod holders;
pub mod inspect;
mod joints;
mod keep;
mod local_port;
mod mirrors;
mod monitors;
pub mod netmap;
mod nic_facts;
mod nic_port;
pub mod nics;
mod offsets;
pub mod open;
mod passed;
mod persistent;
pub mod pipes;
mod ptnets;
mod realtime;
pub mod refusal;
pub mod rings;
pub mod rpc;
pub mod sandbox;
pub mod server;
mod sizes;
pub mod sockets;
pub mod state;
mod through;
mod vhosts;
mod watch;
mod wires;
pub mod worker;

use std::os::unix::net::UnixStream;

use netvale_control::dirs::{ATTACH_SOCKET, CONTROL_SOCKET};
use rustix::net::SocketType;
use signal_hook::consts::{SIGINT, SIGTERM};
use thiserror::Error;

use crate::config::Config;
use crate::server::{Listeners, Server};
use crate::state::State;

/// Why the daemon did not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// Its sockets.
    #[error(transparent)]
    Socket(#[from] sockets::SocketError),
    /// A port of the configuration.
    #[error("port {port} of the configuration: {refusal}")]
    Port {
        /// Which.
        port: String,
        /// Why not.
        refusal: refusal::Refusal,
    },
    /// Workers at a real-time priority.
    #[error(
        "workers cannot run at real-time priority {priority}: {source}; run the daemon as root, or with CAP_SYS_NICE or a limit (ulimit -r) of \
         at least {priority}"
    )]
    RealTime {
        /// The priority.
        priority: u8,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// The sandbox.
    #[error("the sandbox cannot be put on: {0}; --no-sandbox runs without")]
    Sandbox(#[from] sandbox::SandboxError),
    /// Threads, signals, descriptors.
    #[error("cannot start: {0}")]
    System(#[from] std::io::Error),
}

/// Runs the daemon in the foreground until SIGTERM, SIGINT or a `shutdown` request.
///
/// # Errors
/// [`StartError`]; once it serves, it does not fail.
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
        sandbox::enter(&dir, &[&config.allow_dirs[..], &captures::configured_folders(&config)].concat())?;
    }
    watch::start()?;
    let mut state = State::new(config)?;
    // The workers are there.
    drop(real_time);
    state.attach_configured()?;
    let server = Server::new(state, listeners)?;
    tracing::info!("ready in {}", dir.display());
    // Tells systemd, if it started us; an error means it did not.
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    let mut captures = server.run();
    // The last frames are on their way to their files.
    State::wait_captures(&mut captures);
    for path in [attach, control] {
        let _ = std::fs::remove_file(path);
    }
    drop(lock);
    Ok(())
}

/// Each ring takes two descriptors: as many as the hard limit allows.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(e) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!("the limit of open files stays as it is: {e}");
    }
}
