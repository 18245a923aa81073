//! The daemon's main thread: sockets, signals, periodic work. No code of this module is on the packet path.

mod delivery;
#[cfg(fuzzing)]
pub mod fuzzing;
mod handover;

use std::collections::HashMap;
use std::io::Read;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use netvale_afxdp::iface;
use netvale_control::server::ControlConnection;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{SendFlags, SocketFlags};

use crate::api::configuration;
use crate::api::control::Rpc;
use crate::api::opening::{self, AttachHold};
use crate::caller::Caller;
use crate::daemon::Daemon;
use crate::handover::store::Store;
use crate::permission;
use crate::ports::socket::peers;
use crate::ports::{self, faults, looking, multicast};
use crate::refusal::{Refusal, refuse};
use crate::registry::captures::Captures;
use crate::system::sockets::ListeningSockets;
use crate::system::watchdog::Watchdog;
use crate::system::{closing, peer};

/// Maximum number of connections to both sockets together. Further connections are closed immediately.
const MAX_CLIENTS: usize = 8192;
/// Maximum number of unread answer bytes of one control client.
const MAX_UNSENT: usize = 4 << 20;

/// Time for which the daemon accepts no connections after it has run out of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// User ID for connections whose user is unknown (the kernel's overflow uid).
const NOBODY: u32 = 65_534;
/// Maximum number of a user's descriptors that wait to be closed. If more descriptors wait, the daemon refuses the
/// user's connections.
const MOST_CLOSING: usize = 256;
/// Number of connections reserved for root and the daemon's own user.
const RESERVED: usize = 64;

const ATTACH: u64 = 1;
const CONTROL: u64 = 2;
const SIGNAL: u64 = 3;
const FAULTS: u64 = 4;
const RELOAD: u64 = 5;
const NEWS: u64 = 6;
const GROUPS: u64 = 7;
const TUNNELS: u64 = 8;
const LINKS: u64 = 9;
const EXCHANGES: u64 = 10;
const FIRST_CLIENT: u64 = 16;

/// Sockets that become readable when the process gets a signal.
pub struct Signals {
    /// Readable on SIGTERM and SIGINT.
    pub end: UnixStream,
    /// Readable on SIGHUP; `None` if there is no configuration file to reload.
    pub reload: Option<UnixStream>,
}

enum ClientConnection {
    /// A client of the attach socket. `holds` is its hold on a port; `None` until it opens a port.
    Attach {
        fd: OwnedFd,
        holds: Option<AttachHold>,
    },
    Control {
        fd: OwnedFd,
        conn: Box<ControlConnection>,
        unsent: Vec<u8>,
        ended: bool,
    },
}

impl ClientConnection {
    fn into_fd(self) -> OwnedFd {
        match self {
            ClientConnection::Attach { fd, .. } | ClientConnection::Control { fd, .. } => fd,
        }
    }
}

/// The main loop.
pub struct DaemonServer {
    daemon: Daemon,
    listeners: ListeningSockets,
    signals: Signals,
    epoll: OwnedFd,
    /// Link notifications of the kernel (interfaces that appear, vanish or change), if available.
    links: Option<OwnedFd>,
    clients: HashMap<u64, (ClientConnection, Caller)>,
    next: u64,
    /// Spare descriptor. When no other descriptors are left, this descriptor is closed, so that the daemon can accept
    /// one more connection and close it.
    reserve: Option<OwnedFd>,
    /// Time at which the daemon accepts connections again; `None` while it accepts connections.
    paused: Option<Instant>,
    /// The service manager's watchdog, `None` if it has none for this process.
    watchdog: Option<Watchdog>,
    /// Whether the main loop continues; cleared to end the daemon.
    running: bool,
    /// Whether the daemon ends because of a request, rather than a signal. After a request, the service manager keeps
    /// no state.
    is_asked_to_end: bool,
    /// Time of the next check of the counters, and the workers' busy time at the last check.
    counted: (Instant, u64),
}

