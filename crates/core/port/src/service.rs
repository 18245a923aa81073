//! A service: a thread that serves a port's peers one after another, and the state that it reports ([`Told`]).
//!
//! The [`Protocol`] speaks with the peers. The rest is common to all: state for `netvale show`, a line in the log, a
//! pause after a peer that broke the rules, an end within a time limit.

use std::fmt::Display;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use netvale_mem::fault::Fault;
use netvale_mem::notify::{Doorbell, nap};
use rustix::event::epoll;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::listener::{OpenError, RETRY, SocketFile};

mod pause;

pub use pause::{Pause, Paused, Said};

use pause::{Pauses, Turn};

/// Pause after a peer whose blocked doorbell cost a worker time: it doubles each time, from the first value to the
/// second.
const BLOCKED_PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(64));
/// Limit of the wait for the thread to end: a peer cannot hold up a detach. The thread itself waits two seconds for a
/// worker to return a queue, and as long as closing a peer's descriptor takes.
const STOP_LIMIT: Duration = Duration::from_millis(50);

/// Threads still running at that limit.
static ENDING: Mutex<Vec<Receiver<()>>> = Mutex::new(Vec::new());

/// Waits for the threads of stopped services. Returns the number that do not end within `limit`.
pub fn wait_for_ending(limit: Duration) -> usize {
    let until = Instant::now() + limit;
    let ending = std::mem::take(&mut *ENDING.lock().unwrap_or_else(PoisonError::into_inner));
    let lasts = |thread: &&Receiver<()>| {
        let left = until.saturating_duration_since(Instant::now());
        thread.recv_timeout(left) == Err(mpsc::RecvTimeoutError::Timeout)
    };
    ending.iter().filter(lasts).count()
}

fn ends_later(thread: Receiver<()>) {
    let mut ending = ENDING.lock().unwrap_or_else(PoisonError::into_inner);
    ending.retain(|thread| thread.try_recv() == Err(mpsc::TryRecvError::Empty));
    ending.push(thread);
}

/// The error reported after a panic in the service's thread.
const BROKEN: &str = "an internal error: detach the port and attach it again; please report it, with the daemon's log";

/// The protocol between a service and its peers.
pub trait Protocol: Send + 'static {
    /// The link to a peer: a connection, or a device.
    type Connection;
    /// Details shown of a peer, besides whether it is connected.
    type Detail: Clone + Default + Send + 'static;
    /// State for continuing a peer in another process after this one was killed ([`Peer::keep`]).
    type Kept: Clone + PartialEq + Send + 'static;
    /// The name of a peer in messages.
    const PEER: &'static str;

    /// Waits for the next peer. An error gives the reason why there is none: then the service retries. `None` once
    /// `stop` is readable.
    fn next(&mut self, stop: BorrowedFd<'_>) -> Option<Result<Self::Connection, String>>;

    /// Serves a peer until it hangs up or [`Peer::ends`] becomes readable, unless [`Peer::asked_to_pause`] gives the
    /// reason.
    ///
    /// # Errors
    /// The rule that the peer broke.
    fn serve(&mut self, connection: Self::Connection, peer: &Peer<Self::Detail, Self::Kept>) -> Result<(), String>;

    /// The fault of a [restored](Service::restore) peer, which workers already know.
    fn fault(&self, _connection: &Self::Connection) -> Option<Fault> {
        None
    }
}

/// Called when a peer connects or leaves, or changes state that a successor needs.
type OnChange = Box<dyn Fn() + Send + Sync>;

/// A service's report on its peers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct State<D> {
    /// Whether a peer is connected.
    pub connected: bool,
    /// Number of peers so far.
    pub connections: u64,
    /// Why no peer is connected; `None` if the last one just hung up.
    pub last_error: Option<String>,
    /// Details of the connected peer.
    pub now: D,
}

/// The error reported for a peer that could not outlive the previous process.
const KILLED: &str = "the daemon was killed: let it connect again";

impl<D: Default> State<D> {
    /// The state after a kill, for a protocol whose peers do not outlive it.
    #[must_use]
    pub fn after_a_kill(self) -> Self {
        if !self.connected {
            return self;
        }
        State { connections: self.connections, last_error: Some(KILLED.to_owned()), ..State::default() }
    }
}

impl<D> State<D> {
    /// The same state with a peer connected or not: the record of the peer may be older or newer.
    #[must_use]
    pub fn with(self, connected: bool) -> Self {
        State { connected, ..self }
    }
}

