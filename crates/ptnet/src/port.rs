//! A ptnet port: a socket, the thread that serves who knocks there, and the switch's seats.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use netvale_mem::lent::InUse;
use netvale_mem::notify::Doorbell;
use netvale_port::door::{Door, DoorError, nap};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use thiserror::Error;

use crate::backend::Backend;
use crate::header::Config;
use crate::instance::Instance;
use crate::ivshmem;
use crate::keep::{self, Keeper};
use crate::machine::Machine;
use crate::vfio::{MemoryServer, PtnetServer, memory_path};

/// Most rings in one direction.
pub const MAX_RINGS: u32 = 16;

/// Fewest and most slots of a ring: fewer are no use to a driver.
pub const SLOTS: std::ops::RangeInclusive<u32> = 4..=*netvale_mem::layout::RING_SLOTS_RANGE.end();

/// What a port is made with.
#[derive(Clone, Debug)]
pub struct PtnetOptions {
    /// The socket.
    pub path: PathBuf,
    /// The device offered there.
    pub config: Config,
    /// How.
    pub way: Way,
}

/// What survives this process, and what survived the one before.
#[derive(Default)]
pub struct Survival {
    /// Keeps descriptors.
    pub keeper: Option<Arc<dyn Keeper>>,
    /// A guest's: connection, memory, doorbells and vectors.
    pub kept: Option<(OwnedFd, OwnedFd, Vec<OwnedFd>)>,
}

/// How a guest gets at the rings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// QEMU's ivshmem-doorbell, and the header of ours.
    #[default]
    Ivshmem,
    /// vfio-user, and the devices that netmap published; the second one listens at [`crate::vfio::memory_path`].
    VfioUser,
}