/// How the main loop ended.
pub(crate) enum ServerEnd {
    /// A signal or a request stopped the daemon. The fields are the captures that are not yet in their files, and the
    /// paths of the sockets to remove.
    Stopped(Captures, Vec<PathBuf>),
    /// A successor took over. All objects belong to the successor and must not be touched. The field is the successor's
    /// connection, if it is open: when it is closed, the successor knows that all other descriptors are closed.
    HandedOver(Option<OwnedFd>),
}

impl DaemonServer {
    /// Creates the main loop on these sockets.
    ///
    /// # Errors
    /// Fails if a system call for epoll fails.
    pub fn new(daemon: Daemon, listeners: ListeningSockets, signals: Signals) -> std::io::Result<DaemonServer> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let add = |fd: BorrowedFd<'_>, id| epoll::add(&epoll, fd, epoll::EventData::new_u64(id), epoll::EventFlags::IN);
        add(listeners.attach.as_fd(), ATTACH)?;
        add(listeners.control.as_fd(), CONTROL)?;
        add(signals.end.as_fd(), SIGNAL)?;
        signals.reload.iter().try_for_each(|reload| add(reload.as_fd(), RELOAD))?;
        add(daemon.evictions.faults(), FAULTS)?;
        add(daemon.news.as_fd(), NEWS)?;
        add(daemon.snoops.fd(), GROUPS)?;
        add(daemon.tunnels.fd(), TUNNELS)?;
        add(daemon.exchanges.fd(), EXCHANGES)?;
        let links = iface::news().ok();
        links.iter().try_for_each(|links| add(links.as_fd(), LINKS))?;
        let reserve = Some(rustix::io::fcntl_dupfd_cloexec(&epoll, 0)?);
        let clients = HashMap::new();
        let next = FIRST_CLIENT;
        let watchdog = Watchdog::find();
        Ok(DaemonServer {
            daemon,
            listeners,
            signals,
            epoll,
            links,
            clients,
            next,
            reserve,
            paused: None,
            watchdog,
            running: true,
            is_asked_to_end: false,
            counted: (Instant::now(), u64::MAX),
        })
    }

    /// Sets the service manager's store. From then on, changes are saved in this store.
    pub(crate) fn keep_in(&mut self, store: Store) {
        self.daemon.store = Some(store);
    }

    /// Serves until a signal, a `shutdown` request, or the take-over by a successor. At the end, removes all ports,
    /// unless another process continues them.
    pub(crate) fn run(mut self) -> ServerEnd {
        let mut events = [const { MaybeUninit::<epoll::Event>::uninit() }; 64];
        // The counters are saved before the predecessor's items, which also contain counters, are removed from the
        // store.
        self.keep_counters(Instant::now());
        while self.running {
            self.keep();
            let nap = self.tick().min(self.pause()).max(Duration::from_millis(1));
            let nap = if closing::look() { nap.min(PAUSE) } else { nap };
            self.daemon.watched.progress(Instant::now());
            self.daemon.watched.rest();
            let limit = Timespec { tv_sec: nap.as_secs() as i64, tv_nsec: i64::from(nap.subsec_nanos()) };
            let ready = match epoll::wait(&self.epoll, &mut events[..], Some(&limit)) {
                Ok((ready, _)) => in_order(ready),
                Err(Errno::INTR) => continue,
                Err(e) => {
                    tracing::error!("epoll: {e}");
                    break;
                }
            };
            for id in ready {
                self.daemon.watched.progress(Instant::now());
                self.event(id);
                if let Some(successor) = self.daemon.successor.take()
                    && self.hand_over(successor)
                {
                    let connection = self.clients.remove(&successor).map(|(client, _)| client.into_fd());
                    // Everything belongs to the successor: nothing is dropped, and descriptors stay open until the
                    // process ends.
                    std::mem::forget(self);
                    return ServerEnd::HandedOver(connection);
                }
            }
        }
        if !self.is_asked_to_end && self.leave_kept() {
            std::mem::forget(self);
            return ServerEnd::HandedOver(None);
        }
        self.daemon.store.iter_mut().for_each(Store::clear);
        ServerEnd::Stopped(self.daemon.captures, self.listeners.own)
    }

    /// Does periodic work. Returns the time until the next call.
    fn tick(&mut self) -> Duration {
        let now = Instant::now();
        let watchdog = &mut self.watchdog;
        let workers = self.daemon.workers.all();
        let go_on = |limit| workers.iter().all(|worker| worker.goes_on(now, limit));
        let watchdog = watchdog.as_mut().map_or(Duration::MAX, |watchdog| watchdog.tick(now, go_on));
        let counters = self.keep_counters(now);
        let groups = multicast::tick(&mut self.daemon);
        // Without the kernel's reports, interfaces are read at each poll.
        self.daemon.looks.are_interfaces_due |= self.links.is_none();
        let looking = looking::tick(&mut self.daemon, now);
        let exchanges = peers::tick(&mut self.daemon, now);
        self.deliver();
        counters
            .min(watchdog)
            .min(groups)
            .min(looking)
            .min(exchanges)
            .min(self.daemon.freed.tick(now))
            .min(self.daemon.switches.tick(now))
            .min(self.daemon.workers.tick(now))
    }

    fn event(&mut self, id: u64) {
        match id {
            SIGNAL => {
                tracing::info!("shutting down on a signal");
                self.tell_ending("a signal");
                self.running = false;
            }
            ATTACH => self.accept(id),
            CONTROL => self.accept(id),
            RELOAD => self.reload(),
            FAULTS => {
                self.daemon.changes.everything = true;
                faults::evict(&mut self.daemon);
            }
            LINKS => self.look_for_interfaces(),
            GROUPS => self.daemon.snoops.woken(),
            TUNNELS => self.tell_watchers(),
            EXCHANGES => peers::serve(&mut self.daemon, Instant::now()),
            NEWS => {
                self.daemon.changes.everything |= self.daemon.news.drain();
                self.look_who_receives();
                looking::hasten(&mut self.daemon, Instant::now());
            }
            client => self.serve(client),
        }
        while let Some(evicted) = self.daemon.evictions.next() {
            self.hang_up(evicted);
        }
        self.deliver();
    }

    /// Removes ports whose interface no longer exists, and updates the state of whether each port can receive frames.
    fn look_for_interfaces(&mut self) {
        self.links.iter().for_each(iface::read_news);
        self.daemon.looks.are_interfaces_due = true;
        if self.daemon.interfaces.in_use().any(|nic| nic.gone().is_some()) {
            self.daemon.changes.everything = true;
            faults::evict(&mut self.daemon);
        }
        self.look_who_receives();
    }

    /// Updates, for each port, whether it can receive frames. If a port can no longer receive frames, the switch
    /// forgets the addresses behind it.
    fn look_who_receives(&mut self) {
        for (_, record) in self.daemon.ports.iter_mut() {
            let is_received = record.behind.may_be_received();
            record.note_received(is_received);
        }
    }

    /// Reloads the configuration file once, even if several SIGHUPs are pending.
    fn reload(&mut self) {
        let mut signals = [0; 64];
        while self
            .signals
            .reload
            .as_ref()
            .is_some_and(|mut from| from.read(&mut signals).is_ok_and(|n| n == signals.len()))
        {}
        configuration::reload(&mut self.daemon);
    }

    fn accept(&mut self, kind: u64) {
        let listener = if kind == ATTACH { &self.listeners.attach } else { &self.listeners.control };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = match rustix::net::accept_with(listener, flags) {
            Ok(fd) => fd,
            Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS) => return self.turn_away(kind),
            Err(_) => return,
        };
        let peer = match peer::of(&fd) {
            Ok(peer) => peer,
            Err(e) => {
                tracing::warn!("closed a connection: cannot read the credentials of its other end: {e}");
                return closing::close(fd, NOBODY);
            }
        };
        let caller = Caller { client: self.next, uid: peer.uid, pid: peer.pid };
        if let Err(refusal) = self.may_connect(caller) {
            self.daemon.note_refusal(caller, &refusal.text);
            return closing::close(fd, caller.uid);
        }
        self.add(fd, kind, caller);
    }

    fn may_connect(&self, caller: Caller) -> Result<(), Refusal> {
        let room = if permission::is_trusted(caller) { MAX_CLIENTS } else { MAX_CLIENTS - RESERVED };
        if self.clients.len() >= room {
            let kept = MAX_CLIENTS - room;
            let text = format!(
                "the limit of {} connections is reached; {kept} more are reserved for root",
                self.clients.len()
            );
            return refuse(Errno::NOSPC, text);
        }
        if !permission::is_trusted(caller) && closing::pending(caller.uid) > MOST_CLOSING {
            return refuse(
                Errno::NOSPC,
                format!("{MOST_CLOSING} descriptors of user {} are still being closed; try again", caller.uid),
            );
        }
        let connections = self.clients.values().filter(|(_, other)| other.uid == caller.uid).count();
        permission::may_connect(&self.daemon, caller, connections)
    }

    /// Refuses a connection when no descriptors are left: closes the spare descriptor, then accepts and closes the
    /// connection. After that, accepts no connections for a while, to avoid a busy loop.
    fn turn_away(&mut self, kind: u64) {
        let listener = if kind == ATTACH { &self.listeners.attach } else { &self.listeners.control };
        if self.reserve.take().is_some() {
            if let Ok(fd) = rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                closing::close(fd, NOBODY);
            }
            self.reserve = rustix::io::fcntl_dupfd_cloexec(&self.epoll, 0).ok();
        }
        tracing::warn!("no descriptors are left; refused a connection");
        self.listen(epoll::EventFlags::empty());
        self.paused = Some(Instant::now() + PAUSE);
    }

    /// If the daemon is accepting no connections, returns the time until it accepts them again; if that time has
    /// passed, makes the daemon accept connections. Returns [`Duration::MAX`] if the daemon accepts connections.
    fn pause(&mut self) -> Duration {
        let Some(until) = self.paused else { return Duration::MAX };
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            self.paused = None;
            if self.reserve.is_none() {
                self.reserve = rustix::io::fcntl_dupfd_cloexec(&self.epoll, 0).ok();
            }
            self.listen(epoll::EventFlags::IN);
            return Duration::MAX;
        }
        left
    }

    fn listen(&self, flags: epoll::EventFlags) {
        for (fd, id) in [(&self.listeners.attach, ATTACH), (&self.listeners.control, CONTROL)] {
            // This cannot fail, because the descriptor is in the set.
            let _ = epoll::modify(&self.epoll, fd, epoll::EventData::new_u64(id), flags);
        }
    }

    fn add(&mut self, fd: OwnedFd, kind: u64, caller: Caller) {
        let id = self.next;
        self.next += 1;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        if epoll::add(&self.epoll, &fd, epoll::EventData::new_u64(id), flags).is_err() {
            return closing::close(fd, caller.uid);
        }
        let client = match kind {
            ATTACH => ClientConnection::Attach { fd, holds: None },
            _ => ClientConnection::Control { fd, conn: Box::new(connection(caller)), unsent: Vec::new(), ended: false },
        };
        self.clients.insert(id, (client, caller));
    }

    fn serve(&mut self, id: u64) {
        let Some((client, caller)) = self.clients.get_mut(&id) else { return };
        let caller = *caller;
        let mut shutdown = false;
        let keep = match client {
            ClientConnection::Attach { fd, holds } => opening::serve(&mut self.daemon, fd, holds, caller),
            ClientConnection::Control { fd, conn, unsent, ended } => {
                let mut rpc = Rpc { daemon: &mut self.daemon, caller, shutdown: false };
                let keep = serve_control(&mut rpc, fd, conn, unsent, ended);
                shutdown = rpc.shutdown;
                let flags = epoll::EventFlags::RDHUP
                    | if *ended { epoll::EventFlags::empty() } else { epoll::EventFlags::IN }
                    | if unsent.is_empty() { epoll::EventFlags::empty() } else { epoll::EventFlags::OUT };
                keep && epoll::modify(&self.epoll, &*fd, epoll::EventData::new_u64(id), flags).is_ok()
            }
        };
        if shutdown {
            tracing::info!(uid = caller.uid, pid = caller.pid, "shutting down on a request");
            self.tell_ending("requested");
            self.running = false;
            self.is_asked_to_end = true;
        }
        if !keep || self.is_unread(id) {
            self.hang_up(id);
        }
    }

    /// Whether a client with unread answers must be disconnected, because the unread bytes on all connections of the
    /// client's user exceed the quota.
    fn is_unread(&mut self, id: u64) -> bool {
        let unread = |client: &ClientConnection| {
            if let ClientConnection::Control { unsent, .. } = client { unsent.len() } else { 0 }
        };
        let Some((client, caller)) = self.clients.get(&id) else { return false };
        if unread(client) == 0 {
            return false;
        }
        let all = self.clients.values().filter(|(_, other)| other.uid == caller.uid).map(|(client, _)| unread(client));
        let Err(refusal) = permission::may_leave_unread(&self.daemon, *caller, all.sum()) else { return false };
        self.daemon.note_refusal(*caller, &refusal.text);
        true
    }

    /// Notifies connections of changes in the tunnels that they watch. Each request to watch yields one notification.
    fn tell_watchers(&mut self) {
        self.daemon.tunnels.news().drain();
        for (id, text) in ports::due(&mut self.daemon) {
            if let Some((ClientConnection::Control { unsent, .. }, _)) = self.clients.get_mut(&id) {
                unsent.extend_from_slice(text.as_bytes());
                unsent.push(b'\n');
                self.serve(id);
            }
        }
    }

    fn hang_up(&mut self, id: u64) {
        self.daemon.tunnels.forget(id);
        self.daemon.events.forget(id);
        self.daemon.traces.forget(id);
        let Some((client, caller)) = self.clients.remove(&id) else { return };
        let (fd, held) = match client {
            ClientConnection::Attach { fd, holds } => (fd, holds),
            ClientConnection::Control { fd, .. } => (fd, None),
        };
        // The descriptor may be closed later, so it is removed from the set now. This cannot fail, because the
        // descriptor is in the set.
        let _ = epoll::delete(&self.epoll, &fd);
        closing::close(fd, caller.uid);
        if let Some(held) = held {
            held.close(&mut self.daemon, id);
            self.daemon.changes.clients.insert(id);
        }
    }
}

