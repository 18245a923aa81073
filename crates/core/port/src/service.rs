//! A service: a thread that serves a port's peers one after another, and what is told of them ([`Told`]).
//!
//! The peers' language is a [`Protocol`]. The rest is the same for all of them: state for `netvale show`, a line in the
//! log, a pause after a peer that broke the rules, an end within a time limit.

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

/// Pause after a peer whose doorbell blocked, which cost a worker time: it doubles each time, up to the second value.
const BLOCKED_PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(64));
/// Upper bound on waiting for the thread to end: who detaches a port is not held up by its peer. The thread itself
/// waits two seconds for a worker that does not hand a queue back, and for as long as a descriptor that a peer passed
/// takes to close.
const STOP_LIMIT: Duration = Duration::from_millis(50);

/// The threads that had not ended then.
static ENDING: Mutex<Vec<Receiver<()>>> = Mutex::new(Vec::new());

/// Waits for the threads of services that were stopped. Returns the number of those that do not end within `limit`.
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

/// What is told of a service whose thread panicked.
const BROKEN: &str = "an internal error: detach the port and attach it again; please report it, with the daemon's log";

/// The protocol that a service speaks with its peers.
pub trait Protocol: Send + 'static {
    /// How a peer is reached: a connection, or a device.
    type Connection;
    /// What is shown of a peer, apart from whether it is connected.
    type Detail: Clone + Default + Send + 'static;
    /// What another process needs to go on with a peer after this one was killed ([`Peer::keep`]).
    type Kept: Clone + PartialEq + Send + 'static;
    /// What a peer is called in messages.
    const PEER: &'static str;

    /// Waits for the next peer, or returns why there is none: then the service retries. `None` when `stop` became
    /// readable.
    fn next(&mut self, stop: BorrowedFd<'_>) -> Option<Result<Self::Connection, String>>;

    /// Serves a peer until it hangs up or [`Peer::ends`] becomes readable, unless [`Peer::asked_to_pause`] says why.
    ///
    /// # Errors
    /// An error when the peer broke a rule; its text names the rule.
    fn serve(&mut self, connection: Self::Connection, peer: &Peer<Self::Detail, Self::Kept>) -> Result<(), String>;

    /// The fault of a peer that is [restored](Service::restore), which workers know already.
    fn fault(&self, _connection: &Self::Connection) -> Option<Fault> {
        None
    }
}

/// What is called when a peer comes or goes, or changes what a successor would have to know.
type OnChange = Box<dyn Fn() + Send + Sync>;

/// What a service shows of its peers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct State<D> {
    /// Whether a peer is connected.
    pub connected: bool,
    /// Number of peers so far.
    pub connections: u64,
    /// Why no peer is connected, unless the last one just hung up.
    pub last_error: Option<String>,
    /// Details of the connected peer.
    pub now: D,
}

/// What is told of a peer that could not outlive the process before.
const KILLED: &str = "the daemon was killed: let it connect again";

impl<D: Default> State<D> {
    /// The same after a kill, of a protocol whose peers do not outlive it.
    #[must_use]
    pub fn after_a_kill(self) -> Self {
        if !self.connected {
            return self;
        }
        State { connections: self.connections, last_error: Some(KILLED.to_owned()), ..State::default() }
    }
}

impl<D> State<D> {
    /// The same with a peer that is connected, or without: what is known of the peer may be older, or newer.
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

/// What is kept of a service's peer for the case that this process is killed.
#[derive(Clone)]
pub struct Kept<K> {
    /// How often that changed: its descriptors alone may have.
    pub changes: u64,
    /// What the peer's protocol [said](Peer::keep) last; `None`: there is no peer, or nothing is kept of it.
    pub last: Option<K>,
}

impl<K> Kept<K> {
    /// There is no peer any more.
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

/// What the service's thread listens to besides its peers.
struct Control {
    stop: Doorbell,
    pauses: Pauses,
    /// Readable when either is rung.
    any: OwnedFd,
    on_change: OnceLock<OnChange>,
    on_peer: OnceLock<OnChange>,
}

impl Control {
    fn new() -> Result<Control, Errno> {
        let (stop, pauses) = (Doorbell::new()?, Pauses::new()?);
        let any = any_of([stop.as_fd(), pauses.bell.as_fd()])?;
        Ok(Control { stop, pauses, any, on_change: OnceLock::new(), on_peer: OnceLock::new() })
    }

    fn changed(&self) {
        self.on_change.get().iter().for_each(|call| call());
    }

    fn peer_changed(&self) {
        self.on_peer.get().iter().for_each(|call| call());
    }

