//! The daemon's main thread: sockets, signals, ageing. Nothing here is on the packet path.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use netvale_control::server::Connection;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags};

use crate::api::control::Rpc;
use crate::api::opening::{self, Held};
use crate::caller::Caller;
use crate::daemon::Daemon;
use crate::ports::faults;
use crate::registry::captures::Captures;

/// Maximum number of connections of both kinds together; further ones are closed immediately.
const MAX_CLIENTS: usize = 1024;
/// Maximum number of bytes of answers that a control client may leave unread.
const MAX_UNSENT: usize = 4 << 20;

const ATTACH: u64 = 1;
const CONTROL: u64 = 2;
const SIGNAL: u64 = 3;
const FAULTS: u64 = 4;
const FIRST_CLIENT: u64 = 16;

/// The listening sockets.
pub struct Listeners {
    /// `SOCK_SEQPACKET`: for clients that open ports.
    pub attach: OwnedFd,
    /// `SOCK_STREAM`: for JSON-RPC.
    pub control: OwnedFd,
    /// Readable on SIGTERM and SIGINT.
    pub signal: UnixStream,
}

enum Client {
    /// A client of the attach socket, and what it holds once it has asked.
    Attach {
        fd: OwnedFd,
        holds: Option<Held>,
    },
    Control {
        fd: OwnedFd,
        conn: Box<Connection>,
        unsent: Vec<u8>,
        closing: bool,
    },
}

/// The main loop.
pub struct Server {
    daemon: Daemon,
    listeners: Listeners,
    epoll: OwnedFd,
    clients: HashMap<u64, (Client, Caller)>,
    next: u64,
    /// False once the daemon has to end.
    running: bool,
}

impl Server {
    /// Takes over the sockets.
    ///
    /// # Errors
    /// Whatever epoll returns.
    pub fn new(daemon: Daemon, listeners: Listeners) -> std::io::Result<Server> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let add = |fd: BorrowedFd<'_>, id| epoll::add(&epoll, fd, epoll::EventData::new_u64(id), epoll::EventFlags::IN);
        add(listeners.attach.as_fd(), ATTACH)?;
        add(listeners.control.as_fd(), CONTROL)?;
        add(listeners.signal.as_fd(), SIGNAL)?;
        add(daemon.evictions.faults(), FAULTS)?;
        Ok(Server { daemon, listeners, epoll, clients: HashMap::new(), next: FIRST_CLIENT, running: true })
    }

    /// Serves until a signal or a `shutdown` request; then all ports are removed. Returns the captures that may still
    /// be written.
    pub(crate) fn run(mut self) -> Captures {
        let mut events = [const { MaybeUninit::<epoll::Event>::uninit() }; 64];
        while self.running {
            let nap = self.daemon.switches.tick(Instant::now()).max(Duration::from_millis(1));
            let limit = Timespec { tv_sec: nap.as_secs() as i64, tv_nsec: i64::from(nap.subsec_nanos()) };
            let ready = match epoll::wait(&self.epoll, &mut events[..], Some(&limit)) {
                Ok((ready, _)) => in_order(ready),
                Err(Errno::INTR) => continue,
                Err(e) => {
                    tracing::error!("epoll: {e}");
                    break;
                }
            };
            ready.into_iter().for_each(|id| self.event(id));
        }
        self.daemon.captures
    }

    fn event(&mut self, id: u64) {
        match id {
            SIGNAL => {
                tracing::info!("signal: ending");
                self.running = false;
            }
            ATTACH => self.accept(id),
            CONTROL => self.accept(id),
            FAULTS => faults::evict(&mut self.daemon),
            client => self.serve(client),
        }
        while let Some(evicted) = self.daemon.evictions.next() {
            self.hang_up(evicted);
        }
    }

    fn accept(&mut self, kind: u64) {
        let listener = if kind == ATTACH { &self.listeners.attach } else { &self.listeners.control };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let Ok(fd) = rustix::net::accept_with(listener, flags) else { return };
        if self.clients.len() >= MAX_CLIENTS {
            tracing::warn!("{MAX_CLIENTS} connections are open, the most there can be: one more is refused");
            return;
        }
        let Ok(cred) = rustix::net::sockopt::socket_peercred(&fd) else { return };
        let id = self.next;
        self.next += 1;
        let caller = Caller { client: id, uid: cred.uid.as_raw(), pid: cred.pid.as_raw_nonzero().get() };
        let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        if epoll::add(&self.epoll, &fd, epoll::EventData::new_u64(id), flags).is_err() {
            return;
        }
        let client = match kind {
            ATTACH => Client::Attach { fd, holds: None },
            _ => Client::Control { fd, conn: Box::default(), unsent: Vec::new(), closing: false },
        };
        self.clients.insert(id, (client, caller));
    }

    fn serve(&mut self, id: u64) {
        let Some((client, caller)) = self.clients.get_mut(&id) else { return };
        let (caller, mut shutdown) = (*caller, false);
        let keep = match client {
            Client::Attach { fd, holds } => opening::serve(&mut self.daemon, fd, holds, caller),
            Client::Control { fd, conn, unsent, closing } => {
                let mut rpc = Rpc { daemon: &mut self.daemon, caller, shutdown: false };
                let keep = serve_control(&mut rpc, fd, conn, unsent, closing);
                shutdown = rpc.shutdown;
                let flags = epoll::EventFlags::RDHUP
                    | if *closing { epoll::EventFlags::empty() } else { epoll::EventFlags::IN }
                    | if unsent.is_empty() { epoll::EventFlags::empty() } else { epoll::EventFlags::OUT };
                keep && epoll::modify(&self.epoll, &*fd, epoll::EventData::new_u64(id), flags).is_ok()
            }
        };
        if shutdown {
            tracing::info!(uid = caller.uid, pid = caller.pid, "asked to end");
            self.running = false;
        }
        if !keep {
            self.hang_up(id);
        }
    }

    fn hang_up(&mut self, id: u64) {
        let Some((client, _)) = self.clients.remove(&id) else { return };
        // Closing the descriptor also takes it out of the epoll set.
        if let Client::Attach { holds: Some(held), .. } = client {
            held.close(&mut self.daemon, id);
        }
    }
}

/// Handles hangups first: a program that closes a port and opens it again finds it free.
fn in_order(ready: &[epoll::Event]) -> Vec<u64> {
    let gone = |e: &&epoll::Event| {
        let flags = e.flags;
        flags.intersects(epoll::EventFlags::HUP | epoll::EventFlags::RDHUP)
    };
    let (first, then): (Vec<&epoll::Event>, Vec<&epoll::Event>) = ready.iter().partition(gone);
    first.into_iter().chain(then).map(|e| e.data.u64()).collect()
}

/// Handles requests of a control client, and sends as many answers as it takes. Returns whether to keep the connection.
fn serve_control(
    rpc: &mut Rpc<'_>,
    fd: &OwnedFd,
    conn: &mut Connection,
    unsent: &mut Vec<u8>,
    closing: &mut bool,
) -> bool {
    let mut bytes = [0u8; 16 * 1024];
    if !*closing {
        match rustix::net::recv(fd, &mut bytes, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => *closing = true,
            Ok((_, n)) => {
                let out = conn.feed(bytes.get(..n).unwrap_or(&[]), rpc);
                unsent.extend_from_slice(&out.bytes);
                *closing = out.close;
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
    unsent.len() <= MAX_UNSENT && !(*closing && unsent.is_empty())
}
