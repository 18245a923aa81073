//! A virtio-net driver port: the driver on any transport, and the thread that runs it.

pub mod state;

use std::cell::Cell;
use std::fmt::Display;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use netvale_fdio::state::BadState;
use netvale_mem::fault::Fault;
use netvale_mem::lent::InUse;
use netvale_mem::notify::Doorbell;
use netvale_port::listener::OpenError;
use netvale_port::seat::{Seat, SeatEgress, SeatIngress};
use netvale_port::service::{self, AskedToPause, KeptState, PausedService, Protocol, Service, ServicePeer};
use netvale_port::{Egress, Ingress};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use thiserror::Error;

use super::options::DriverOptions;
use super::path::Path;
use super::ram::{DriverRam, MAX_QUEUE};
use super::started::{Kick, RunningQueue, RunningVirtioDevice};
use crate::{MAX_PAIRS, VirtioPortError, VirtioQueues};

use state::{DeviceSaid, DeviceState, DriverState, device_state};

/// The means by which a driver reaches its device, such as a socket or the PCI bus. `Display` writes the device's
/// location.
pub trait Transport: Display + Send + 'static {
    /// An open connection to the device.
    type Connection: Send;
    /// An error in connecting to the device or in driving it.
    type Error: Display + From<LendError>;

    /// Connects to the device. The caller retries after a failure.
    ///
    /// # Errors
    /// The reason why no device is reachable.
    fn connect(&mut self) -> Result<Self::Connection, Self::Error>;

    /// Connects through the descriptor that a predecessor used. Returns `None` if this transport cannot restore a
    /// connection, or the descriptor is of another kind.
    fn restore(&mut self, _by: OwnedFd) -> Option<Self::Connection> {
        None
    }

    /// Starts the device unless it is [restored](PortSession::restored), and [runs](PortSession::run) it until it ends.
    ///
    /// # Errors
    /// An error in driving the device, or the device's protocol violation.
    fn serve(&mut self, connection: Self::Connection, session: &PortSession<'_>) -> Result<(), Self::Error>;
}