    /// Does nothing for `time`, but pauses if asked to. Returns whether the service has to stop.
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

/// A descriptor that is readable when one of these is.
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

    /// Whether the peer is to be continued by another process, perhaps: [`Pause::with`] says what that needs. Then
    /// serve it as before.
    pub fn asked_to_pause(&self) -> Option<Pause> {
        self.control.pauses.take()
    }

    /// The peer's fault: workers report there what the peer did wrong, and it makes the peer's doorbells.
    pub fn fault(&self) -> &Fault {
        &self.fault
    }

    /// A descriptor that becomes readable when the service has to stop or to pause, or a fault of the peer was
    /// reported.
    pub fn ends(&self) -> BorrowedFd<'_> {
        self.ends.as_fd()
    }

    /// Whether the service has to stop.
    pub fn is_stopped(&self) -> bool {
        self.control.is_stopped()
    }

    /// A descriptor that becomes readable when the service has to stop, and only then: for what must not be left
    /// halfway.
    pub fn stops(&self) -> BorrowedFd<'_> {
        self.control.stop.as_fd()
    }

    /// Keeps what another process needs to go on with the peer after this one was killed, if it has changed. It is said
    /// here, by the peer's own thread, since a device can be read in no other while it serves messages.
    pub fn keep(&self, now: Option<K>) {
        let mut kept = lock(&self.kept);
        if kept.last == now {
            return;
        }
        *kept = Kept { changes: kept.changes + 1, last: now };
        drop(kept);
        self.control.changed();
    }

    /// The service's state, for changing the details of the peer.
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
    /// Disconnected when the thread ends.
    running: Option<Receiver<()>>,
    file: Option<SocketFile>,
}

impl<D: Clone + Default + Send + 'static, K: Clone + PartialEq + Send + 'static> Service<D, K> {
    /// Starts a service in a thread named `thread`; `at` is its name in the log, `file` the socket that is removed at
    /// the end.
    ///
    /// # Errors
    /// Fails if no descriptor or thread can be created.
    pub fn start<P: Protocol<Detail = D, Kept = K>>(
        thread: &str,
        at: impl Display,
        file: Option<SocketFile>,
        protocol: P,
    ) -> Result<Self, OpenError> {
        Self::begin((thread, at.to_string()), file, protocol, State::default(), Kept::default(), None)
    }

    /// Restores a service of another process. It goes on where that one stopped, once the result's second part is
    /// dropped: until then the other one may go on itself, and the file is its. The first peer of `protocol` counts as
    /// connected if `told` says so; `kept` is what is kept of it.
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
        let (told, control) = (Told(Arc::new(Mutex::new(told))), Arc::new(Control::new().map_err(failed)?));
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

    /// Has the service's thread call this whenever a peer that connects, changes something, or leaves changed what a
    /// successor would have to know. Only the first call counts.
    pub fn on_change(&self, call: impl Fn() + Send + Sync + 'static) {
        let _ = self.control.on_change.set(Box::new(call));
    }

    /// Has the service's thread call this whenever a peer has connected or is gone: then [`Service::state`] says so.
    /// Only the first call counts.
    pub fn on_peer(&self, call: impl Fn() + Send + Sync + 'static) {
        let _ = self.control.on_peer.set(Box::new(call));
    }

    /// Has the thread pause between two messages of its peer, or of peers that connect, until the result is dropped.
    /// The protocol must know how to ([`Peer::asked_to_pause`]). `None`: it is held up.
    pub fn pause(&self) -> Option<Paused> {
        self.control.pauses.wait()
    }

    /// Asks the thread to pause, for a call of [`Service::pause`] that then need not wait as long. It goes on when the
    /// result is dropped, unless there was one.
    pub fn ask_to_pause(&self) -> AskedToPause {
        self.control.pauses.ask();
        AskedToPause(Arc::clone(&self.control))
    }

    /// The current state of its peers.
    pub fn state(&self) -> State<D> {
        self.told.lock().clone()
    }

    /// What is kept of its peer. It changes whenever [`Service::on_change`] says so.
    pub fn kept(&self) -> Kept<K> {
        lock(&self.kept).clone()
    }
}

impl<D, K> Drop for Service<D, K> {
    fn drop(&mut self) {
        drop(self.file.take());
        self.control.stop.ring();
        // Nothing is ever sent; the channel disconnects.
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
    /// Waits for the next peer. `None`: the service has to stop.
    fn next(&mut self) -> Option<Result<P::Connection, String>> {
        loop {
            // A continued one is there already, and says itself what a successor needs.
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

    /// Serves a peer until it leaves. Returns how it ended, and whether a doorbell of it blocked.
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
