//! A ptnet port: a socket, and a device for each virtual machine that connects to it.

mod state;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use netvale_mem::Layout;
use netvale_mem::fault::Fault;
use netvale_mem::notify::nap;
use netvale_mem::region::RingSide;
use netvale_port::folder::Place;
use netvale_port::listener::{Listener, OpenError, Site};
use netvale_port::service::{self, Peer, Protocol, Service};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use thiserror::Error;

use self::state::GuestState;
pub use self::state::PortState;
use crate::backend::Backend;
pub use crate::guest::Guest;
use crate::guest::THREAD;
use crate::header::Config;
use crate::instance::{self, Instance, InstanceState};
use crate::ivshmem;
use crate::vfio::Devices;

/// Maximum number of rings in one direction.
pub const MAX_RINGS: u32 = 16;

/// Allowed number of slots of a ring: fewer are useless to a driver.
pub const SLOTS: std::ops::RangeInclusive<u32> = 4..=*netvale_mem::layout::RING_SLOTS_RANGE.end();

/// The options of a port.
#[derive(Clone, Debug)]
pub struct PtnetOptions {
    /// The socket.
    pub site: Site,
    /// The offered device.
    pub config: Config,
    /// The guests' access to it.
    pub transport: Transport,
}

/// A guest's access to the rings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// QEMU's ivshmem-doorbell, and netvale's header.
    #[default]
    Ivshmem,
    /// vfio-user, and netmap's published devices; the memory device listens at [`crate::vfio::memory_path`].
    VfioUser,
}

/// An error creating a port.
#[derive(Debug, Error)]
pub enum PtnetError {
    /// The number of rings is out of range.
    #[error("{0} rings asked for; a ptnet device has 1 to {MAX_RINGS} each way")]
    Rings(u32),
    /// The number of slots is out of range.
    #[error("{0} slots a ring asked for; a ptnet device has {least} to {most}", least = SLOTS.start(), most = SLOTS.end())]
    Slots(u32),
    /// A socket or its service cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The device cannot be created.
    #[error(transparent)]
    Device(#[from] crate::instance::InstanceError),
}

impl PtnetError {
    /// The closest error number.
    pub fn errno(&self) -> Errno {
        match self {
            PtnetError::Rings(_) | PtnetError::Slots(_) => Errno::INVAL,
            PtnetError::Open(why) => why.errno(),
            PtnetError::Device(crate::instance::InstanceError::System(source)) => *source,
            PtnetError::Device(crate::instance::InstanceError::Forged(_)) => Errno::INVAL,
            PtnetError::Device(crate::instance::InstanceError::Region(_)) => Errno::NOMEM,
        }
    }
}

/// A port. Dropping it ends the connection and the thread, and removes the socket.
pub struct PtnetPort {
    serving: Serving,
    backend: Arc<dyn Backend>,
    options: PtnetOptions,
}

/// Service of a port's guests.
enum Serving {
    Ivshmem(Box<Service<Guest, GuestState>>, Arc<Listener>),
    VfioUser(Box<Devices>),
}

impl PtnetPort {
    /// Checks that a device can have this configuration.
    ///
    /// # Errors
    /// [`PtnetError`] if not.
    pub fn check(c: &Config) -> Result<(), PtnetError> {
        for rings in [c.tx_rings, c.rx_rings] {
            if rings == 0 || rings > MAX_RINGS {
                return Err(PtnetError::Rings(rings));
            }
        }
        if SLOTS.contains(&c.slots) { Ok(()) } else { Err(PtnetError::Slots(c.slots)) }
    }

    /// Opens the socket and serves it; `backend` gets the guests' rings.
    ///
    /// # Errors
    /// [`PtnetError`] if the configuration is invalid or a socket cannot be opened.
    pub fn new(options: &PtnetOptions, backend: Arc<dyn Backend>) -> Result<PtnetPort, PtnetError> {
        Self::check(&options.config)?;
        // Reports invalid sizes now, not when a guest connects.
        let path = options.site.path();
        let config = options.config;
        let fault = Fault::new().map_err(OpenError::step(path, "make an eventfd"))?;
        drop(Instance::new(&config, &backend, &fault)?);
        let behind = Arc::clone(&backend);
        let serving = if options.transport == Transport::Ivshmem {
            let (listener, file) = Listener::listen(&options.site)?;
            let listener = Arc::new(listener);
            let server = Server::new(options, behind, &listener);
            Serving::Ivshmem(Box::new(Service::start(THREAD, path.display(), Some(file), server)?), listener)
        } else {
            Serving::VfioUser(Box::new(Devices::new(&options.site, config, behind)?))
        };
        Ok(PtnetPort { serving, backend, options: options.clone() })
    }

    /// The options of its creation.
    pub fn options(&self) -> &PtnetOptions {
        &self.options
    }

    /// Bytes of its guest's memory.
    pub fn memory(&self) -> u64 {
        Layout::new(instance::sizes(&self.options.config)).map_or(0, |layout| layout.total)
    }

    /// State of its virtual machines.
    pub fn state(&self) -> service::State<Guest> {
        match &self.serving {
            Serving::Ivshmem(service, ..) => service.state(),
            Serving::VfioUser(devices) => devices.ptnet.state(),
        }
    }

