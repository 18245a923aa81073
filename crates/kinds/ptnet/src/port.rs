//! A ptnet port: a socket, and a device for each virtual machine that connects.

mod state;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use netvale_mem::Layout;
use netvale_mem::fault::Fault;
use netvale_mem::notify::nap;
use netvale_mem::region::RingSide;
use netvale_port::folder::UserPath;
use netvale_port::listener::{ListenAddress, Listener, OpenError};
use netvale_port::service::{self, Protocol, Service, ServicePeer};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use thiserror::Error;

use self::state::GuestState;
pub use self::state::PtnetState;
use crate::backend::Backend;
pub use crate::guest::PtnetGuest;
use crate::guest::THREAD;
use crate::header::PtnetDeviceConfig;
use crate::instance::{self, InstanceState, PtnetInstance};
use crate::ivshmem;
use crate::vfio::DeviceServices;

/// Maximum number of rings in one direction.
pub const MAX_RINGS: u32 = 16;

/// Permitted numbers of slots per ring. A driver cannot work with fewer than four.
pub const SLOTS: std::ops::RangeInclusive<u32> = 4..=*netvale_mem::layout::RING_SLOTS_RANGE.end();

/// The options of a port.
#[derive(Clone, Debug)]
pub struct PtnetOptions {
    /// Location of the socket.
    pub site: ListenAddress,
    /// The offered device.
    pub config: PtnetDeviceConfig,
    /// Transport between the guests and the device.
    pub transport: PtnetTransport,
}

/// Transport between a guest and the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PtnetTransport {
    /// QEMU's ivshmem-doorbell, with netvale's header page.
    #[default]
    Ivshmem,
    /// vfio-user, with netmap's published devices; the memory device listens at [`crate::vfio::memory_path`].
    VfioUser,
}

/// An error in creating a port.
#[derive(Debug, Error)]
pub enum PtnetError {
    /// The number of rings is out of range.
    #[error("{0} rings requested: expected 1 to {MAX_RINGS} in each direction")]
    Rings(u32),
    /// The number of slots is out of range.
    #[error(
        "{0} slots per ring requested: expected {least} to {most}",
        least = SLOTS.start(),
        most = SLOTS.end()
    )]
    Slots(u32),
    /// A socket or its service cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The device cannot be created.
    #[error(transparent)]
    Device(#[from] crate::instance::InstanceError),
}

impl PtnetError {
    /// Returns the errno that is closest to this error.
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

/// A port. Dropping the port ends its guest's connection and its thread, and removes the socket.
pub struct PtnetPort {
    serving: PtnetService,
    backend: Arc<dyn Backend>,
    options: PtnetOptions,
}

/// The service that serves a port's guests, by transport.
enum PtnetService {
    Ivshmem(Box<Service<PtnetGuest, GuestState>>, Arc<Listener>),
    VfioUser(Box<DeviceServices>),
}

impl PtnetPort {
    /// Checks that a device can have this configuration.
    ///
    /// # Errors
    /// [`PtnetError`] if the number of rings or slots is out of range.
    pub fn check(c: &PtnetDeviceConfig) -> Result<(), PtnetError> {
        for rings in [c.tx_rings, c.rx_rings] {
            if rings == 0 || rings > MAX_RINGS {
                return Err(PtnetError::Rings(rings));
            }
        }
        if SLOTS.contains(&c.slots) { Ok(()) } else { Err(PtnetError::Slots(c.slots)) }
    }

    /// Opens the socket and starts to serve guests; `backend` receives their rings.
    ///
    /// # Errors
    /// [`PtnetError`] if the configuration is invalid or a socket cannot be opened.
    pub fn new(options: &PtnetOptions, backend: Arc<dyn Backend>) -> Result<PtnetPort, PtnetError> {
        Self::check(&options.config)?;
        // Reports invalid sizes immediately, not when a guest connects.
        let path = options.site.path();
        let config = options.config;
        let fault = Fault::new().map_err(OpenError::step(path, "make an eventfd"))?;
        drop(PtnetInstance::new(&config, &backend, &fault)?);
        let behind = Arc::clone(&backend);
        let serving = if options.transport == PtnetTransport::Ivshmem {
            let (listener, file) = Listener::listen(&options.site)?;
            let listener = Arc::new(listener);
            let server = IvshmemServer::new(options, behind, &listener);
            PtnetService::Ivshmem(Box::new(Service::start(THREAD, path.display(), Some(file), server)?), listener)
        } else {
            PtnetService::VfioUser(Box::new(DeviceServices::new(&options.site, config, behind)?))
        };
        Ok(PtnetPort { serving, backend, options: options.clone() })
    }

    /// Returns the options with which the port was created.
    pub fn options(&self) -> &PtnetOptions {
        &self.options
    }

    /// Returns the size of the guest's memory in bytes.
    pub fn memory(&self) -> u64 {
        Layout::new(instance::sizes(&self.options.config)).map_or(0, |layout| layout.total)
    }

    /// Returns the state of the service that serves virtual machines, including the state of the connected machine.
    pub fn state(&self) -> service::ServiceState<PtnetGuest> {
        match &self.serving {
            PtnetService::Ivshmem(service, ..) => service.state(),
            PtnetService::VfioUser(devices) => devices.ptnet.state(),
        }
    }