/// Why there is no port.
#[derive(Debug, Error)]
pub enum PtnetError {
    /// Too many rings, or none.
    #[error("{0} rings asked for; a ptnet device has 1 to {MAX_RINGS} each way")]
    Rings(u32),
    /// Too many slots, or too few.
    #[error("{0} slots a ring asked for; a ptnet device has {least} to {most}", least = SLOTS.start(), most = SLOTS.end())]
    Slots(u32),
    /// Nobody can listen there.
    #[error(transparent)]
    Door(#[from] DoorError),
    /// The device cannot be made.
    #[error(transparent)]
    Device(#[from] crate::instance::InstanceError),
    /// A step failed.
    #[error("{what}: {source}")]
    Step {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        source: Errno,
    },
}

impl PtnetError {
    /// The error number that fits.
    pub fn errno(&self) -> Errno {
        match self {
            PtnetError::Rings(_) | PtnetError::Slots(_) => Errno::INVAL,
            PtnetError::Door(why) => why.errno(),
            PtnetError::Device(crate::instance::InstanceError::System(source)) => *source,
            PtnetError::Device(crate::instance::InstanceError::Region(_)) => Errno::NOMEM,
            PtnetError::Step { source, .. } => *source,
        }
    }
}

/// What the port is doing.
#[derive(Clone, Debug, Default)]
pub struct PtnetState {
    /// A virtual machine is connected.
    pub connected: bool,
    /// Its driver runs the rings; with so many bytes of header before each frame.
    pub running: Option<u32>,
    /// Why the last connection ended, if not by hanging up.
    pub last_error: Option<String>,
    /// Connections so far.
    pub connections: u64,
    /// Commands of its driver so far.
    pub commands: u64,
}

impl PtnetState {
    /// Somebody came.
    pub(crate) fn begin(&mut self) {
        *self = PtnetState { connected: true, connections: self.connections + 1, ..PtnetState::default() };
    }

    /// Somebody left, for a reason if not by hanging up.
    pub(crate) fn end(&mut self, last_error: Option<String>) {
        *self = PtnetState { connections: self.connections, last_error, ..PtnetState::default() };
    }
}

pub(crate) struct Shared {
    state: Mutex<PtnetState>,
    pub(crate) stop: Doorbell,
}

impl Shared {
    pub(crate) fn update(&self, f: impl FnOnce(&mut PtnetState)) {
        f(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// A port. Dropping it ends the connection and the thread, and removes the socket.
pub struct PtnetPort {
    shared: Arc<Shared>,
    backend: Arc<dyn Backend>,
    threads: Vec<JoinHandle<()>>,
    options: PtnetOptions,
    keeper: Option<Arc<dyn Keeper>>,
}

impl PtnetPort {
    /// Whether such a device can be.
    ///
    /// # Errors
    /// [`PtnetError`].
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
    /// [`PtnetError`].
    pub fn new(options: &PtnetOptions, backend: Arc<dyn Backend>, survival: Survival) -> Result<PtnetPort, PtnetError> {
        Self::check(&options.config)?;
        // Sizes that make no device are found out now, not when a guest comes.
        drop(Instance::new(&options.config, &backend)?);
        let stop = Doorbell::new().map_err(|source| PtnetError::Step { what: "make an eventfd", source })?;
        let shared = Arc::new(Shared { state: Mutex::default(), stop });
        let (options, keeper) = (options.clone(), survival.keeper.clone());
        let mut port = PtnetPort { shared, backend, threads: Vec::new(), options, keeper };
        port.serve(survival)?;
        Ok(port)
    }

    fn serve(&mut self, survival: Survival) -> Result<(), PtnetError> {
        let (config, door) = (self.options.config, Door::listen(&self.options.path)?);
        let (shared, backend) = (Arc::clone(&self.shared), Arc::clone(&self.backend));
        if self.options.way == Way::Ivshmem {
            let server = Server { shared, backend, config, door, keeper: survival.keeper };
            return self.spawn(move || server.run(survival.kept));
        }
        let machine = Arc::<Machine>::default();
        let memory = MemoryServer {
            shared: Arc::clone(&shared),
            config,
            door: Door::listen(&memory_path(&self.options.path))?,
            machine: Arc::clone(&machine),
        };
        self.spawn(move || memory.run())?;
        let server = PtnetServer { shared, backend, config, door, machine };
        self.spawn(move || server.run())
    }

    fn spawn(&mut self, run: impl FnOnce() + Send + 'static) -> Result<(), PtnetError> {
        let thread = std::thread::Builder::new().name("netvale-ptnet".into()).spawn(run);
        let failed = |e: std::io::Error| e.raw_os_error().map_or(Errno::AGAIN, Errno::from_raw_os_error);
        self.threads.push(thread.map_err(|e| PtnetError::Step { what: "start a thread", source: failed(e) })?);
        Ok(())
    }

    /// What it was made with.
    pub fn options(&self) -> &PtnetOptions {
        &self.options
    }

    /// The port goes for good: nothing of its guest is kept any more.
    pub fn let_go(&self) {
        if let Some(keeper) = &self.keeper {
            keep::forget(&**keeper, &self.options.path, &self.options.config);
        }
    }

    /// What it is doing.
    pub fn state(&self) -> PtnetState {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Interrupts sent to the guest and saved, and kicks from it, for a ring the guest sends on (`tx`) or one it receives on.
    pub fn ring_kicks(&self, tx: bool, i: usize) -> (u64, u64, u64) {
        self.backend.kicks(tx, i)
    }
}

impl Drop for PtnetPort {
    fn drop(&mut self) {
        self.shared.stop.ring();
        for thread in self.threads.drain(..) {
            // A panic was reported by the runtime.
            let _ = thread.join();
        }
    }
}

/// The control thread.
struct Server {
    shared: Arc<Shared>,
    backend: Arc<dyn Backend>,
    config: Config,
    door: Door,
    keeper: Option<Arc<dyn Keeper>>,
}

/// Between two looks at a guest's commands: one that rings without end gets no more of a core than this leaves.
const PAUSE: Duration = Duration::from_micros(200);
/// After a connection that went wrong.
pub(crate) const RETRY: Duration = Duration::from_millis(200);

impl Server {
    fn path(&self) -> &Path {
        self.door.path()
    }

    fn run(&self, mut kept: Option<(OwnedFd, OwnedFd, Vec<OwnedFd>)>) {
        let stop = self.shared.stop.as_fd();
        loop {
            let (connection, adopted) = match kept.take() {
                Some((connection, memory, bells)) => (connection, Some((memory, bells))),
                None => match self.door.meet(stop) {
                    Some(connection) => (connection, None),
                    None => return,
                },
            };
            self.shared.update(PtnetState::begin);
            let what = if adopted.is_some() { "virtual machine found again" } else { "virtual machine connected" };
            tracing::info!(path = %self.path().display(), "{what}");
            let ended = self.serve(&connection, adopted);
            if let (Some(keeper), Ok(false) | Err(_)) = (&self.keeper, &ended) {
                keep::forget(&**keeper, self.path(), &self.config);
            }
            self.shared.update(|s| s.end(ended.clone().err()));
            match ended {
                Ok(true) => return,
                Ok(false) => tracing::info!(path = %self.path().display(), "virtual machine gone"),
                Err(why) => {
                    tracing::warn!(path = %self.path().display(), why, "virtual machine disconnected");
                    // One that comes back at once with the same mistake is not worth a core.
                    if nap(stop, RETRY) {
                        return;
                    }
                }
            }
        }
    }

    /// Serves a connection to its end. Returns whether the port is to end, too.
    fn serve(&self, connection: &OwnedFd, adopted: Option<(OwnedFd, Vec<OwnedFd>)>) -> Result<bool, String> {
        let mut device = self.device(connection, adopted)?;
        loop {
            let commands = device.doorbells().last().ok_or("a device without doorbells")?;
            let mut three = [
                PollFd::from_borrowed_fd(self.shared.stop.as_fd(), PollFlags::IN),
                PollFd::new(connection, PollFlags::IN),
                PollFd::from_borrowed_fd(commands.as_fd(), PollFlags::IN),
            ];
            match poll(&mut three, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(e.to_string()),
            }
            if !three[0].revents().is_empty() {
                return Ok(true);
            }
            if !three[1].revents().is_empty() && is_gone(connection)? {
                return Ok(false);
            }
            if !three[2].revents().is_empty() {
                commands.drain();
                self.obey(&mut device).map_err(|why| format!("its rings: {why}"))?;
                if nap(self.shared.stop.as_fd(), PAUSE) {
                    return Ok(true);
                }
            }
        }
    }

    /// A new device, which the other end is told of; or one that it has already.
    fn device(&self, connection: &OwnedFd, adopted: Option<(OwnedFd, Vec<OwnedFd>)>) -> Result<Instance, String> {
        if let Some((memory, bells)) = adopted {
            return Instance::adopt(&self.config, &self.backend, memory, bells).map_err(|e| e.to_string());
        }
        let device = Instance::new(&self.config, &self.backend).map_err(|e| e.to_string())?;
        let greeting = ivshmem::greeting(&device).map_err(|e| e.to_string())?;
        ivshmem::send(connection.as_fd(), self.shared.stop.as_fd(), &greeting)
            .map_err(|e| format!("its device cannot be described: {e}"))?;
        if let Some(keeper) = &self.keeper {
            keep::keep(&**keeper, self.path(), &self.config, connection.as_fd(), &device);
        }
        Ok(device)
    }

    fn obey(&self, device: &mut Instance) -> Result<(), InUse> {
        if let Some((command, done)) = device.obey()? {
            tracing::debug!(path = %self.path().display(), command, ?done, "command");
            self.shared.update(|s| (s.commands, s.running) = (s.commands + 1, device.hdr_len()));
        }
        Ok(())
    }
}

/// Whether the other end has hung up. It has nothing to say.
fn is_gone(connection: &OwnedFd) -> Result<bool, String> {
    let mut byte = [0u8; 1];
    match rustix::net::recv(connection, &mut byte, RecvFlags::DONTWAIT) {
        Ok((0, _)) | Err(Errno::CONNRESET) => Ok(true),
        Ok(_) => Err("it sent something: no ivshmem client does".to_owned()),
        Err(Errno::AGAIN | Errno::INTR) => Ok(false),
        Err(e) => Err(e.to_string()),
    }
}