/// An error in lending queues to workers.
#[derive(Debug, Error)]
pub enum LendError {
    /// A worker has not returned a queue of the previous device.
    #[error("a queue of the previous device is still in use: {0}")]
    InUse(#[from] InUse),
    /// A system call failed.
    #[error("{0}")]
    System(#[from] Errno),
}

/// A device's state, for `netvale show`.
#[derive(Clone, Debug, Default)]
pub struct VirtioDeviceStatus {
    /// Whether the device runs.
    pub running: bool,
    /// Number of queue pairs.
    pub pairs: usize,
    /// Negotiated features.
    pub features: u64,
    /// The fast path, while the device runs.
    pub path: Option<Path>,
    /// Whether the device reports its link as down.
    pub link_down: bool,
}

/// A port. Dropping the port ends its connection to the device, and its thread.
pub struct VirtioPort {
    service: Service<VirtioDeviceStatus, DeviceState>,
}

impl VirtioPort {
    /// Creates a port that drives the device that `transport` reaches, immediately or once the device appears.
    ///
    /// # Errors
    /// [`VirtioPortError`] if the number of pairs or the size of the queues is invalid, or the system refuses a
    /// descriptor or the thread.
    pub fn new<T: Transport>(
        transport: T,
        options: DriverOptions,
    ) -> Result<(VirtioPort, VirtioQueues), VirtioPortError> {
        let at = transport.to_string();
        let (pairs, queues) = seats(&at, options)?;
        let driver = VirtioDriver { transport, options, pairs, restored: None };
        Ok((VirtioPort { service: Service::start("netvale-virtio", &at, None, driver)? }, queues))
    }

    /// Restores a predecessor's port. The port resumes once the returned [`PausedService`] is dropped; until then, the
    /// predecessor may resume the port instead. The returned queues hold the restored rings.
    ///
    /// # Errors
    /// [`BadState`] if the state is of a different port, or inconsistent.
    pub fn restore<T: Transport>(
        mut transport: T,
        options: DriverOptions,
        state: DriverState,
    ) -> Result<(VirtioPort, VirtioQueues, PausedService), BadState> {
        let at = transport.to_string();
        let (pairs, queues) = seats(&at, options)?;
        let mut told = service::ServiceState {
            connections: state.connections,
            last_error: state.last_error,
            ..Default::default()
        };
        let mut restored = None;
        let mut kept = KeptState::default();
        if let Some(device) = state.device {
            let part = |why: BadState| why.of("the device cannot be continued");
            let (by, lent) = LentDevice::restore(device, options, &pairs).map_err(part)?;
            told.connected = true;
            told.now = lent.told(options);
            kept.last = lent.state_at_any_time(by.as_fd(), &lent.calls).ok();
            let unreached = || BadState::new("the device cannot be reached through its descriptor");
            let connection = transport.restore(by).ok_or_else(unreached).map_err(part)?;
            restored = Some(ConnectedDevice { connection, restored: Some(lent) });
        }
        let driver = VirtioDriver { transport, options, pairs, restored };
        let (service, paused) = Service::restore("netvale-virtio", &at, None, driver, told, kept)?;
        Ok((VirtioPort { service }, queues, paused))
    }

    /// Returns the state from which a successor restores the device if this process is killed. The state changes
    /// whenever the callback of [`VirtioPort::on_change`] is called. Returns `None` if no device is connected, or other
    /// processes cannot reach the device.
    pub fn save(&self) -> Option<DriverState> {
        let service::ServiceState { connections, last_error, .. } = self.service.state();
        self.service.kept().last.map(|device| DriverState { connections, last_error, device: Some(device) })
    }

    /// Makes the port's thread call `call` whenever [`VirtioPort::save`] changes. Only the first registration counts.
    pub fn on_change(&self, call: impl Fn() + Send + Sync + 'static) {
        self.service.on_change(call);
    }

    /// Requests a pause of the port's thread; [`VirtioPort::save_parked`] waits until it has paused.
    pub fn ask_to_pause(&self) -> AskedToPause {
        self.service.ask_to_pause()
    }

    /// Returns the state for a successor. The port's thread is paused until the returned [`PausedService`] is dropped.
    /// The workers must be parked, i.e. paused between batches, and stay parked until the successor resumes or fails.
    /// Returns `None` if the port cannot be restored: the thread is blocked, or other processes cannot reach the
    /// device.
    ///
    /// # Errors
    /// Fails if the process is out of descriptors.
    pub fn save_parked(&self) -> std::io::Result<Option<(DriverState, PausedService)>> {
        let Some(mut paused) = self.service.pause() else { return Ok(None) };
        let service::ServiceState { connections, last_error, .. } = self.service.state();
        let mut state = DriverState { connections, last_error, device: None };
        if let Some(said) = paused.said.take() {
            state.device = said.downcast::<DeviceSaid>().map_or(Ok(None), |said| *said)?;
            if state.device.is_none() {
                return Ok(None);
            }
        }
        Ok(Some((state, paused)))
    }

    /// Makes a thread of the port call `call` whenever the device connects or leaves. Only the first registration
    /// counts.
    pub fn on_peer(&self, call: impl Fn() + Send + Sync + 'static) {
        self.service.on_peer(call);
    }

    /// Returns the state of the current device, and the number of devices so far.
    pub fn state(&self) -> service::ServiceState<VirtioDeviceStatus> {
        self.service.state()
    }
}

/// Creates the queues of a port named `at`, and their seats, which hold the queues of one device after another.
fn seats(at: &str, options: DriverOptions) -> Result<(Vec<SeatPair>, VirtioQueues), VirtioPortError> {
    if options.pairs == 0 || usize::from(options.pairs) > MAX_PAIRS {
        return Err(VirtioPortError::Pairs(options.pairs));
    }
    let step = |what| OpenError::step(at, what);
    if !options.size.is_power_of_two() || options.size > MAX_QUEUE || options.size < 8 {
        return Err(step("use a queue size that is not a power of two from 8 to 4096")(Errno::INVAL).into());
    }
    let mut pairs = Vec::new();
    let mut egress = Vec::<Arc<dyn Egress>>::new();
    let mut ingress = Vec::<Box<dyn Ingress>>::new();
    for _ in 0..options.pairs {
        let rx = Arc::new(Seat::woken().map_err(step("make a descriptor to wait on"))?);
        let tx = Arc::<Seat<RunningQueue>>::default();
        ingress.push(Box::new(SeatIngress::new(Arc::clone(&rx))));
        egress.push(Arc::new(SeatEgress(Arc::clone(&tx))));
        pairs.push((rx, tx));
    }
    Ok((pairs, (egress, ingress)))
}

/// The part of a queue pair that outlives devices: the seats of its receive and transmit queues.
type SeatPair = (Arc<Seat<RunningQueue>>, Arc<Seat<RunningQueue>>);

/// State of the control thread.
struct VirtioDriver<T: Transport> {
    transport: T,
    options: DriverOptions,
    pairs: Vec<SeatPair>,
    /// The predecessor's device, which is served first.
    restored: Option<ConnectedDevice<T::Connection>>,
}

/// A connected device.
struct ConnectedDevice<C> {
    connection: C,
    restored: Option<LentDevice>,
}

impl<T: Transport> Protocol for VirtioDriver<T> {
    type Connection = ConnectedDevice<T::Connection>;
    type Detail = VirtioDeviceStatus;
    type Kept = DeviceState;
    const PEER: &'static str = "device";

    fn next(&mut self, _stop: BorrowedFd<'_>) -> Option<Result<Self::Connection, String>> {
        if let Some(restored) = self.restored.take() {
            return Some(Ok(restored));
        }
        let reached = self.transport.connect().map(|connection| ConnectedDevice { connection, restored: None });
        Some(reached.map_err(|e| e.to_string()))
    }

    fn fault(&self, reached: &Self::Connection) -> Option<Fault> {
        reached.restored.as_ref().map(|lent| lent.fault.clone())
    }

    fn serve(
        &mut self,
        reached: Self::Connection,
        peer: &ServicePeer<VirtioDeviceStatus, DeviceState>,
    ) -> Result<(), String> {
        let ConnectedDevice { connection, mut restored } = reached;
        let calls = match &mut restored {
            Some(lent) => std::mem::take(&mut lent.calls),
            // Doorbells that the device rings, two per pair.
            None => {
                let calls = (0..2 * self.pairs.len()).map(|_| Doorbell::shared(peer.fault()));
                calls.collect::<Result<Vec<_>, _>>().map_err(|e| e.to_string())?
            }
        };
        let restored = Cell::new(restored);
        let session = PortSession { options: self.options, pairs: &self.pairs, calls, peer, restored };
        self.transport.serve(connection, &session).map_err(|e| e.to_string())
    }
}

/// The session of one device with the port.
pub struct PortSession<'a> {
    options: DriverOptions,
    pairs: &'a [SeatPair],
    calls: Vec<Doorbell>,
    peer: &'a ServicePeer<VirtioDeviceStatus, DeviceState>,
    restored: Cell<Option<LentDevice>>,
}

/// A device whose queues have been lent to the workers.
pub struct LentDevice {
    pub(super) features: u64,
    /// Sizes of the device's queues: a receive and a transmit queue for each pair.
    pub(super) sizes: Vec<u16>,
    pub(super) ram: DriverRam,
    /// Doorbells that the device rings; empty unless a predecessor set the device up.
    pub(super) calls: Vec<Doorbell>,
    /// Doorbells with which the driver kicks the device; empty if kicks are not eventfds.
    pub(super) kicks: Vec<Arc<Doorbell>>,
    /// Whether the predecessor was killed, and may have posted buffers without a kick.
    pub(super) unrung: bool,
    pub(super) fault: Fault,
}

impl LentDevice {
    pub(super) fn told(&self, options: DriverOptions) -> VirtioDeviceStatus {
        let path = Some(Path::of(self.features, options.vector));
        VirtioDeviceStatus {
            running: true,
            pairs: self.sizes.len() / 2,
            features: self.features,
            path,
            link_down: false,
        }
    }
}

impl PortSession<'_> {
    /// Returns the requested options.
    pub fn options(&self) -> DriverOptions {
        self.options
    }