    /// Has a thread of the port call `call` whenever a virtual machine connects or leaves. Only the first registration
    /// counts.
    pub fn on_peer(&self, call: impl Fn() + Send + Sync + 'static) {
        match &self.serving {
            Serving::Ivshmem(service, ..) => service.on_peer(call),
            Serving::VfioUser(devices) => devices.ptnet.on_peer(call),
        }
    }

    /// Interrupts sent to the guest and saved, and kicks from it, of one tx ring (`tx`) or rx ring.
    pub fn ring_kicks(&self, tx: bool, i: usize) -> (u64, u64, u64) {
        self.backend.kicks(tx, i)
    }

    /// One of its rings, while a guest has it.
    pub fn ring_side(&self, tx: bool, i: usize) -> Option<RingSide> {
        self.backend.side(tx, i)
    }
}

/// A guest's connection.
enum Connection {
    /// A new connection.
    New(OwnedFd),
    /// A connection of another process, with its device.
    Continued(OwnedFd, Box<Instance>, Fault),
}

/// A guest served over ivshmem.
type GuestPeer = Peer<Guest, GuestState>;

/// State of the control thread, for ivshmem.
struct Server {
    backend: Arc<dyn Backend>,
    config: Config,
    place: Place,
    listener: Arc<Listener>,
    /// The restored guest, served first.
    first: Option<Connection>,
}

/// Pause between two checks of a guest's commands: a guest that rings without end gets no larger share of a core.
const PAUSE: Duration = Duration::from_micros(200);

impl Protocol for Server {
    type Connection = Connection;
    type Detail = Guest;
    type Kept = GuestState;
    const PEER: &'static str = "virtual machine";

    fn next(&mut self, stop: BorrowedFd<'_>) -> Option<Result<Self::Connection, String>> {
        match self.first.take() {
            Some(first) => Some(Ok(first)),
            None => self.listener.accept(stop).map(|connection| Ok(Connection::New(connection))),
        }
    }

    fn fault(&self, connection: &Connection) -> Option<Fault> {
        if let Connection::Continued(.., fault) = connection { Some(fault.clone()) } else { None }
    }

    fn serve(&mut self, connection: Connection, peer: &GuestPeer) -> Result<(), String> {
        let (connection, mut device) = self.device(connection, peer)?;
        self.serve_guest(&connection, &mut device, peer)
    }
}

impl Server {
    fn new(options: &PtnetOptions, backend: Arc<dyn Backend>, listener: &Arc<Listener>) -> Server {
        let place = options.site.place.clone();
        Server { backend, config: options.config, place, listener: Arc::clone(listener), first: None }
    }

    fn serve_guest(&self, connection: &OwnedFd, device: &mut Instance, peer: &GuestPeer) -> Result<(), String> {
        loop {
            let commands = device.doorbells().last().ok_or("a device without doorbells")?;
            let mut three = [peer.ends(), connection.as_fd(), commands.as_fd()]
                .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
            match poll(&mut three, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(e.to_string()),
            }
            let [ends, said, rang] = three.map(|fd| !fd.revents().is_empty());
            if ends && !pauses(connection, device, peer) || said && is_gone(connection)? {
                return Ok(());
            }
            if rang {
                commands.drain();
                if let Some((command, done)) = device.obey().map_err(|why| format!("its rings: {why}"))? {
                    tracing::debug!(path = %self.place.path().display(), command, ?done, "command");
                    peer.told().update(|guest| guest.obeyed(device.hdr_len()));
                }
                // The end of the session is checked above.
                nap(peer.ends(), PAUSE);
            }
        }
    }

    /// Creates a new device and announces it to the other end, or takes a restored one.
    fn device(&self, connection: Connection, peer: &GuestPeer) -> Result<(OwnedFd, Instance), String> {
        let fault = peer.fault();
        let connection = match connection {
            Connection::New(connection) => connection,
            Connection::Continued(connection, mut device, _) => {
                device.go_on();
                return Ok((connection, *device));
            }
        };
        let device = Instance::new(&self.config, &self.backend, fault).map_err(|e| e.to_string())?;
        let greeting = ivshmem::greeting(&device).map_err(|e| e.to_string())?;
        ivshmem::send(connection.as_fd(), peer.stops(), &greeting)
            .map_err(|e| format!("its device cannot be described: {e}"))?;
        // Without descriptors for its state, the guest is merely not kept.
        peer.keep(state::of(&connection, &device, InstanceState::UNKNOWN).ok());
        drop(greeting);
        Ok((connection, device))
    }
}

/// Pauses if the service must, and resumes afterwards. Returns `false` if it must stop for another reason.
fn pauses(connection: &OwnedFd, device: &Instance, peer: &GuestPeer) -> bool {
    let pause = peer.asked_to_pause();
    pause.map(|pause| pause.with(state::say(connection, device))).is_some()
}

/// Whether the other end has hung up. It never sends data.
fn is_gone(connection: &OwnedFd) -> Result<bool, String> {
    let mut byte = [0u8; 1];
    match rustix::net::recv(connection, &mut byte, RecvFlags::DONTWAIT) {
        Ok((0, _)) | Err(Errno::CONNRESET) => Ok(true),
        Ok(_) => Err("it sent something: no ivshmem client does".to_owned()),
        Err(Errno::AGAIN | Errno::INTR) => Ok(false),
        Err(e) => Err(e.to_string()),
    }
}
