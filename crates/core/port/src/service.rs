//! Services: a service is a thread that serves a port's peers one after another and reports their state
//! ([`ServiceState`]).
//!
//! The [`Protocol`] communicates with the peers. The service itself keeps the state for `netvale show`, writes log
//! lines, pauses after a peer broke the protocol, and limits the time for stopping the thread.

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

pub use pause::{Pause, PausedService, ThreadState};

use pause::{Pauses, StartSignal};

/// Pause after a peer whose doorbell blocked a worker: doubles each time, from the first value up to the second value.
const BLOCKED_PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(64));
/// Time limit of the wait for the thread to end, so that a peer cannot delay a detach. The thread may need longer: up
/// to two seconds for a worker to return a queue, and the time to close a peer's descriptors.
const STOP_LIMIT: Duration = Duration::from_millis(50);

/// Threads that did not end within [`STOP_LIMIT`].
static ENDING: Mutex<Vec<Receiver<()>>> = Mutex::new(Vec::new());

/// Waits for the threads of stopped services. Returns the number of threads that did not end within `limit`.
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
const BROKEN: &str = "internal error: detach and attach the port again; please report this with the daemon's log";

/// The protocol between a service and its peers.
pub trait Protocol: Send + 'static {
    /// The connection to a peer, or its device.
    type Connection;
    /// Details of a connected peer for [`ServiceState::now`].
    type Detail: Clone + Default + Send + 'static;
    /// State with which another process continues to serve a peer if this process is killed ([`ServicePeer::keep`]).
    type Kept: Clone + PartialEq + Send + 'static;
    /// Noun for a peer in log messages.
    const PEER: &'static str;

    /// Waits for the next peer. After an error, which contains the reason, the service retries. `None` once `stop` is
    /// readable.
    fn next(&mut self, stop: BorrowedFd<'_>) -> Option<Result<Self::Connection, String>>;

    /// Serves a peer until it disconnects or [`ServicePeer::ends`] becomes readable. If [`ServicePeer::asked_to_pause`]
    /// returns a request, pauses and then continues.
    ///
    /// # Errors
    /// The protocol rule that the peer broke.
    fn serve(
        &mut self,
        connection: Self::Connection,
        peer: &ServicePeer<Self::Detail, Self::Kept>,
    ) -> Result<(), String>;

    /// The [`Fault`] of a [restored](Service::restore) peer, to which workers already report; `None` for a new peer.
    fn fault(&self, _connection: &Self::Connection) -> Option<Fault> {
        None
    }
}

/// A callback that the service's thread calls after a change.
type OnChange = Box<dyn Fn() + Send + Sync>;

/// A service's report on its peers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ServiceState<D> {
    /// Whether a peer is connected.
    pub connected: bool,
    /// Number of peers that have connected so far.
    pub connections: u64,
    /// Reason why no peer is connected; `None` if the last peer disconnected normally.
    pub last_error: Option<String>,
    /// Details of the connected peer.
    pub now: D,
}

/// The error reported for a peer that was lost because the previous process was killed.
const KILLED: &str = "the daemon was killed: the peer must connect again";

impl<D: Default> ServiceState<D> {
    /// Returns the state after this process's predecessor was killed, for a protocol whose peers do not survive the
    /// kill.
    #[must_use]
    pub fn after_a_kill(self) -> Self {
        if !self.connected {
            return self;
        }
        ServiceState { connections: self.connections, last_error: Some(KILLED.to_owned()), ..ServiceState::default() }
    }
}

impl<D> ServiceState<D> {
    /// Returns this state with `connected` replaced. A successor sets `connected` from the saved record of the peer, as
    /// this state and that record may have been saved at different times.
    #[must_use]
    pub fn with(self, connected: bool) -> Self {
        ServiceState { connected, ..self }
    }
}

/// A handle to a service's [`ServiceState`]. Clones share the state.
pub struct SharedServiceState<D>(Arc<Mutex<ServiceState<D>>>);