/// A handle to a service's state. Clones share it.
pub struct Told<D>(Arc<Mutex<State<D>>>);

impl<D> Clone for Told<D> {
    fn clone(&self) -> Self {
        Told(Arc::clone(&self.0))
    }
}

impl<D> Told<D> {
    /// Changes the details of the connected peer.
    pub fn update(&self, change: impl FnOnce(&mut D)) {
        change(&mut self.lock().now);
    }

    fn lock(&self) -> MutexGuard<'_, State<D>> {
        lock(&self.0)
    }
}

/// The kept state of a service's peer, in case this process is killed.
#[derive(Clone)]
pub struct Kept<K> {
    /// Number of changes: they may affect only its descriptors.
    pub changes: u64,
    /// The peer's last [kept](Peer::keep) state; `None`: no peer, or nothing kept.
    pub last: Option<K>,
}

impl<K> Kept<K> {
    /// Clears the state of a peer that has gone.
    fn forget(&mut self) {
        self.changes += u64::from(self.last.take().is_some());
    }
}

impl<K> Default for Kept<K> {
    fn default() -> Self {
        Kept { changes: 0, last: None }
    }
}

/// A peer that is being served.
pub struct Peer<D, K = ()> {
    told: Told<D>,
    kept: Arc<Mutex<Kept<K>>>,
    control: Arc<Control>,
    fault: Fault,
    ends: OwnedFd,
}

/// Requests that the service's thread listens to besides its peers.
struct Control {
    stop: Doorbell,
    pauses: Pauses,
    /// Readable when either doorbell is rung.
    any: OwnedFd,
    on_change: OnceLock<OnChange>,
    on_peer: OnceLock<OnChange>,
}

impl Control {
    fn new() -> Result<Control, Errno> {
        let stop = Doorbell::new()?;
        let pauses = Pauses::new()?;
        let any = any_of([stop.as_fd(), pauses.bell.as_fd()])?;
        Ok(Control { stop, pauses, any, on_change: OnceLock::new(), on_peer: OnceLock::new() })
    }

    fn changed(&self) {
        self.on_change.get().iter().for_each(|call| call());
    }

    fn peer_changed(&self) {
        self.on_peer.get().iter().for_each(|call| call());
    }

    /// Sleeps for `time`, but pauses if asked to. Returns whether the service must stop.
    fn rest(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if !nap(self.any.as_fd(), left) || self.is_stopped() {
                return self.is_stopped();
            }
            self.pause_without_peer();
        }
    }

    fn pause_without_peer(&self) {
        self.pauses.take().into_iter().for_each(|pause| pause.give(None));
    }

    fn is_stopped(&self) -> bool {
        nap(self.stop.as_fd(), Duration::ZERO)
    }
}

/// A thread that was [asked to pause](Service::ask_to_pause).
pub struct AskedToPause(Arc<Control>);

impl Drop for AskedToPause {
    fn drop(&mut self) {
        self.0.pauses.forget();
    }
}

