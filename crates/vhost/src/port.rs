//! A vhost-user device port: a socket, and a device for each front end that connects there.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use netvale_mem::notify::KickCounts;
use netvale_port::listener::{Listener, OpenError, Site, connect};
use netvale_port::seat::{Seat, SeatEgress, SeatIngress};
use netvale_port::service::{self, Peer, Protocol, Service};
use netvale_port::{Egress, Ingress};
use netvale_virtio::device::live::Live;
use netvale_virtio::{MAX_PAIRS, Queues};
use rustix::io::Errno;
use thiserror::Error;

use crate::proto::device::{Device, NetConfig};
use crate::proto::message::{Message, Refused};
use crate::proto::wire::{Received, receive, send};

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
    /// Which side listens there.
    pub mode: Mode,
    /// Number of queue pairs, 1 to [`MAX_PAIRS`].
    pub pairs: u16,
    /// Address offered to the driver.
    pub mac: [u8; 6],
    /// MTU offered to the driver in bytes.
    pub mtu: u16,
}

/// Why the port cannot be created.
#[derive(Debug, Error)]
pub enum VhostError {
    /// The number of queue pairs is out of range.
    #[error("{0} queue pairs asked for; a device has 1 to {MAX_PAIRS}")]
    Pairs(u16),
    /// Its socket or its service cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
}

impl VhostError {
    /// The error number that fits.
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

/// A port. Dropping it ends the connection and the thread, and removes the socket.
pub struct VhostPort {
    service: Service<FrontEnd>,
    seats: Vec<Arc<Seat<Live>>>,
    options: VhostOptions,
}

impl VhostPort {
    /// Opens the socket and serves it.
    ///
    /// # Errors
    /// [`VhostError`] if the options are impossible or the socket cannot be opened.
    pub fn new(options: &VhostOptions) -> Result<(VhostPort, Queues), VhostError> {
        if options.pairs == 0 || usize::from(options.pairs) > MAX_PAIRS {
            return Err(VhostError::Pairs(options.pairs));
        }
        let (listener, file) = match options.mode {
            Mode::Server => Listener::listen(&options.site).map(|(listener, file)| (Some(listener), Some(file)))?,
            Mode::Client => (None, None),
        };
        let (mut seats, mut egress, mut ingress) =
            (Vec::new(), Vec::<Arc<dyn Egress>>::new(), Vec::<Box<dyn Ingress>>::new());
        for _ in 0..options.pairs {
            let rx = Arc::<Seat<Live>>::default();
            let tx =
                Arc::new(Seat::woken().map_err(OpenError::step(options.site.path(), "make a descriptor to wait on"))?);
            egress.push(Arc::new(SeatEgress(Arc::clone(&rx))));
            ingress.push(Box::new(SeatIngress::new(Arc::clone(&tx))));
            seats.extend([rx, tx]);
        }
        let config = NetConfig { mac: options.mac, pairs: options.pairs, mtu: options.mtu };
        let server = Server { seats: seats.clone(), config, site: options.site.clone(), listener };
        let service = Service::start("netvale-vhost", options.site.path().display(), file, server)?;
        Ok((VhostPort { service, seats, options: options.clone() }, (egress, ingress)))
    }

    /// The options it was created with.
    pub fn options(&self) -> &VhostOptions {
        &self.options
    }

    /// The state of its front ends.
    pub fn state(&self) -> service::State<FrontEnd> {
        self.service.state()
    }

    /// Calls to the driver and kicks from it, all queues together.
    pub fn notifications(&self) -> (u64, u64) {
        let sum = |count: fn(&KickCounts) -> u64| self.seats.iter().map(|seat| count(&seat.kicks)).sum();
        (sum(KickCounts::sent), sum(KickCounts::received))
    }
}

/// The control thread's part.
struct Server {
    seats: Vec<Arc<Seat<Live>>>,
    config: NetConfig,
    site: Site,
    /// `None`: the front end listens.
    listener: Option<Listener>,
}

impl Protocol for Server {
    type Connection = OwnedFd;
    type Detail = FrontEnd;
    const PEER: &'static str = "front end";

    fn next(&mut self, stop: BorrowedFd<'_>) -> Option<Result<OwnedFd, String>> {
        match &self.listener {
            Some(listener) => listener.accept(stop).map(Ok),
            None => connect(&self.site.place, stop).map(Ok),
        }
    }

    fn serve(&mut self, connection: OwnedFd, peer: &Peer<FrontEnd>) -> Result<(), String> {
        let mut device = Device::new(self.config, self.seats.clone(), peer.fault().clone());
        loop {
            match receive(connection.as_fd(), peer.ends()).map_err(|e| e.to_string())? {
                Received::Message(m) => answer(connection.as_fd(), &mut device, m).map_err(|e| e.to_string())?,
                Received::Closed | Received::Stopped => return Ok(()),
            }
            peer.told().update(|told| *told = FrontEnd { queues: device.running(), features: device.features() });
        }
    }
}

fn answer(connection: BorrowedFd<'_>, device: &mut Device, message: Message) -> Result<(), Refused> {
    tracing::debug!(request = message.request, fds = message.fds.len(), "vhost-user");
    device.handle(message)?.map_or(Ok(()), |answer| send(connection, &answer))
}
