//! A service: a thread that serves a port's peers, one after another, and what is told of them.
//!
//! What the peers speak is a [`Protocol`]. The rest is the same for all of them: state for `netvale show`, a line in the log, a pause after a peer
//! that broke the rules, an end within a time limit.

use std::fmt::Display;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use netvale_mem::fault::Fault;
use netvale_mem::notify::{Doorbell, nap};
use rustix::event::epoll;
use rustix::io::Errno;

use crate::listener::{Listener, OpenError, RETRY, SocketFile};

/// Pause after a peer whose doorbell blocked, which took a worker's time: it doubles each time, up to the longest.
const BLOCKED_PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(64));
/// Upper bound on waiting for the thread to end. It waits two seconds for a worker that does not hand a queue back, and for nothing else that long, unless a
/// descriptor that a peer passed takes its time to close.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// What a service speaks with its peers.
pub trait Protocol: Send + 'static {
    /// What reaches a peer: a connection, or a device.
    type Connection;
    /// What is told of a peer beside that it is there.
    type Detail: Clone + Default + Send + 'static;
    /// What its peers are called.
    const PEER: &'static str;

    /// The next peer, or why there is none: then it is tried again. None when `stop` became readable.
    fn next(&mut self, stop: BorrowedFd<'_>) -> Option<Result<Self::Connection, String>>;

    /// Serves a peer until it hangs up or [`Peer::ends`] becomes readable.
    ///
    /// # Errors
    /// The rule that the peer broke.
    fn serve(&mut self, connection: Self::Connection, peer: &Peer<Self::Detail>) -> Result<(), String>;
}

/// What is told of a service's peers.
#[derive(Clone, Debug, Default)]
pub struct State<D> {
    /// A peer is connected.
    pub connected: bool,
    /// Peers so far.
    pub connections: u64,
    /// Why there is none, if the last one did not just hang up.
    pub last_error: Option<String>,
    /// What is told of the one that is connected.
    pub now: D,
}

/// Where a service's state is. Clones are the same place.
pub struct Told<D>(Arc<Mutex<State<D>>>);

impl<D> Clone for Told<D> {
    fn clone(&self) -> Self {
        Told(Arc::clone(&self.0))
    }
}

impl<D> Told<D> {
    /// Changes what is told of the peer that is connected.
    pub fn update(&self, change: impl FnOnce(&mut D)) {
        change(&mut self.lock().now);
    }

    fn lock(&self) -> MutexGuard<'_, State<D>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A peer that is being served.
pub struct Peer<D> {
    told: Told<D>,
    stop: Arc<Doorbell>,
    fault: Fault,
    ends: OwnedFd,
}

impl<D> Peer<D> {
    fn new(told: &Told<D>, stop: &Arc<Doorbell>) -> Result<Self, Errno> {
        let (fault, ends) = (Fault::new()?, epoll::create(epoll::CreateFlags::CLOEXEC)?);
        for fd in [stop.as_fd(), fault.as_fd()] {
            epoll::add(&ends, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        }
        Ok(Peer { told: told.clone(), stop: Arc::clone(stop), fault, ends })
    }

    /// Where workers report what the peer did; what makes its doorbells.
    pub fn fault(&self) -> &Fault {
        &self.fault
    }

    /// Readable when the service is to stop, or a fault of the peer's was reported.
    pub fn ends(&self) -> BorrowedFd<'_> {
        self.ends.as_fd()
    }

    /// Whether the service is to stop.
    pub fn is_stopped(&self) -> bool {
        nap(self.stop.as_fd(), Duration::ZERO)
    }

    /// Where what is told of the peer can be changed.
    pub fn told(&self) -> &Told<D> {
        &self.told
    }
}

/// A running service. Dropping it ends the connection and the thread, and removes the socket.
pub struct Service<D> {
    told: Told<D>,
    stop: Arc<Doorbell>,
    /// Hangs up when the thread ends.
    running: Receiver<()>,
    file: Option<SocketFile>,
}

impl<D: Clone + Default + Send + 'static> Service<D> {
    /// Starts one, in a thread of that name; `at` is what the log says, `file` what is removed in the end.
    ///
    /// # Errors
    /// No descriptor or thread is left.
    pub fn start<P: Protocol<Detail = D>>(
        thread: &str,
        at: impl Display,
        file: Option<SocketFile>,
        protocol: P,
    ) -> Result<Self, OpenError> {
        let at = at.to_string();
        let failed = |source| OpenError::step(&at, "start a thread")(source);
        let (told, stop) = (Told(Arc::default()), Arc::new(Doorbell::new().map_err(failed)?));
        let (alive, running) = mpsc::channel();
        let server = Server { protocol, at: at.clone(), told: told.clone(), stop: Arc::clone(&stop) };
        let run = move || {
            server.run();
            drop(alive);
        };
        let started = std::thread::Builder::new().name(thread.into()).spawn(run);
        started.map_err(|e| failed(Errno::from_io_error(&e).unwrap_or(Errno::AGAIN)))?;
        Ok(Service { told, stop, running, file })
    }