/// Creates a descriptor that is readable when one of these is.
fn any_of<const N: usize>(fds: [BorrowedFd<'_>; N]) -> Result<OwnedFd, Errno> {
    let any = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for fd in fds {
        epoll::add(&any, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    }
    Ok(any)
}

impl<D, K: PartialEq> Peer<D, K> {
    fn new(
        told: &Told<D>,
        kept: &Arc<Mutex<Kept<K>>>,
        control: &Arc<Control>,
        fault: Option<Fault>,
    ) -> Result<Self, Errno> {
        let fault = fault.map_or_else(Fault::new, Ok)?;
        let ends = any_of([control.any.as_fd(), fault.as_fd()])?;
        Ok(Peer { told: told.clone(), kept: Arc::clone(kept), control: Arc::clone(control), fault, ends })
    }

    /// The request to pause, if a successor may continue the peer: [`Pause::with`] takes the state it needs.
    /// Afterwards, serve the peer as before.
    pub fn asked_to_pause(&self) -> Option<Pause> {
        self.control.pauses.take()
    }

    /// The peer's fault: workers report violations there, and it creates the peer's doorbells.
    pub fn fault(&self) -> &Fault {
        &self.fault
    }

    /// A descriptor that becomes readable when the service must stop or pause, or a fault of the peer was reported.
    pub fn ends(&self) -> BorrowedFd<'_> {
        self.ends.as_fd()
    }

    /// Whether the service must stop.
    pub fn is_stopped(&self) -> bool {
        self.control.is_stopped()
    }

    /// A descriptor that becomes readable only when the service must stop: for steps that must not be left halfway.
    pub fn stops(&self) -> BorrowedFd<'_> {
        self.control.stop.as_fd()
    }

    /// Keeps the state for continuing the peer after a kill of this process, if it has changed. The peer's own thread
    /// calls this: while it serves messages, no other thread can read the device.
    pub fn keep(&self, now: Option<K>) {
        let mut kept = lock(&self.kept);
        if kept.last == now {
            return;
        }
        *kept = Kept { changes: kept.changes + 1, last: now };
        drop(kept);
        self.control.changed();
    }

    /// The service's state, for changing the peer's details.
    pub fn told(&self) -> &Told<D> {
        &self.told
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A running service. Dropping it ends the connection and the thread, and removes the socket.
pub struct Service<D, K = ()> {
    told: Told<D>,
    kept: Arc<Mutex<Kept<K>>>,
    control: Arc<Control>,
    /// Disconnects when the thread ends.
    running: Option<Receiver<()>>,
    file: Option<SocketFile>,
}

impl<D: Clone + Default + Send + 'static, K: Clone + PartialEq + Send + 'static> Service<D, K> {
    /// Starts a service in a thread named `thread`; `at` is its name in the log, `file` the socket to remove at the
    /// end.
    ///
    /// # Errors
    /// The system error if no descriptor or thread can be created.
    pub fn start<P: Protocol<Detail = D, Kept = K>>(
        thread: &str,
        at: impl Display,
        file: Option<SocketFile>,
        protocol: P,
    ) -> Result<Self, OpenError> {
        Self::begin((thread, at.to_string()), file, protocol, State::default(), Kept::default(), None)
    }

    /// Restores another process's service. It starts once the result's second part is dropped: until then the other
    /// process may resume, and owns the file. The first peer of `protocol` counts as connected if `told` says so;
    /// `kept` is its kept state.
    ///
    /// # Errors
    /// Like [`Service::start`].
    pub fn restore<P: Protocol<Detail = D, Kept = K>>(
        thread: &str,
        at: impl Display,
        file: Option<SocketFile>,
        protocol: P,
        told: State<D>,
        kept: Kept<K>,
    ) -> Result<(Self, Paused), OpenError> {
        let (turn, paused) = Paused::before_begin(file.as_ref().map(SocketFile::claim));
        Ok((Self::begin((thread, at.to_string()), file, protocol, told, kept, Some(turn))?, paused))
    }

    fn begin<P: Protocol<Detail = D, Kept = K>>(
        (thread, at): (&str, String),
        file: Option<SocketFile>,
        protocol: P,
        told: State<D>,
        kept: Kept<K>,
        turn: Option<Turn>,
    ) -> Result<Self, OpenError> {
        let failed = |source| OpenError::step(&at, "start a thread")(source);
        let told = Told(Arc::new(Mutex::new(told)));
        let control = Arc::new(Control::new().map_err(failed)?);
        let (alive, running) = mpsc::channel();
        let kept = Arc::new(Mutex::new(kept));
        let server = Server {
            protocol,
            at: at.clone(),
            told: told.clone(),
            kept: Arc::clone(&kept),
            control: Arc::clone(&control),
        };
        let broken = told.clone();
        let broken_kept = Arc::clone(&kept);
        let run = move || {
            turn.into_iter().for_each(Turn::wait);
            if catch_unwind(AssertUnwindSafe(|| server.run())).is_err() {
                let last_error = Some(BROKEN.to_owned());
                *broken.lock() = State { last_error, ..State::default() };
                lock(&broken_kept).forget();
            }
            drop(alive);
        };
        let started = std::thread::Builder::new().name(thread.into()).spawn(run);
        started.map_err(|e| failed(Errno::from_io_error(&e).unwrap_or(Errno::AGAIN)))?;
        Ok(Service { told, kept, control, running: Some(running), file })
    }

    /// Makes the service's thread call this whenever a connecting, changing or leaving peer changed state that a
    /// successor needs. Only the first call counts.
    pub fn on_change(&self, call: impl Fn() + Send + Sync + 'static) {
        let _ = self.control.on_change.set(Box::new(call));
    }

    /// Makes the service's thread call this after a peer has connected or gone: [`Service::state`] then shows it. Only
    /// the first call counts.
    pub fn on_peer(&self, call: impl Fn() + Send + Sync + 'static) {
        let _ = self.control.on_peer.set(Box::new(call));
    }

    /// Pauses the thread between two messages of its peer, or between peers, until the result is dropped. The protocol
    /// must support it ([`Peer::asked_to_pause`]). `None`: the thread did not pause in time.
    pub fn pause(&self) -> Option<Paused> {
        self.control.pauses.wait()
    }

    /// Asks the thread to pause, ahead of [`Service::pause`], which then waits less. Unless that is called, the thread
    /// resumes when the result is dropped.
    pub fn ask_to_pause(&self) -> AskedToPause {
        self.control.pauses.ask();
        AskedToPause(Arc::clone(&self.control))
    }

    /// The current state of its peers.
    pub fn state(&self) -> State<D> {
        self.told.lock().clone()
    }

    /// The kept state of its peer. It changes only with a call of [`Service::on_change`].
    pub fn kept(&self) -> Kept<K> {
        lock(&self.kept).clone()
    }
}

impl<D, K> Drop for Service<D, K> {
    fn drop(&mut self) {
        drop(self.file.take());
        self.control.stop.ring();
        // The channel carries no message; it disconnects.
        let Some(thread) = self.running.take() else { return };
        if thread.recv_timeout(STOP_LIMIT) == Err(mpsc::RecvTimeoutError::Timeout) {
            tracing::info!("a port's thread takes its time to end");
            ends_later(thread);
        }
    }
}

struct Server<P: Protocol> {
    protocol: P,
    at: String,
    told: Told<P::Detail>,
    kept: Arc<Mutex<Kept<P::Kept>>>,
    control: Arc<Control>,
}

impl<P: Protocol> Server<P> {
    /// Waits for the next peer. `None`: the service must stop.
    fn next(&mut self) -> Option<Result<P::Connection, String>> {
        loop {
            // A continued peer is present already, and keeps its own state.
            if !self.told.lock().connected {
                self.control.pause_without_peer();
            }
            if let Some(next) = self.protocol.next(self.control.any.as_fd()) {
                return Some(next);
            }
            if self.control.is_stopped() {
                return None;
            }
        }
    }

    fn run(mut self) {
        let control = Arc::clone(&self.control);
        let mut blocked_pause = BLOCKED_PAUSE.0;
        loop {
            let Some(next) = self.next() else { return };
            let began = Instant::now();
            let last = self.told.lock().last_error.clone();
            let (ended, blocked) = match next {
                Ok(connection) => self.serve(connection, last.is_none()),
                Err(why) => (Err(why), false),
            };
            if control.is_stopped() {
                return;
            }
            match &ended {
                Ok(()) => tracing::info!(at = self.at, "{} gone", P::PEER),
                Err(why) if last.as_ref() != Some(why) => tracing::warn!(at = self.at, why, "no {}", P::PEER),
                Err(_) => {}
            }
            lock(&self.kept).forget();
            let mut state = self.told.lock();
            let failed = ended.is_err();
            *state = State { connections: state.connections, last_error: ended.err(), ..State::default() };
            drop(state);
            control.changed();
            control.peer_changed();
            let pause = if blocked { blocked_pause } else { RETRY };
            if blocked {
                blocked_pause = (2 * blocked_pause).min(BLOCKED_PAUSE.1);
            } else if began.elapsed() > BLOCKED_PAUSE.1 {
                blocked_pause = BLOCKED_PAUSE.0;
            }
            if failed && control.rest(pause) {
                return;
            }
        }
    }

    /// Serves a peer until it leaves. Returns the outcome, and whether one of its doorbells blocked.
    fn serve(&mut self, connection: P::Connection, is_news: bool) -> (Result<(), String>, bool) {
        let peer = match Peer::new(&self.told, &self.kept, &self.control, self.protocol.fault(&connection)) {
            Ok(peer) => peer,
            Err(e) => return (Err(e.to_string()), false),
        };
        let mut state = self.told.lock();
        let is_continued = state.connected;
        if !is_continued {
            *state = State { connected: true, connections: state.connections + 1, ..State::default() };
        }
        drop(state);
        self.control.peer_changed();
        if is_news && !is_continued {
            tracing::info!(at = self.at, "{} connected", P::PEER);
        }
        let ended = self.protocol.serve(connection, &peer);
        (peer.fault.reason().map_or(ended, Err), peer.fault.is_blocked())
    }
}
