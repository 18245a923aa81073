//! A vhost-user device port: a socket, and a device for each front end that connects.

pub mod state;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use netvale_fdio::state::{BadState, Fd};
use netvale_mem::fault::Fault;
use netvale_mem::notify::KickCounts;
use netvale_port::listener::{ListenAddress, Listener, OpenError, connect};
use netvale_port::seat::{Seat, SeatEgress, SeatIngress};
use netvale_port::service::{self, KeptState, PausedService, Protocol, Service, ServicePeer};
use netvale_port::{Egress, Ingress};
use netvale_virtio::device::live::LiveQueue;
use netvale_virtio::{MAX_PAIRS, VirtioPortError, VirtioQueues};

use crate::proto::device::{NetConfig, OfferedMtu, VhostDevice};
use crate::proto::message::{FrontEndViolation, VhostMessage};
use crate::proto::wire::{ReceiveResult, send};

use state::{FrontEndConnection, KeptFrontEnd, UnreadState, VhostState};

/// The side that listens at the socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VhostMode {
    /// The port listens; front ends come and go.
    #[default]
    Server,
    /// The front end listens; the port connects repeatedly.
    Client,
}

/// The options of a port.
#[derive(Clone, Debug)]
pub struct VhostOptions {
    /// Location of the socket.
    pub site: ListenAddress,
    /// The side that listens at the socket.
    pub mode: VhostMode,
    /// Number of queue pairs, 1 to [`MAX_PAIRS`].
    pub pairs: u16,
    /// Ethernet address offered to the driver.
    pub mac: [u8; 6],
    /// MTU offered to the driver in bytes.
    pub mtu: u16,
}

/// The state of a front end, for `netvale show`.
#[derive(Clone, Debug, Default)]
pub struct FrontEndStatus {
    /// Number of running queues.
    pub queues: usize,
    /// Features that the driver acknowledged.
    pub features: u64,
}

impl FrontEndStatus {
    pub(crate) fn of(device: &VhostDevice) -> FrontEndStatus {
        FrontEndStatus { queues: device.running(), features: device.features() }
    }
}

/// A port. Dropping the port ends its front end's connection and its thread, and removes the socket.
pub struct VhostPort {
    pub(crate) service: Service<FrontEndStatus, KeptFrontEnd>,
    pub(crate) seats: VhostSeats,
    options: VhostOptions,
    mtu: OfferedMtu,
    pub(crate) listener: Option<Arc<Listener>>,
}

impl VhostPort {
    /// Opens the socket and starts to serve front ends.
    ///
    /// # Errors
    /// [`VirtioPortError`] if the options are invalid or the socket cannot be opened.
    pub fn new(options: &VhostOptions) -> Result<(VhostPort, VirtioQueues), VirtioPortError> {
        let (seats, queues) = seats(options)?;
        let (listener, file) = match options.mode {
            VhostMode::Server => Listener::listen(&options.site).map(|(l, file)| (Some(Arc::new(l)), Some(file)))?,
            VhostMode::Client => (None, None),
        };
        let server = VhostServer::new(options, &seats, listener.clone());
        let mtu = server.config.mtu.clone();
        let service = Service::start(THREAD, options.site.path().display(), file, server)?;
        Ok((VhostPort { service, seats, options: options.clone(), mtu, listener }, queues))
    }

    /// Restores a port of a predecessor that was replaced or ended without notice. The port resumes once the returned
    /// [`PausedService`] is dropped; until then, the predecessor may resume the port instead. The returned queues hold
    /// the restored rings. If the predecessor ended without notice, a front end that cannot be restored is
    /// disconnected.
    ///
    /// # Errors
    /// [`BadState`] if the state is of a different port, or inconsistent.
    pub fn restore(
        options: &VhostOptions,
        state: VhostState,
    ) -> Result<(VhostPort, VirtioQueues, PausedService), BadState> {
        let (seats, queues) = seats(options)?;
        if (options.mode == VhostMode::Server) != state.listener.is_some() || state.kicks.len() != seats.len() {
            return Err(BadState::new("the port has another mode or other queues"));
        }
        let (listener, file) = match state.listener {
            Some(fd) => {
                Listener::restore(fd.take()?, &options.site).map(|(l, file)| (Some(Arc::new(l)), Some(file)))?
            }
            None => (None, None),
        };
        let mut server = VhostServer::new(options, &seats, listener.clone());
        let mut kept = KeptState { changes: state.changes, last: None };
        let mut told = service::ServiceState {
            last_error: state.last_error,
            connections: state.connections,
            ..Default::default()
        };
        if let Some(peer) = state.peer {
            let is_lost = peer.device.is_lost();
            match FrontEndConnection::restore(peer, server.config.clone(), seats.clone()) {
                Ok(front) => {
                    told.connected = true;
                    told.now = front.told();
                    kept.last = front.kept();
                    server.restored = Some(front);
                }
                // No predecessor can resume the front end, so the port disconnects it.
                Err(why) if is_lost => told.last_error = Some(why.to_string()),
                Err(why) => return Err(why.of("the front end cannot be continued")),
            }
        }
        for (seat, (sent, received)) in seats.iter().zip(state.kicks) {
            seat.kicks.add(sent, 0, received);
        }
        let mtu = server.config.mtu.clone();
        let (service, paused) = Service::restore(THREAD, options.site.path().display(), file, server, told, kept)?;
        Ok((VhostPort { service, seats, options: options.clone(), mtu, listener }, queues, paused))
    }

