//! A vhost-user device port: a socket, a device behind it, and the thread that serves it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use netvale_mem::notify::Doorbell;
use netvale_port::door::{Door, DoorError, nap, socket};
use netvale_port::{Egress, Ingress};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::SocketAddrUnix;
use thiserror::Error;

use crate::driver::frontend::NoDevice;
use crate::net::egress::VhostEgress;
use crate::net::ingress::VhostIngress;
use crate::net::live::{Notifications, Seat, Trouble};
use crate::proto::device::{Device, MAX_PAIRS, NetConfig};
use crate::proto::message::Refused;
use crate::proto::wire::{Received, receive, send};

/// How the port meets its front end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// It listens; front ends come and go.
    #[default]
    Server,
    /// It connects to a front end that listens, again and again.
    Client,
}

/// What a port is made with.
#[derive(Clone, Debug)]
pub struct VhostOptions {
    /// The socket.
    pub path: PathBuf,
    /// Who listens there.
    pub mode: Mode,
    /// Queue pairs, 1 to [`MAX_PAIRS`].
    pub pairs: u16,
    /// Address offered to the driver.
    pub mac: [u8; 6],
    /// MTU offered to the driver.
    pub mtu: u16,
}

/// Why there is no port.
#[derive(Debug, Error)]
pub enum VhostError {
    /// Too many queue pairs, or none.
    #[error("{0} queue pairs asked for; a device has 1 to {MAX_PAIRS}")]
    Pairs(u16),
    /// Nobody can listen there.
    #[error(transparent)]
    Door(#[from] DoorError),
    /// A step failed.
    #[error("{path}: {what}: {source}")]
    Step {
        /// The socket.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        source: Errno,
    },
    /// A device on the bus that cannot be driven.
    #[error("{0}")]
    Device(NoDevice),
}

impl VhostError {
    /// The error number that fits.
    pub fn errno(&self) -> Errno {
        match self {
            VhostError::Pairs(_) => Errno::INVAL,
            VhostError::Door(why) => why.errno(),
            VhostError::Step { source, .. } => *source,
            VhostError::Device(why) => why.errno(),
        }
    }
}

/// What the port is doing, for `netvale show`.
#[derive(Clone, Debug, Default)]
pub struct VhostState {
    /// A front end is connected.
    pub connected: bool,
    /// Queues that run.
    pub queues: usize,
    /// Features the driver acknowledged.
    pub features: u64,
    /// Why the last connection ended, if not by hanging up.
    pub last_error: Option<String>,
    /// Connections so far.
    pub connections: u64,
}

/// What the control thread shares with the port.
struct Shared {
    state: Mutex<VhostState>,
    stop: Doorbell,
    trouble: Arc<Doorbell>,
}

impl Shared {
    fn update(&self, f: impl FnOnce(&mut VhostState)) {
        f(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// A port. Dropping it ends the connection and the thread, and removes the socket.
pub struct VhostPort {
    shared: Arc<Shared>,
    seats: Vec<Arc<Seat>>,
    thread: Option<JoinHandle<()>>,
    options: VhostOptions,
}

/// A port's queues for the switch.
pub type Queues = (Vec<Arc<dyn Egress>>, Vec<Box<dyn Ingress>>);

impl VhostPort {
    /// Opens the socket and serves it.
    ///
    /// # Errors
    /// [`VhostError`].
    pub fn new(options: &VhostOptions) -> Result<(VhostPort, Queues), VhostError> {
        if options.pairs == 0 || usize::from(options.pairs) > MAX_PAIRS {
            return Err(VhostError::Pairs(options.pairs));
        }
        let step = |what| move |source| VhostError::Step { path: options.path.clone(), what, source };
        let door = match options.mode {
            Mode::Server => Some(Door::listen(&options.path)?),
            Mode::Client => None,
        };
        let bell = || Doorbell::new().map_err(step("make an eventfd"));
        let shared = Arc::new(Shared { state: Mutex::default(), stop: bell()?, trouble: Arc::new(bell()?) });
        let trouble = Trouble(Arc::clone(&shared.trouble));
        let (mut seats, mut egress, mut ingress) =
            (Vec::new(), Vec::<Arc<dyn Egress>>::new(), Vec::<Box<dyn Ingress>>::new());
        for _ in 0..options.pairs {
            let rx = Arc::<Seat>::default();
            let tx = Arc::new(Seat::woken().map_err(step("make a descriptor to wait on"))?);
            egress.push(Arc::new(VhostEgress::new(Arc::clone(&rx), trouble.clone(), Arc::default())));
            ingress.push(Box::new(VhostIngress::new(Arc::clone(&tx), trouble.clone(), Arc::default())));
            seats.extend([rx, tx]);
        }
        let config = NetConfig { mac: options.mac, pairs: options.pairs, mtu: options.mtu };
        let server =
            Server { shared: Arc::clone(&shared), seats: seats.clone(), config, path: options.path.clone(), door };
        let thread = std::thread::Builder::new().name("netvale-vhost".into()).spawn(move || server.run());
        let thread = thread
            .map_err(|e| step("start a thread")(e.raw_os_error().map_or(Errno::AGAIN, Errno::from_raw_os_error)))?;
        Ok((VhostPort { shared, seats, thread: Some(thread), options: options.clone() }, (egress, ingress)))
    }

    /// What it was made with.
    pub fn options(&self) -> &VhostOptions {
        &self.options
    }

    /// What it is doing.
    pub fn state(&self) -> VhostState {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Calls to the driver and kicks from it, all queues together.
    pub fn notifications(&self) -> (u64, u64) {
        let sum = |f: fn(&Notifications) -> u64| self.seats.iter().map(|seat| f(&seat.counts)).sum();
        (sum(|counts| counts.calls.load(Ordering::Relaxed)), sum(|counts| counts.kicks.load(Ordering::Relaxed)))
    }
}

impl Drop for VhostPort {
    fn drop(&mut self) {
        self.shared.stop.ring();
        if let Some(thread) = self.thread.take() {
            // A panic was reported by the runtime.
            let _ = thread.join();
        }
    }
}

/// The control thread.
struct Server {
    shared: Arc<Shared>,
    seats: Vec<Arc<Seat>>,
    config: NetConfig,
    path: PathBuf,
    door: Option<Door>,
}

/// How long a client waits before it tries again.
const RETRY: Duration = Duration::from_millis(200);

impl Server {
    fn run(&self) {
        while let Some(connection) = self.meet() {
            self.shared.update(|s| {
                *s = VhostState { connected: true, connections: s.connections + 1, ..VhostState::default() }
            });
            tracing::info!(path = %self.path.display(), "front end connected");
            let mut device = Device::new(self.config, self.seats.clone());
            let ended = self.serve(&connection, &mut device);
            drop(device);
            self.shared.update(|s| {
                *s = VhostState { connections: s.connections, last_error: ended.clone().err(), ..VhostState::default() }
            });
            match ended {
                Ok(true) => return,
                Ok(false) => tracing::info!(path = %self.path.display(), "front end gone"),
                Err(why) => {
                    tracing::warn!(path = %self.path.display(), why, "front end disconnected");
                    // One that comes back at once with the same mistake is not worth a core.
                    if self.nap(RETRY) {
                        return;
                    }
                }
            }
        }
    }

    /// The next front end; none when the port is to end.
    fn meet(&self) -> Option<OwnedFd> {
        if let Some(door) = &self.door {
            return door.meet(self.shared.stop.as_fd());
        }
        loop {
            let address = SocketAddrUnix::new(&self.path).ok()?;
            let connection = socket().ok()?;
            if rustix::net::connect(&connection, &address).is_ok() {
                return Some(connection);
            }
            if self.nap(RETRY) {
                return None;
            }
        }
    }

    /// Sleeps. Returns whether the port is to end.
    fn nap(&self, time: Duration) -> bool {
        nap(self.shared.stop.as_fd(), time)
    }

    /// Serves a connection to its end. Returns whether the port is to end, too.
    fn serve(&self, connection: &OwnedFd, device: &mut Device) -> Result<bool, String> {
        // Both of these end a wait for a message.
        let ends = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| e.to_string())?;
        for (fd, data) in [(self.shared.stop.as_fd(), 0), (self.shared.trouble.as_fd(), 1)] {
            epoll::add(&ends, fd, epoll::EventData::new_u64(data), epoll::EventFlags::IN).map_err(|e| e.to_string())?;
        }
        loop {
            match receive(connection.as_fd(), ends.as_fd()).map_err(|e| e.to_string())? {
                Received::Message(m) => self.answer(connection.as_fd(), device, m).map_err(|e| e.to_string())?,
                Received::Closed => return Ok(false),
                Received::Stopped => {
                    if self.nap(Duration::ZERO) {
                        return Ok(true);
                    }
                    self.shared.trouble.drain();
                    if let Some((queue, why)) = device.broken() {
                        return Err(format!("queue {queue}: {why}"));
                    }
                }
            }
        }
    }

    fn answer(
        &self,
        connection: BorrowedFd<'_>,
        device: &mut Device,
        message: crate::proto::message::Message,
    ) -> Result<(), Refused> {
        tracing::debug!(request = message.request, fds = message.fds.len(), "vhost-user");
        if let Some(answer) = device.handle(message)? {
            send(connection, &answer)?;
        }
        self.shared.update(|s| (s.queues, s.features) = (device.running(), device.features()));
        Ok(())
    }
}
