//! A vhost-user device port: a socket, and a device for each front end that connects to it.

pub mod state;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use netvale_fdio::state::{BadState, Fd};
use netvale_mem::fault::Fault;
use netvale_mem::notify::KickCounts;
use netvale_port::listener::{Listener, OpenError, Site, connect};
use netvale_port::seat::{Seat, SeatEgress, SeatIngress};
use netvale_port::service::{self, Kept, Paused, Peer, Protocol, Service};
use netvale_port::{Egress, Ingress};
use netvale_virtio::device::live::Live;
use netvale_virtio::{MAX_PAIRS, Queues};
use rustix::io::Errno;
use thiserror::Error;

use crate::proto::device::{Device, NetConfig, OfferedMtu};
use crate::proto::message::{Message, Refused};
use crate::proto::wire::{Received, send};

use state::{Connected, Front, UnreadState, VhostState};

/// How the port and its front end connect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// It listens; front ends come and go.
    #[default]
    Server,
    /// It connects to a front end that listens, repeatedly.
    Client,
}

/// The options of a port.
#[derive(Clone, Debug)]
pub struct VhostOptions {
    /// The socket.
    pub site: Site,
    /// The side that listens at the socket.
    pub mode: Mode,
    /// Number of queue pairs, 1 to [`MAX_PAIRS`].
    pub pairs: u16,
    /// Address offered to the driver.
    pub mac: [u8; 6],
    /// MTU offered to the driver in bytes.
    pub mtu: u16,
}

/// An error creating a port.
#[derive(Debug, Error)]
pub enum VhostError {
    /// The number of queue pairs is out of range.
    #[error("{0} queue pairs asked for; a device has 1 to {MAX_PAIRS}")]
    Pairs(u16),
    /// Its socket or its service cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
}

impl From<VhostError> for BadState {
    fn from(why: VhostError) -> BadState {
        BadState::with(why.errno(), why)
    }
}

impl VhostError {
    /// The closest error number.
    pub fn errno(&self) -> Errno {
        match self {
            VhostError::Pairs(_) => Errno::INVAL,
            VhostError::Open(why) => why.errno(),
        }
    }
}

/// The state of a front end, for `netvale show`.
#[derive(Clone, Debug, Default)]
pub struct FrontEnd {
    /// Number of running queues.
    pub queues: usize,
    /// Features the driver acknowledged.
    pub features: u64,
}

impl FrontEnd {
    pub(crate) fn of(device: &Device) -> FrontEnd {
        FrontEnd { queues: device.running(), features: device.features() }
    }
}

/// A port. Dropping it ends the connection and the thread, and removes the socket.
pub struct VhostPort {
    pub(crate) service: Service<FrontEnd, Connected>,
    pub(crate) seats: Seats,
    options: VhostOptions,
    mtu: OfferedMtu,
    pub(crate) listener: Option<Arc<Listener>>,
}

impl VhostPort {
    /// Opens the socket and serves it.
    ///
    /// # Errors
    /// [`VhostError`] if the options are invalid or the socket cannot be opened.
    pub fn new(options: &VhostOptions) -> Result<(VhostPort, Queues), VhostError> {
        let (seats, queues) = seats(options)?;
        let (listener, file) = match options.mode {
            Mode::Server => Listener::listen(&options.site).map(|(l, file)| (Some(Arc::new(l)), Some(file)))?,
            Mode::Client => (None, None),
        };
        let server = Server::new(options, &seats, listener.clone());
        let mtu = server.config.mtu.clone();
        let service = Service::start(THREAD, options.site.path().display(), file, server)?;
        Ok((VhostPort { service, seats, options: options.clone(), mtu, listener }, queues))
    }

    /// Restores a port whose process was replaced or ended without notice. The port resumes once the last part of the
    /// result is dropped; until then, the other process may resume it instead. Workers have its queues already. After
    /// an end without notice, a front end that cannot be restored is disconnected.
    ///
    /// # Errors
    /// [`BadState`] if that was a different port, or its state is inconsistent.
    pub fn restore(options: &VhostOptions, state: VhostState) -> Result<(VhostPort, Queues, Paused), BadState> {
        let (seats, queues) = seats(options)?;
        if (options.mode == Mode::Server) != state.listener.is_some() || state.kicks.len() != seats.len() {
            return Err(BadState::new("a port that connects in another way, or has other queues"));
        }
        let (listener, file) = match state.listener {
            Some(fd) => {
                Listener::restore(fd.take()?, &options.site).map(|(l, file)| (Some(Arc::new(l)), Some(file)))?
            }
            None => (None, None),
        };
        let mut server = Server::new(options, &seats, listener.clone());
        let mut kept = Kept { changes: state.changes, last: None };
        let mut told =
            service::State { last_error: state.last_error, connections: state.connections, ..Default::default() };
        if let Some(peer) = state.peer {
            let is_lost = peer.device.is_lost();
            match Front::restore(peer, server.config.clone(), seats.clone()) {
                Ok(front) => {
                    told.connected = true;
                    told.now = front.told();
                    kept.last = front.kept();
                    server.restored = Some(front);
                }
                // No other process can resume the front end: the port drops it.
                Err(why) if is_lost => told.last_error = Some(why.to_string()),
                Err(why) => return Err(why.of("its front end cannot be continued")),
            }
        }
        for (seat, (sent, received)) in seats.iter().zip(state.kicks) {
            seat.kicks.add(sent, 0, received);
        }
        let mtu = server.config.mtu.clone();
        let (service, paused) = Service::restore(THREAD, options.site.path().display(), file, server, told, kept)?;
        Ok((VhostPort { service, seats, options: options.clone(), mtu, listener }, queues, paused))
    }

