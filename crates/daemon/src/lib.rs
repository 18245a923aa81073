//! The netvale daemon: switches, the workers that forward on them, and the sockets for clients.
//!
//! Each module imports only modules above it in this table:
//!
//! | module | what it is |
//! |---|---|
//! | `refusal`, `caller` | a refused request with its reason; the caller of a request |
//! | `stalls` | detection of delays in threads that must not wait |
//! | [`worker`] | forwarding threads |
//! | [`config`] | TOML file and command line, parsed |
//! | `system` | sockets, privileges, signals, the service manager |
//! | `handover` | hand-over to a successor: items, and their transport over a socket |
//! | `rings` | rings that programs map: parts, holders, descriptions |
//! | `registry` | the daemon's maps, one each: switches, regions, ports, pipes, … |
//! | `daemon` | all registries together, and the interface of a port |
//! | `naming` | resolution of names |
//! | `permission` | access rights |
//! | `ports` | the kinds of ports, a file each, and their table |
//! | `api` | requests and answers: JSON-RPC, attach connections, netmap requests |
//! | `server` | the main thread: connections, signals, ageing |
//!
//! A request climbs the table from the bottom: `server` reads it, `api` parses it, `naming` resolves its names,
//! `permission` admits it, a kind in `ports` executes it on the registries.

mod api;
mod caller;
pub mod config;
mod daemon;
mod handover;
mod naming;
mod permission;
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
pub use system::journal::Journal;
pub use system::keep::passed as passed_descriptors;
pub use system::log::LogLimit;

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use netvale_control::dirs::ATTACH_SOCKET;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use thiserror::Error;

use crate::api::handover::kept::continue_all;
use crate::api::handover::take::Predecessor;
use crate::config::Config;
use crate::daemon::Daemon;
use crate::handover::store::Store;
use crate::registry::captures::Captures;
use crate::server::{DaemonServer, ServerEnd, Signals};
use crate::system::activation::ActivatedSockets;
use crate::system::keep::StoredDescriptors;
use crate::system::sandbox::{ExtraCapability, Reach};
use crate::system::sockets::ListeningSockets;
use crate::system::user::User;
use crate::system::{keep, lock, log, manager, realtime, sandbox, sockets, user, watch};