    /// Starts one for virtual machines that connect to the socket at `path`, each of which `serve` serves.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn of_machines<F>(thread: &str, path: &Path, serve: F) -> Result<Self, OpenError>
    where
        F: FnMut(OwnedFd, &Peer<D>) -> Result<(), String> + Send + 'static,
    {
        let (listener, file) = Listener::listen(path)?;
        Self::start(thread, path.display(), Some(file), Machines { listener, serve, detail: PhantomData })
    }

    /// What is told of its peers.
    pub fn state(&self) -> State<D> {
        self.told.lock().clone()
    }
}

impl<D> Drop for Service<D> {
    fn drop(&mut self) {
        self.stop.ring();
        // Nothing is sent: it hangs up. A panic was reported by the runtime.
        if self.running.recv_timeout(STOP_LIMIT) == Err(mpsc::RecvTimeoutError::Timeout) {
            tracing::error!("a port's thread does not end: it is left behind");
        }
        drop(self.file.take());
    }
}

/// Virtual machines that connect.
struct Machines<F, D> {
    listener: Listener,
    serve: F,
    detail: PhantomData<D>,
}

impl<F, D> Protocol for Machines<F, D>
where
    F: FnMut(OwnedFd, &Peer<D>) -> Result<(), String> + Send + 'static,
    D: Clone + Default + Send + 'static,
{
    type Connection = OwnedFd;
    type Detail = D;
    const PEER: &'static str = "virtual machine";

    fn next(&mut self, stop: BorrowedFd<'_>) -> Option<Result<OwnedFd, String>> {
        self.listener.accept(stop).map(Ok)
    }

    fn serve(&mut self, connection: OwnedFd, peer: &Peer<D>) -> Result<(), String> {
        (self.serve)(connection, peer)
    }
}

struct Server<P: Protocol> {
    protocol: P,
    at: String,
    told: Told<P::Detail>,
    stop: Arc<Doorbell>,
}

impl<P: Protocol> Server<P> {
    fn run(mut self) {
        let stop = Arc::clone(&self.stop);
        let mut blocked_pause = BLOCKED_PAUSE.0;
        loop {
            let Some(next) = self.protocol.next(stop.as_fd()) else { return };
            let began = Instant::now();
            let last = self.told.lock().last_error.clone();
            let (ended, blocked) = match next {
                Ok(connection) => self.serve(connection, last.is_none()),
                Err(why) => (Err(why), false),
            };
            if nap(stop.as_fd(), Duration::ZERO) {
                return;
            }
            match &ended {
                Ok(()) => tracing::info!(at = self.at, "{} gone", P::PEER),
                Err(why) if last.as_ref() != Some(why) => tracing::warn!(at = self.at, why, "no {}", P::PEER),
                Err(_) => {}
            }
            let mut state = self.told.lock();
            let failed = ended.is_err();
            *state = State { connections: state.connections, last_error: ended.err(), ..State::default() };
            drop(state);
            let pause = if blocked { blocked_pause } else { RETRY };
            if blocked {
                blocked_pause = (2 * blocked_pause).min(BLOCKED_PAUSE.1);
            } else if began.elapsed() > BLOCKED_PAUSE.1 {
                blocked_pause = BLOCKED_PAUSE.0;
            }
            if failed && nap(stop.as_fd(), pause) {
                return;
            }
        }
    }

    /// Serves a peer to its end. Returns how it ended, and whether a doorbell of its blocked.
    fn serve(&mut self, connection: P::Connection, is_news: bool) -> (Result<(), String>, bool) {
        let peer = match Peer::new(&self.told, &self.stop) {
            Ok(peer) => peer,
            Err(e) => return (Err(e.to_string()), false),
        };
        let mut state = self.told.lock();
        *state = State { connected: true, connections: state.connections + 1, ..State::default() };
        drop(state);
        if is_news {
            tracing::info!(at = self.at, "{} connected", P::PEER);
        }
        let ended = self.protocol.serve(connection, &peer);
        (peer.fault.reason().map_or(ended, Err), peer.fault.is_blocked())
    }
}