    /// The options of its creation.
    pub fn options(&self) -> &VhostOptions {
        &self.options
    }

    /// The MTU offered to drivers.
    pub fn mtu(&self) -> &OfferedMtu {
        &self.mtu
    }

    /// State of its front ends.
    pub fn state(&self) -> service::State<FrontEnd> {
        self.service.state()
    }

    /// Has a thread of the port call `call` whenever a front end connects or leaves. Only the first registration
    /// counts.
    pub fn on_peer(&self, call: impl Fn() + Send + Sync + 'static) {
        self.service.on_peer(call);
    }

    /// Calls to the driver and kicks from it, summed over all queues.
    pub fn notifications(&self) -> (u64, u64) {
        let sum = |count: fn(&KickCounts) -> u64| self.seats.iter().map(|seat| count(&seat.kicks)).sum();
        (sum(KickCounts::sent), sum(KickCounts::received))
    }
}

/// The name of its thread.
const THREAD: &str = "netvale-vhost";

/// Two for each queue pair: for frames to the driver, and for frames from it.
pub(crate) type Seats = Vec<Arc<Seat<Live>>>;

/// Creates the seats and queues of a port.
fn seats(options: &VhostOptions) -> Result<(Seats, Queues), VhostError> {
    if options.pairs == 0 || usize::from(options.pairs) > MAX_PAIRS {
        return Err(VhostError::Pairs(options.pairs));
    }
    let mut seats = Vec::new();
    let mut egress = Vec::<Arc<dyn Egress>>::new();
    let mut ingress = Vec::<Box<dyn Ingress>>::new();
    for _ in 0..options.pairs {
        let rx = Arc::<Seat<Live>>::default();
        let tx = Arc::new(Seat::woken().map_err(OpenError::step(options.site.path(), "make a descriptor to wait on"))?);
        egress.push(Arc::new(SeatEgress(Arc::clone(&rx))));
        ingress.push(Box::new(SeatIngress::new(Arc::clone(&tx))));
        seats.extend([rx, tx]);
    }
    Ok((seats, (egress, ingress)))
}

/// State of the control thread.
struct Server {
    seats: Seats,
    config: NetConfig,
    site: Site,
    /// `None`: the front end listens.
    listener: Option<Arc<Listener>>,
    /// Another process's front end, served first.
    restored: Option<Front>,
}

impl Server {
    fn new(options: &VhostOptions, seats: &[Arc<Seat<Live>>], listener: Option<Arc<Listener>>) -> Server {
        let config = NetConfig { mac: options.mac, pairs: options.pairs, mtu: options.mtu.into() };
        Server { seats: seats.to_vec(), config, site: options.site.clone(), listener, restored: None }
    }
}

impl Protocol for Server {
    type Connection = Front;
    type Detail = FrontEnd;
    type Kept = Connected;
    const PEER: &'static str = "front end";

    fn next(&mut self, stop: BorrowedFd<'_>) -> Option<Result<Front, String>> {
        if let Some(front) = self.restored.take() {
            return Some(Ok(front));
        }
        let socket = match &self.listener {
            Some(listener) => listener.accept(stop),
            None => connect(&self.site.place, stop),
        };
        socket.map(|socket| Ok(Front::new(socket)))
    }

    fn fault(&self, front: &Front) -> Option<Fault> {
        front.device.as_ref().map(Device::fault)
    }

    fn serve(&mut self, front: Front, peer: &Peer<FrontEnd, Connected>) -> Result<(), String> {
        let Front { socket, mut inbox, device } = front;
        let mut device =
            device.unwrap_or_else(|| Device::new(self.config.clone(), self.seats.clone(), peer.fault().clone()));
        peer.keep(Some(Connected::to(&socket, &device)));
        loop {
            match inbox.receive(socket.as_fd(), peer.ends()).map_err(|e| e.to_string())? {
                Received::Message(m) => {
                    answer(socket.as_fd(), &mut device, m).map_err(|e| e.to_string())?;
                    peer.told().update(|told| *told = FrontEnd::of(&device));
                    peer.keep(Some(Connected::to(&socket, &device)));
                }
                Received::Stopped if !peer.is_stopped() && peer.fault().reason().is_none() => {
                    if let Some(pause) = peer.asked_to_pause() {
                        let (bytes, fds) = inbox.unread();
                        let unread = Fd::copies_of(fds).map(|fds| UnreadState { bytes: bytes.to_vec(), fds });
                        pause.with(Box::new(unread));
                    }
                }
                Received::Closed | Received::Stopped => return Ok(()),
            }
        }
    }
}

fn answer(connection: BorrowedFd<'_>, device: &mut Device, message: Message) -> Result<(), Refused> {
    tracing::debug!(request = message.request, fds = message.fds.len(), "vhost-user");
    device.handle(message)?.map_or(Ok(()), |answer| send(connection, &answer))
}