impl<D> Clone for SharedServiceState<D> {
    fn clone(&self) -> Self {
        SharedServiceState(Arc::clone(&self.0))
    }
}

impl<D> SharedServiceState<D> {
    /// Changes the details of the connected peer.
    pub fn update(&self, change: impl FnOnce(&mut D)) {
        change(&mut self.lock().now);
    }

    fn lock(&self) -> MutexGuard<'_, ServiceState<D>> {
        lock(&self.0)
    }
}

/// The kept state of a service's peer, with which another process continues to serve the peer if this process is
/// killed.
#[derive(Clone)]
pub struct KeptState<K> {
    /// Number of changes so far, including those that affect only the state's descriptors.
    pub changes: u64,
    /// The peer's last [kept](ServicePeer::keep) state; `None` without a peer or a kept state.
    pub last: Option<K>,
}

impl<K> KeptState<K> {
    /// Clears the state after the peer has disconnected.
    fn forget(&mut self) {
        self.changes += u64::from(self.last.take().is_some());
    }
}

impl<K> Default for KeptState<K> {
    fn default() -> Self {
        KeptState { changes: 0, last: None }
    }
}

/// A peer that is being served.
pub struct ServicePeer<D, K = ()> {
    told: SharedServiceState<D>,
    kept: Arc<Mutex<KeptState<K>>>,
    control: Arc<ServiceControl>,
    fault: Fault,
    ends: OwnedFd,
}

/// Requests to the service's thread, and its callbacks.
struct ServiceControl {
    stop: Doorbell,
    pauses: Pauses,
    /// Readable when the doorbell of `stop` or of `pauses` is rung.
    any: OwnedFd,
    on_change: OnceLock<OnChange>,
    on_peer: OnceLock<OnChange>,
}

impl ServiceControl {
    fn new() -> Result<ServiceControl, Errno> {
        let stop = Doorbell::new()?;
        let pauses = Pauses::new()?;
        let any = any_of([stop.as_fd(), pauses.bell.as_fd()])?;
        Ok(ServiceControl { stop, pauses, any, on_change: OnceLock::new(), on_peer: OnceLock::new() })
    }

    fn changed(&self) {
        self.on_change.get().iter().for_each(|call| call());
    }

    fn peer_changed(&self) {
        self.on_peer.get().iter().for_each(|call| call());
    }