    /// Returns the doorbells that the device rings, two per pair: receive, transmit.
    pub fn calls(&self) -> &[Doorbell] {
        &self.calls
    }

    /// Returns the fault to which workers report the device's violations.
    pub fn fault(&self) -> &Fault {
        self.peer.fault()
    }

    /// Returns a descriptor that is readable when the session must end.
    pub fn ends(&self) -> BorrowedFd<'_> {
        self.peer.ends()
    }

    /// Records whether the device reports its link as up.
    pub fn tell_link(&self, up: bool) {
        self.peer.told().update(|told| told.link_down = !up);
    }

    /// Returns the device if a predecessor set it up; `None` for a new device.
    pub fn restored(&self) -> Option<LentDevice> {
        self.restored.take()
    }

    /// Runs the device until the device or the port ends. `by` is the descriptor through which a successor can reach
    /// the device; `None` if a successor cannot reach it. `news` is called when one of `fds` is readable; its argument
    /// is true if that is the second descriptor.
    ///
    /// # Errors
    /// An error of `news`, or of lending a queue.
    pub fn run<E: From<LendError>>(
        &self,
        running: RunningVirtioDevice,
        fds: [BorrowedFd<'_>; 2],
        by: Option<BorrowedFd<'_>>,
        news: impl Fn(bool) -> Result<(), E>,
    ) -> Result<(), E> {
        let RunningVirtioDevice { features, pairs: started, ram } = running;
        let mut sizes = Vec::new();
        let mut kicks = Vec::new();
        for queue in started.iter().flat_map(|(rx, tx)| [rx, tx]) {
            sizes.push(queue.ram.size());
            if let Kick::Bell(bell) = &queue.kick {
                kicks.push(Arc::clone(bell));
            }
        }
        let fault = self.fault().clone();
        let lent = LentDevice { features, sizes, ram, calls: Vec::new(), kicks, unrung: false, fault };
        match lend(self.pairs, &self.calls, started) {
            Ok(()) => self.go_on(lent, fds, by, news),
            Err(e) => {
                self.take_back();
                Err(e.into())
            }
        }
    }

    /// Runs a device as [`PortSession::run`] does, with queues that are already lent to the workers.
    ///
    /// # Errors
    /// An error of `news`.
    pub fn go_on<E>(
        &self,
        lent: LentDevice,
        fds: [BorrowedFd<'_>; 2],
        by: Option<BorrowedFd<'_>>,
        news: impl Fn(bool) -> Result<(), E>,
    ) -> Result<(), E> {
        // If the process is out of descriptors for the state, the device is not restored after a restart.
        self.peer.keep(by.and_then(|by| lent.state_at_any_time(by, &self.calls).ok()));
        self.peer.told().update(|was| *was = lent.told(self.options));
        if lent.unrung {
            lent.kicks.iter().for_each(|kick| kick.ring());
        }
        let ended = self.wait(fds, news, || match by {
            Some(by) => device_state(&lent, by, &self.calls, self.pairs),
            None => Ok(None),
        });
        self.peer.keep(None);
        self.take_back();
        ended
    }

    /// Waits until the device ends or violates the protocol, or the port must end. Answers a request to pause with the
    /// result of `state`.
    fn wait<E>(
        &self,
        [one, other]: [BorrowedFd<'_>; 2],
        news: impl Fn(bool) -> Result<(), E>,
        state: impl Fn() -> DeviceSaid,
    ) -> Result<(), E> {
        loop {
            let mut fds = [one, other, self.ends()].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
            let _ = poll(&mut fds, None);
            let [one, other, ends] = fds.map(|f| !f.revents().is_empty());
            if ends && (self.peer.is_stopped() || self.fault().reason().is_some()) {
                return Ok(());
            }
            self.peer.asked_to_pause().into_iter().for_each(|pause| pause.with(Box::new(state())));
            if one || other {
                news(other)?;
            }
        }
    }

    fn take_back(&self) {
        for (pair, call) in self.pairs.iter().zip(self.calls.iter().step_by(2)) {
            pair.0.wake.iter().for_each(|wake| wake.remove(call));
            for seat in [&pair.0, &pair.1] {
                // A queue that a worker has not returned keeps its memory; no further device is served until the worker
                // returns the queue.
                let _ = seat.take_now();
            }
        }
    }
}

/// Lends the queues to the workers.
fn lend(pairs: &[SeatPair], calls: &[Doorbell], started: Vec<(RunningQueue, RunningQueue)>) -> Result<(), LendError> {
    for ((pair, call), (rx, tx)) in pairs.iter().zip(calls.iter().step_by(2)).zip(started) {
        pair.0.wake.iter().try_for_each(|wake| wake.add_peer(call))?;
        // A worker posts the receive buffers when it polls the queue for the first time.
        for (seat, queue) in [(&pair.0, rx), (&pair.1, tx)] {
            seat.put(RunningQueue { counters: Arc::clone(&seat.counters), ..queue })?;
        }
    }
    Ok(())
}