/// Creates the state of a caller's control connection.
fn connection(caller: Caller) -> ControlConnection {
    if permission::is_trusted(caller) { ControlConnection::trusted() } else { ControlConnection::default() }
}

/// Returns the ready descriptors, hangups first: if a program closes a port and reopens it, the port is then free.
fn in_order(ready: &[epoll::Event]) -> Vec<u64> {
    let gone = |e: &&epoll::Event| {
        let flags = e.flags;
        flags.intersects(epoll::EventFlags::HUP | epoll::EventFlags::RDHUP)
    };
    let (first, then): (Vec<&epoll::Event>, Vec<&epoll::Event>) = ready.iter().partition(gone);
    first.into_iter().chain(then).map(|e| e.data.u64()).collect()
}

/// Handles requests of a control client, and sends as much of the answers as the socket takes. Returns whether to keep
/// the connection.
fn serve_control(
    rpc: &mut Rpc<'_>,
    fd: &OwnedFd,
    conn: &mut ControlConnection,
    unsent: &mut Vec<u8>,
    ended: &mut bool,
) -> bool {
    let mut bytes = [0u8; 16 * 1024];
    if !*ended {
        match closing::receive(fd, &mut bytes) {
            Ok((_, strangers)) if !strangers.is_empty() => {
                let Caller { uid, pid, .. } = rpc.caller;
                tracing::warn!(uid, pid, "closed a connection: the control socket does not accept descriptors");
                strangers.into_iter().for_each(|stranger| closing::close(stranger, uid));
                return false;
            }
            Ok((0, _)) => *ended = true,
            Ok((n, _)) => {
                // Events that happened before the request are sent before the answer.
                rpc.daemon.events.fill(rpc.caller.client, unsent, usize::MAX);
                let out = conn.feed(bytes.get(..n).unwrap_or(&[]), rpc);
                unsent.extend_from_slice(&out.bytes);
                *ended = out.close;
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => return false,
        }
    }
    match rustix::net::send(fd, unsent, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
        Ok(n) => drop(unsent.drain(..n)),
        Err(Errno::AGAIN | Errno::INTR) => {}
        Err(_) => return false,
    }
    unsent.len() <= MAX_UNSENT && !(*ended && unsent.is_empty())
}