    /// Sleeps for `time`, and pauses if requested. Returns whether the service must stop.
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

/// A request to a service's thread to pause ([`Service::ask_to_pause`]). Dropping it withdraws the request.
pub struct AskedToPause(Arc<ServiceControl>);

impl Drop for AskedToPause {
    fn drop(&mut self) {
        self.0.pauses.forget();
    }
}

/// Creates a descriptor that is readable when one of `fds` is readable.
fn any_of<const N: usize>(fds: [BorrowedFd<'_>; N]) -> Result<OwnedFd, Errno> {
    let any = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for fd in fds {
        epoll::add(&any, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    }
    Ok(any)
}

impl<D, K: PartialEq> ServicePeer<D, K> {
    fn new(
        told: &SharedServiceState<D>,
        kept: &Arc<Mutex<KeptState<K>>>,
        control: &Arc<ServiceControl>,
        fault: Option<Fault>,
    ) -> Result<Self, Errno> {
        let fault = fault.map_or_else(Fault::new, Ok)?;
        let ends = any_of([control.any.as_fd(), fault.as_fd()])?;
        Ok(ServicePeer { told: told.clone(), kept: Arc::clone(kept), control: Arc::clone(control), fault, ends })
    }

    /// Returns a pending request to pause; `None` if no request is pending. The protocol passes the peer's state for a
    /// successor to [`Pause::with`], and continues to serve the peer when that method returns.
    pub fn asked_to_pause(&self) -> Option<Pause> {
        self.control.pauses.take()
    }

    /// The peer's [`Fault`] record: the peer's doorbells are created with it, and workers report violations to it.
    pub fn fault(&self) -> &Fault {
        &self.fault
    }

    /// A descriptor that becomes readable when the service must stop or pause, or when a fault of the peer was
    /// reported.
    pub fn ends(&self) -> BorrowedFd<'_> {
        self.ends.as_fd()
    }

    /// Whether the service must stop.
    pub fn is_stopped(&self) -> bool {
        self.control.is_stopped()
    }

    /// A descriptor that becomes readable only when the service must stop, for steps that a pause must not interrupt.
    pub fn stops(&self) -> BorrowedFd<'_> {
        self.control.stop.as_fd()
    }

    /// Keeps the state with which another process continues to serve the peer if this process is killed. Does nothing
    /// if the state has not changed. Called by the service's thread, because no other thread can read the device while
    /// that thread serves messages.
    pub fn keep(&self, now: Option<K>) {
        let mut kept = lock(&self.kept);
        if kept.last == now {
            return;
        }
        *kept = KeptState { changes: kept.changes + 1, last: now };
        drop(kept);
        self.control.changed();
    }

    /// The handle to the service's state, for changes to the peer's details.
    pub fn told(&self) -> &SharedServiceState<D> {
        &self.told
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A running service: a thread that serves a port's peers. Dropping it ends the connection and the thread, and removes
/// the socket.
pub struct Service<D, K = ()> {
    told: SharedServiceState<D>,
    kept: Arc<Mutex<KeptState<K>>>,
    control: Arc<ServiceControl>,
    /// A channel that disconnects when the thread ends.
    running: Option<Receiver<()>>,
    file: Option<SocketFile>,
}

impl<D: Clone + Default + Send + 'static, K: Clone + PartialEq + Send + 'static> Service<D, K> {
    /// Starts a service in a thread named `thread`. `at` identifies the service in the log; `file` is the socket file
    /// to remove when the service is dropped.
    ///
    /// # Errors
    /// The system error if no descriptor or thread can be created.
    pub fn start<P: Protocol<Detail = D, Kept = K>>(
        thread: &str,
        at: impl Display,
        file: Option<SocketFile>,
        protocol: P,
    ) -> Result<Self, OpenError> {
        Self::begin(thread, at.to_string(), file, protocol, ServiceState::default(), KeptState::default(), None)
    }

    /// Restores another process's service. The service starts once the returned [`PausedService`] is dropped; until
    /// then, the other process owns the file and may resume. If `told` has a connected peer, the first peer of
    /// `protocol` is that peer, and `kept` is the peer's kept state.
    ///
    /// # Errors
    /// As for [`Service::start`].
    pub fn restore<P: Protocol<Detail = D, Kept = K>>(
        thread: &str,
        at: impl Display,
        file: Option<SocketFile>,
        protocol: P,
        told: ServiceState<D>,
        kept: KeptState<K>,
    ) -> Result<(Self, PausedService), OpenError> {
        let (turn, paused) = PausedService::before_begin(file.as_ref().map(SocketFile::claim));
        Ok((Self::begin(thread, at.to_string(), file, protocol, told, kept, Some(turn))?, paused))
    }

    fn begin<P: Protocol<Detail = D, Kept = K>>(
        thread: &str,
        at: String,
        file: Option<SocketFile>,
        protocol: P,
        told: ServiceState<D>,
        kept: KeptState<K>,
        turn: Option<StartSignal>,
    ) -> Result<Self, OpenError> {
        let failed = |source| OpenError::step(&at, "start a thread")(source);
        let told = SharedServiceState(Arc::new(Mutex::new(told)));
        let control = Arc::new(ServiceControl::new().map_err(failed)?);
        let (alive, running) = mpsc::channel();
        let kept = Arc::new(Mutex::new(kept));
        let server = ServiceThread {
            protocol,
            at: at.clone(),
            told: told.clone(),
            kept: Arc::clone(&kept),
            control: Arc::clone(&control),
        };
        let broken = told.clone();
        let broken_kept = Arc::clone(&kept);
        let run = move || {
            turn.into_iter().for_each(StartSignal::wait);
            if catch_unwind(AssertUnwindSafe(|| server.run())).is_err() {
                let last_error = Some(BROKEN.to_owned());
                *broken.lock() = ServiceState { last_error, ..ServiceState::default() };
                lock(&broken_kept).forget();
            }
            drop(alive);
        };
        let started = std::thread::Builder::new().name(thread.into()).spawn(run);
        started.map_err(|e| failed(Errno::from_io_error(&e).unwrap_or(Errno::AGAIN)))?;
        Ok(Service { told, kept, control, running: Some(running), file })
    }

    /// Sets the callback that the service's thread calls after each change of state that a successor needs. Only the
    /// first call has an effect.
    pub fn on_change(&self, call: impl Fn() + Send + Sync + 'static) {
        let _ = self.control.on_change.set(Box::new(call));
    }

    /// Sets the callback that the service's thread calls after a peer connected or disconnected and [`Service::state`]
    /// reports it. Only the first call has an effect.
    pub fn on_peer(&self, call: impl Fn() + Send + Sync + 'static) {
        let _ = self.control.on_peer.set(Box::new(call));
    }

    /// Pauses the thread between two messages of its peer, or between peers, until the result is dropped. The protocol
    /// must support pauses ([`ServicePeer::asked_to_pause`]). `None` if the thread did not pause within 1 s.
    pub fn pause(&self) -> Option<PausedService> {
        self.control.pauses.wait()
    }

    /// Asks the thread to pause without waiting, so that a later [`Service::pause`] waits less. Dropping the result
    /// withdraws the request unless [`Service::pause`] was called.
    pub fn ask_to_pause(&self) -> AskedToPause {
        self.control.pauses.ask();
        AskedToPause(Arc::clone(&self.control))
    }

    /// Returns the current state of the service's peers.
    pub fn state(&self) -> ServiceState<D> {
        self.told.lock().clone()
    }

    /// Returns the kept state of the service's peer. After each change, the thread calls the callback of
    /// [`Service::on_change`].
    pub fn kept(&self) -> KeptState<K> {
        lock(&self.kept).clone()
    }
}

impl<D, K> Drop for Service<D, K> {
    fn drop(&mut self) {
        drop(self.file.take());
        self.control.stop.ring();
        // No message is sent; the channel disconnects when the thread ends.
        let Some(thread) = self.running.take() else { return };
        if thread.recv_timeout(STOP_LIMIT) == Err(mpsc::RecvTimeoutError::Timeout) {
            tracing::info!("a port's thread did not end in time; it ends in the background");
            ends_later(thread);
        }
    }
}

struct ServiceThread<P: Protocol> {
    protocol: P,
    at: String,
    told: SharedServiceState<P::Detail>,
    kept: Arc<Mutex<KeptState<P::Kept>>>,
    control: Arc<ServiceControl>,
}

impl<P: Protocol> ServiceThread<P> {
    /// Waits for the next peer. `None` if the service must stop.
    fn next(&mut self) -> Option<Result<P::Connection, String>> {
        loop {
            // A restored peer is connected already: the protocol then answers a request to pause with that peer's
            // state.
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
            *state =
                ServiceState { connections: state.connections, last_error: ended.err(), ..ServiceState::default() };
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

    /// Serves a peer until it disconnects. Returns the outcome, and whether one of the peer's doorbells blocked.
    fn serve(&mut self, connection: P::Connection, is_news: bool) -> (Result<(), String>, bool) {
        let peer = match ServicePeer::new(&self.told, &self.kept, &self.control, self.protocol.fault(&connection)) {
            Ok(peer) => peer,
            Err(e) => return (Err(e.to_string()), false),
        };
        let mut state = self.told.lock();
        let is_continued = state.connected;
        if !is_continued {
            *state = ServiceState { connected: true, connections: state.connections + 1, ..ServiceState::default() };
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
