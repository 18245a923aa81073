//! The netvale daemon: switches, the workers that forward on them, and the sockets for clients.
//!
//! Each module imports those above it in this table, and none below:
//!
//! | module | what it is |
//! |---|---|
//! | `refusal`, `caller` | a refused request and its reason; the caller |
//! | `stalls` | threads that must not wait, and what held them up |
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
mod stalls;
mod system;
pub mod worker;

#[cfg(fuzzing)]
pub use server::fuzzing;
pub use system::log::Limit as LogLimit;

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use netvale_control::dirs::{ATTACH_SOCKET, CONTROL_SOCKET};
use rustix::net::SocketType;
use signal_hook::consts::{SIGINT, SIGTERM};
use thiserror::Error;

use crate::config::Config;
use crate::daemon::Daemon;
use crate::server::{Listeners, Server};
use crate::system::sandbox::Extra;
use crate::system::user::User;
use crate::system::{log, realtime, sandbox, sockets, user, watch};

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
    /// The daemon could not become its user.
    #[error(transparent)]
    User(#[from] user::UserError),
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

/// Upper bound on waiting at the end for threads that a peer holds up.
const ENDING_LIMIT: Duration = Duration::from_secs(5);

/// Runs the daemon in the foreground until SIGTERM, SIGINT or a `shutdown` request.
///
/// # Errors
/// [`StartError`] if the daemon cannot start; once it serves, it does not fail.
pub fn run(config: Config) -> Result<(), StartError> {
    let (dir, user) = (config.run_dir.clone(), other_user(&config)?);
    let lock = sockets::lock_run_dir(&dir)?;
    let (signal, from_signal) = UnixStream::pair()?;
    signal_hook::low_level::pipe::register(SIGTERM, from_signal.try_clone()?)?;
    signal_hook::low_level::pipe::register(SIGINT, from_signal)?;
    raise_limits();
    // Both before the sandbox. All threads inherit the slices.
    netvale_mem::spin::has_company();
    netvale_mem::slice::shorten();
    let real_time = realtime::RealTime::begin(config.rt_priority)
        .map_err(|source| StartError::RealTime { priority: config.rt_priority.unwrap_or_default(), source })?;
    if let Some(user) = user {
        become_user(user, &config, &lock)?;
    }
    let (attach, control) = (dir.join(ATTACH_SOCKET), dir.join(CONTROL_SOCKET));
    let listeners = Listeners {
        attach: sockets::listen(&attach, SocketType::SEQPACKET, &config.sockets)?,
        control: sockets::listen(&control, SocketType::STREAM, &config.sockets)?,
        signal,
    };
    if config.sandbox {
        sandbox::enter(&dir, &[&config.allow_dirs[..], &policy::configured_folders(&config)].concat())?;
    } else if user.is_some() {
        sandbox::keep(Extra::None)?;
    }
    log::set_limit(config.quota.log_lines);
    watch::start()?;
    netvale_mem::mapping::unmap_apart()?;
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
    let left = netvale_port::service::wait_for_ending(ENDING_LIMIT);
    if left > 0 {
        tracing::error!("{left} threads of ports do not end: they are abandoned");
    }
    for path in [attach, control] {
        let _ = std::fs::remove_file(path);
    }
    drop(lock);
    Ok(())
}

/// The user whom the daemon has to become: none if it is the one who starts it.
fn other_user(config: &Config) -> Result<Option<User>, user::UserError> {
    let user = config.user.as_deref().map(User::find).transpose()?.filter(|user| !user.is_this_process());
    if let Some(user) = user {
        user.check()?;
    }
    Ok(user)
}

/// The daemon becomes that user, whose run directory it is from then on. The sockets are made afterwards.
fn become_user(user: User, config: &Config, lock: &OwnedFd) -> Result<(), StartError> {
    sockets::give_run_dir(&config.run_dir, lock, user)?;
    let gives_sockets = config.sockets.owner.is_some() || config.sockets.group.is_some();
    Ok(user.become_it(if gives_sockets { Extra::Chown } else { Extra::None })?)
}

/// Raises the limit of descriptors to the hard limit: a ring takes three or four. Frames of interfaces lie in locked
/// memory, for which there is no limit if the daemon may say so.
fn raise_limits() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let highest = |resource| Rlimit { current: getrlimit(resource).maximum, ..getrlimit(resource) };
    if let Err(e) = setrlimit(Resource::Nofile, highest(Resource::Nofile)) {
        tracing::warn!("the limit of open files stays as it is: {e}");
    }
    // Without the right to this, interfaces take as many frames as the hard limit leaves.
    let _ = setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None })
        .or_else(|_| setrlimit(Resource::Memlock, highest(Resource::Memlock)));
}