    /// Makes a thread of the port call `call` whenever a virtual machine connects or leaves. Only the first
    /// registration counts.
    pub fn on_peer(&self, call: impl Fn() + Send + Sync + 'static) {
        match &self.serving {
            PtnetService::Ivshmem(service, ..) => service.on_peer(call),
            PtnetService::VfioUser(devices) => devices.ptnet.on_peer(call),
        }
    }

    /// Returns the kick counts of tx ring `i` (if `tx` is true) or rx ring `i`: interrupts sent to the guest,
    /// interrupts suppressed, kicks from the guest.
    pub fn ring_kicks(&self, tx: bool, i: usize) -> (u64, u64, u64) {
        self.backend.kicks(tx, i)
    }

    /// Returns tx ring `i` (if `tx` is true) or rx ring `i`; `None` while no guest has the ring.
    pub fn ring_side(&self, tx: bool, i: usize) -> Option<RingSide> {
        self.backend.side(tx, i)
    }
}

/// A guest's connection.
enum IvshmemConnection {
    /// A new connection.
    New(OwnedFd),
    /// A predecessor's connection with its device.
    Continued(OwnedFd, Box<PtnetInstance>, Fault),
}

/// A guest served over ivshmem.
type GuestPeer = ServicePeer<PtnetGuest, GuestState>;

/// State of the control thread for ivshmem.
struct IvshmemServer {
    backend: Arc<dyn Backend>,
    config: PtnetDeviceConfig,
    place: UserPath,
    listener: Arc<Listener>,
    /// The restored guest, which is served first.
    first: Option<IvshmemConnection>,
}

/// Pause between two checks for commands, which limits the CPU time that a guest can take by ringing endlessly.
const PAUSE: Duration = Duration::from_micros(200);

impl Protocol for IvshmemServer {
    type Connection = IvshmemConnection;
    type Detail = PtnetGuest;
    type Kept = GuestState;
    const PEER: &'static str = "virtual machine";

    fn next(&mut self, stop: BorrowedFd<'_>) -> Option<Result<Self::Connection, String>> {
        match self.first.take() {
            Some(first) => Some(Ok(first)),
            None => self.listener.accept(stop).map(|connection| Ok(IvshmemConnection::New(connection))),
        }
    }

    fn fault(&self, connection: &IvshmemConnection) -> Option<Fault> {
        if let IvshmemConnection::Continued(.., fault) = connection { Some(fault.clone()) } else { None }
    }

    fn serve(&mut self, connection: IvshmemConnection, peer: &GuestPeer) -> Result<(), String> {
        let (connection, mut device) = self.device(connection, peer)?;
        self.serve_guest(&connection, &mut device, peer)
    }
}

impl IvshmemServer {
    fn new(options: &PtnetOptions, backend: Arc<dyn Backend>, listener: &Arc<Listener>) -> IvshmemServer {
        let place = options.site.place.clone();
        IvshmemServer { backend, config: options.config, place, listener: Arc::clone(listener), first: None }
    }

    fn serve_guest(&self, connection: &OwnedFd, device: &mut PtnetInstance, peer: &GuestPeer) -> Result<(), String> {
        loop {
            let commands = device.doorbells().last().ok_or("the device has no doorbells")?;
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
                if let Some((command, done)) = device.obey().map_err(|why| format!("the guest's rings: {why}"))? {
                    tracing::debug!(path = %self.place.path().display(), command, ?done, "command");
                    peer.told().update(|guest| guest.obeyed(device.hdr_len()));
                }
                // If the session ends during the pause, the poll above detects it.
                nap(peer.ends(), PAUSE);
            }
        }
    }

    /// Returns the connection and its device. A new device is announced to the hypervisor; a restored device continues
    /// without an announcement.
    fn device(&self, connection: IvshmemConnection, peer: &GuestPeer) -> Result<(OwnedFd, PtnetInstance), String> {
        let fault = peer.fault();
        let connection = match connection {
            IvshmemConnection::New(connection) => connection,
            IvshmemConnection::Continued(connection, mut device, _) => {
                device.go_on();
                return Ok((connection, *device));
            }
        };
        let device = PtnetInstance::new(&self.config, &self.backend, fault).map_err(|e| e.to_string())?;
        let greeting = ivshmem::greeting(&device).map_err(|e| e.to_string())?;
        ivshmem::send(connection.as_fd(), peer.stops(), &greeting)
            .map_err(|e| format!("cannot announce the device: {e}"))?;
        // If the process is out of descriptors for the state, the guest is not restored after a restart.
        peer.keep(state::of(&connection, &device, InstanceState::UNKNOWN).ok());
        drop(greeting);
        Ok((connection, device))
    }
}

/// Pauses if another thread has requested a pause, and resumes when the pause ends. Returns `false` if no pause is
/// requested; the session must then end.
fn pauses(connection: &OwnedFd, device: &PtnetInstance, peer: &GuestPeer) -> bool {
    let pause = peer.asked_to_pause();
    pause.map(|pause| pause.with(state::say(connection, device))).is_some()
}

/// Returns whether the hypervisor has hung up. An ivshmem client never sends data.
fn is_gone(connection: &OwnedFd) -> Result<bool, String> {
    let mut byte = [0u8; 1];
    match rustix::net::recv(connection, &mut byte, RecvFlags::DONTWAIT) {
        Ok((0, _)) | Err(Errno::CONNRESET) => Ok(true),
        Ok(_) => Err("the guest sent data: expected none from an ivshmem client".to_owned()),
        Err(Errno::AGAIN | Errno::INTR) => Ok(false),
        Err(e) => Err(e.to_string()),
    }
}