/// Reason why the daemon could not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// A socket could not be opened.
    #[error(transparent)]
    Socket(#[from] sockets::SocketError),
    /// A port in the configuration could not be attached.
    #[error("cannot attach port {port} of the configuration: {refusal}")]
    Port {
        /// Name of the port.
        port: String,
        /// Why the port could not be attached.
        refusal: refusal::Refusal,
    },
    /// The daemon could not switch to its user.
    #[error(transparent)]
    User(#[from] user::UserError),
    /// A worker could not be given the real-time priority of the configuration.
    #[error(
        "workers cannot run at real-time priority {priority}: {source}; run the daemon as root, or with CAP_SYS_NICE \
         or a limit (ulimit -r) of \
         at least {priority}"
    )]
    RealTime {
        /// The real-time priority in the configuration.
        priority: u8,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// The running daemon could not be replaced, and continues to run.
    #[error("{0}")]
    Succession(String),
    /// The sandbox could not be entered.
    #[error("cannot enter the sandbox: {0}; --no-sandbox starts without it")]
    Sandbox(#[from] sandbox::SandboxError),
    /// A system call for threads, signals or descriptors failed.
    #[error("cannot start: {0}")]
    System(#[from] std::io::Error),
}

/// How long to wait, when the daemon exits, for threads that a peer blocks.
const ENDING_LIMIT: Duration = Duration::from_secs(5);

/// Runs the daemon in the foreground until SIGTERM, SIGINT or a `shutdown` request, or until a successor takes over.
///
/// # Errors
/// [`StartError`] if the daemon cannot start. After it has begun to serve requests, this function does not fail.
pub fn run(config: Config) -> Result<(), StartError> {
    system::freed::keep_limits();
    let dir = config.run_dir.clone();
    let user = other_user(&config)?;
    let place = StartPlace::take(&config, &dir)?;
    let signals = signals(&config)?;
    raise_limits();
    // The next two functions make system calls that the sandbox would refuse. Threads that are started later inherit
    // the scheduler slice.
    netvale_mem::spin::has_company();
    netvale_mem::slice::shorten();
    let real_time = realtime::RealTime::begin(config.rt_priority)
        .map_err(|source| StartError::RealTime { priority: config.rt_priority.unwrap_or_default(), source })?;
    if let Some(user) = user {
        become_user(user, &config, &place)?;
    }
    // An error is ignored here, because the first notification fails with the same error, which is then reported.
    let _ = manager::meet();
    let mut kept = keep::found();
    let place = place.listen(&mut kept, &config)?;
    let mut reach = Reach::everything();
    if config.sandbox {
        let folders = [&config.allow_dirs[..], &permission::configured_folders(&config)].concat();
        reach = Reach::of(folders.iter().chain([&dir]).map(PathBuf::as_path));
        sandbox::enter(&dir, &folders, config.file.as_deref(), &ports::kernel_needs())?;
    } else if user.is_some() {
        sandbox::keep(ExtraCapability::None)?;
    }
    log::set_limit(config.quota.log_lines);
    netvale_mem::latency::set_sampling(config.latency_sampling);
    watch::start()?;
    netvale_mem::mapping::unmap_apart()?;
    let mut daemon = Daemon::new(config)?;
    daemon.reach = reach;
    // The workers were started at this priority; the main thread now returns to normal priority.
    drop(real_time);
    let server = match place {
        ListeningPlace::Fresh(sockets) => begin(daemon, sockets, signals, &mut kept)?,
        ListeningPlace::Successor(predecessor) => succeed(daemon, predecessor, signals)?,
    };
    tracing::info!("ready in {}", dir.display());
    if let Err(e) = manager::tell(&[sd_notify::NotifyState::Ready], None) {
        let place = manager::place().unwrap_or_default();
        tracing::warn!("cannot report readiness to the service manager at {} (NOTIFY_SOCKET): {e}", place.display());
    }
    match server.run() {
        ServerEnd::Stopped(captures, own) => end(&own, captures),
        // Do not drop the daemon's objects, because all of them belong to the successor.
        ServerEnd::HandedOver(connection) => system::leaving::close_all_and_exit(connection),
    }
    Ok(())
}

/// Restores the items that the service manager kept from an earlier daemon, then attaches the remaining configured
/// ports.
fn begin(
    mut daemon: Daemon,
    sockets: ListeningSockets,
    signals: Signals,
    kept: &mut StoredDescriptors,
) -> Result<DaemonServer, StartError> {
    let (mut store, items) = Store::found(kept);
    let clients = if items.is_empty() { Vec::new() } else { continue_all(&mut daemon, &mut store, items) };
    api::attaching::attach_configured(&mut daemon).map_err(|(port, refusal)| StartError::Port { port, refusal })?;
    let mut server = DaemonServer::new(daemon, sockets, signals)?;
    server.adopt(clients);
    if keep::is_there() {
        server.keep_in(store);
    }
    Ok(server)
}

/// Takes over the ports and sockets of a running daemon.
fn succeed(mut daemon: Daemon, predecessor: Predecessor, signals: Signals) -> Result<DaemonServer, StartError> {
    let begun = Instant::now();
    let done = predecessor.take(&mut daemon).and_then(|taken| taken.go(&mut daemon));
    let process = match done {
        Ok(process) => process,
        Err(why) => {
            // The ports still belong to the predecessor, and the workers stay parked, so `daemon` is leaked instead of
            // dropped.
            std::mem::forget(daemon);
            return Err(StartError::Succession(why));
        }
    };
    process.sockets.own();
    let mut server = DaemonServer::new(daemon, process.sockets, signals)?;
    server.adopt(process.clients);
    if keep::is_there() {
        server.keep_in(Store::after(process.kept));
    }
    server.tell_continued();
    tracing::info!("took over from another process in {} ms", begun.elapsed().as_millis());
    Ok(server)
}

/// Waits for captures and port threads after all ports have been removed, then removes the sockets.
fn end(own: &[PathBuf], mut captures: Captures) {
    // Threads may not have written the last frames to the capture files yet.
    captures.wait();
    let left = netvale_port::service::wait_for_ending(ENDING_LIMIT);
    if left > 0 {
        tracing::error!("{left} port threads have not ended in time; the daemon ends without them");
    }
    for socket in own {
        let _ = std::fs::remove_file(socket);
    }
}

/// How the daemon gets its run directory: the daemon locks the directory, or takes it over from a predecessor.
enum StartPlace {
    Fresh(OwnedFd),
    Successor(Predecessor),
}

/// The listening sockets: already open, or to be handed over by a predecessor.
enum ListeningPlace {
    Fresh(ListeningSockets),
    Successor(Predecessor),
}

impl StartPlace {
    fn take(config: &Config, dir: &Path) -> Result<StartPlace, StartError> {
        if config.take_over {
            let predecessor = Predecessor::find(&dir.join(ATTACH_SOCKET)).map_err(StartError::Succession)?;
            return Ok(StartPlace::Successor(predecessor));
        }
        Ok(StartPlace::Fresh(lock::lock_run_dir(dir)?))
    }

    fn listen(self, kept: &mut StoredDescriptors, config: &Config) -> Result<ListeningPlace, StartError> {
        Ok(match self {
            StartPlace::Successor(predecessor) => ListeningPlace::Successor(predecessor),
            StartPlace::Fresh(lock) => {
                let ActivatedSockets { attach, control, own } =
                    ActivatedSockets::open(kept, &config.run_dir, &config.sockets)?;
                ListeningPlace::Fresh(ListeningSockets { lock, attach, control, own })
            }
        })
    }
}

/// Creates descriptors that become readable on signals.
fn signals(config: &Config) -> std::io::Result<Signals> {
    let (end, from_signal) = UnixStream::pair()?;
    signal_hook::low_level::pipe::register(SIGTERM, from_signal.try_clone()?)?;
    signal_hook::low_level::pipe::register(SIGINT, from_signal)?;
    Ok(Signals { end, reload: hang_ups(config)? })
}

/// Creates a descriptor that becomes readable on SIGHUP. Returns `None` if there is no configuration file: SIGHUP then
/// has its default action, and ends the daemon.
fn hang_ups(config: &Config) -> std::io::Result<Option<UnixStream>> {
    if config.file.is_none() {
        return Ok(None);
    }
    let (reload, from_signal) = UnixStream::pair()?;
    reload.set_nonblocking(true)?;
    signal_hook::low_level::pipe::register(SIGHUP, from_signal)?;
    Ok(Some(reload))
}

/// Returns the user to which the daemon must switch; `None` if no user is configured, or if the process already runs as
/// that user.
fn other_user(config: &Config) -> Result<Option<User>, user::UserError> {
    let user = config.user.as_deref().map(User::find).transpose()?.filter(|user| !user.is_this_process());
    if let Some(user) = user {
        user.check()?;
    }
    Ok(user)
}

/// Gives the run directory to `user`, then switches to that user. Must be called before the sockets are created.
fn become_user(user: User, config: &Config, place: &StartPlace) -> Result<(), StartError> {
    if let StartPlace::Fresh(lock) = place {
        sockets::give_run_dir(&config.run_dir, lock, user)?;
    }
    let gives_sockets = config.sockets.owner.is_some() || config.sockets.group.is_some();
    Ok(user.become_it(if gives_sockets { ExtraCapability::Chown } else { ExtraCapability::None })?)
}

/// Initial capacity of the kernel's descriptor table. The kernel enlarges the table of a multi-threaded process only
/// after all CPUs have synchronised, which takes ten milliseconds, possibly in the middle of an upgrade.
const ROOM_FOR_DESCRIPTORS: u64 = 8192;

/// Enlarges the descriptor table while the process is single-threaded.
fn make_room_for_descriptors(limit: Option<u64>) {
    let last = limit.unwrap_or(ROOM_FOR_DESCRIPTORS).min(ROOM_FOR_DESCRIPTORS).saturating_sub(1);
    // The descriptor is closed immediately, but the table keeps its capacity. If the process has no standard error, the
    // table grows later.
    drop(rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stderr(), last as i32));
}

/// Raises the descriptor limit to the hard limit (a ring takes three or four descriptors). If the daemon has the right,
/// lifts the limit of locked memory, because the frame memory of interfaces counts towards it.
fn raise_limits() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let highest = |resource| Rlimit { current: getrlimit(resource).maximum, ..getrlimit(resource) };
    if let Err(e) = setrlimit(Resource::Nofile, highest(Resource::Nofile)) {
        tracing::warn!("cannot raise the limit of open files: {e}");
    }
    make_room_for_descriptors(getrlimit(Resource::Nofile).current);
    // If the daemon lacks the right to lift the limit, the hard limit bounds the frame memory of interfaces.
    let _ = setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None })
        .or_else(|_| setrlimit(Resource::Memlock, highest(Resource::Memlock)));
}