    /// Returns the options with which the port was created.
    pub fn options(&self) -> &VhostOptions {
        &self.options
    }

    /// Returns the MTU offered to drivers.
    pub fn mtu(&self) -> &OfferedMtu {
        &self.mtu
    }

    /// Returns the state of the service that serves front ends, including the state of the connected front end.
    pub fn state(&self) -> service::ServiceState<FrontEndStatus> {
        self.service.state()
    }

    /// Makes a thread of the port call `call` whenever a front end connects or leaves. Only the first registration
    /// counts.
    pub fn on_peer(&self, call: impl Fn() + Send + Sync + 'static) {
        self.service.on_peer(call);
    }

    /// Returns the number of calls to the driver and the number of kicks from the driver, summed over all queues.
    pub fn notifications(&self) -> (u64, u64) {
        let sum = |count: fn(&KickCounts) -> u64| self.seats.iter().map(|seat| count(&seat.kicks)).sum();
        (sum(KickCounts::sent), sum(KickCounts::received))
    }
}

/// Name of the port's thread.
const THREAD: &str = "netvale-vhost";

/// The seats of a port, which hold the queues of one front end after another. Each queue pair has two seats: the first
/// for frames to the driver, the second for frames from the driver.
pub(crate) type VhostSeats = Vec<Arc<Seat<LiveQueue>>>;

/// Creates a port's queues for the switch, and their seats.
fn seats(options: &VhostOptions) -> Result<(VhostSeats, VirtioQueues), VirtioPortError> {
    if options.pairs == 0 || usize::from(options.pairs) > MAX_PAIRS {
        return Err(VirtioPortError::Pairs(options.pairs));
    }
    let mut seats = Vec::new();
    let mut egress = Vec::<Arc<dyn Egress>>::new();
    let mut ingress = Vec::<Box<dyn Ingress>>::new();
    for _ in 0..options.pairs {
        let rx = Arc::<Seat<LiveQueue>>::default();
        let tx = Arc::new(Seat::woken().map_err(OpenError::step(options.site.path(), "make a descriptor to wait on"))?);
        egress.push(Arc::new(SeatEgress(Arc::clone(&rx))));
        ingress.push(Box::new(SeatIngress::new(Arc::clone(&tx))));
        seats.extend([rx, tx]);
    }
    Ok((seats, (egress, ingress)))
}

/// State of the control thread.
struct VhostServer {
    seats: VhostSeats,
    config: NetConfig,
    site: ListenAddress,
    /// The port's listener; `None` if the front end listens.
    listener: Option<Arc<Listener>>,
    /// The predecessor's front end, which is served first.
    restored: Option<FrontEndConnection>,
}

impl VhostServer {
    fn new(options: &VhostOptions, seats: &[Arc<Seat<LiveQueue>>], listener: Option<Arc<Listener>>) -> VhostServer {
        let config = NetConfig { mac: options.mac, pairs: options.pairs, mtu: options.mtu.into() };
        VhostServer { seats: seats.to_vec(), config, site: options.site.clone(), listener, restored: None }
    }
}

impl Protocol for VhostServer {
    type Connection = FrontEndConnection;
    type Detail = FrontEndStatus;
    type Kept = KeptFrontEnd;
    const PEER: &'static str = "front end";

    fn next(&mut self, stop: BorrowedFd<'_>) -> Option<Result<FrontEndConnection, String>> {
        if let Some(front) = self.restored.take() {
            return Some(Ok(front));
        }
        let socket = match &self.listener {
            Some(listener) => listener.accept(stop),
            None => connect(&self.site.place, stop),
        };
        socket.map(|socket| Ok(FrontEndConnection::new(socket)))
    }

    fn fault(&self, front: &FrontEndConnection) -> Option<Fault> {
        front.device.as_ref().map(VhostDevice::fault)
    }

    fn serve(
        &mut self,
        front: FrontEndConnection,
        peer: &ServicePeer<FrontEndStatus, KeptFrontEnd>,
    ) -> Result<(), String> {
        let FrontEndConnection { socket, mut inbox, device } = front;
        let mut device =
            device.unwrap_or_else(|| VhostDevice::new(self.config.clone(), self.seats.clone(), peer.fault().clone()));
        peer.keep(Some(KeptFrontEnd::to(&socket, &device)));
        loop {
            match inbox.receive(socket.as_fd(), peer.ends()).map_err(|e| e.to_string())? {
                ReceiveResult::Message(m) => {
                    answer(socket.as_fd(), &mut device, m).map_err(|e| e.to_string())?;
                    peer.told().update(|told| *told = FrontEndStatus::of(&device));
                    peer.keep(Some(KeptFrontEnd::to(&socket, &device)));
                }
                ReceiveResult::Stopped if !peer.is_stopped() && peer.fault().reason().is_none() => {
                    if let Some(pause) = peer.asked_to_pause() {
                        let (bytes, fds) = inbox.unread();
                        let unread = Fd::copies_of(fds).map(|fds| UnreadState { bytes: bytes.to_vec(), fds });
                        pause.with(Box::new(unread));
                    }
                }
                ReceiveResult::Closed | ReceiveResult::Stopped => return Ok(()),
            }
        }
    }
}

fn answer(
    connection: BorrowedFd<'_>,
    device: &mut VhostDevice,
    message: VhostMessage,
) -> Result<(), FrontEndViolation> {
    tracing::debug!(request = message.request, fds = message.fds.len(), "vhost-user");
    device.handle(message)?.map_or(Ok(()), |answer| send(connection, &answer))
}
