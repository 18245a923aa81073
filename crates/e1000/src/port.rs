//! An e1000 port: a socket, the thread that serves the hypervisor that connects there, and the switch's two queues.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use netvale_mem::notify::Doorbell;
use netvale_port::door::{Door, DoorError, nap};
use netvale_port::{Egress, Ingress};
use netvale_vfio_user::serve::serve;
use netvale_vfio_user::session::Session;
use rustix::io::Errno;
use thiserror::Error;

use crate::core::{Crossings, Shared};
use crate::device::{Card, E1000};
use crate::egress::E1000Egress;
use crate::ingress::E1000Ingress;
use crate::vfio::E1000Device;

/// What a port is made with.
#[derive(Clone, Debug)]
pub struct E1000Options {
    /// The socket.
    pub path: PathBuf,
    /// The card.
    pub card: Card,
}

/// Why there is no port.
#[derive(Debug, Error)]
pub enum E1000Error {
    /// Nobody can listen there.
    #[error(transparent)]
    Door(#[from] DoorError),
    /// A step failed.
    #[error("{what}: {source}")]
    Step {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        source: Errno,
    },
}

impl E1000Error {
    /// The error number that fits.
    pub fn errno(&self) -> Errno {
        match self {
            E1000Error::Door(why) => why.errno(),
            E1000Error::Step { source, .. } => *source,
        }
    }
}

/// What the port is doing.
#[derive(Clone, Debug, Default)]
pub struct E1000State {
    /// A virtual machine is connected.
    pub connected: bool,
    /// Connections so far.
    pub connections: u64,
    /// Why the last connection ended, if not by hanging up.
    pub last_error: Option<String>,
}

/// A port. Dropping it ends the connection and the thread, and removes the socket.
pub struct E1000Port {
    options: E1000Options,
    state: Arc<Mutex<E1000State>>,
    shared: Arc<Shared>,
    stop: Arc<Doorbell>,
    thread: Option<JoinHandle<()>>,
}

/// The port's queues for the switch.
pub type Queues = (Arc<dyn Egress>, Box<dyn Ingress>);

/// After a connection that went wrong.
const RETRY: Duration = Duration::from_millis(200);

impl E1000Port {
    /// Opens the socket and serves it.
    ///
    /// # Errors
    /// [`E1000Error`].
    pub fn new(options: &E1000Options) -> Result<(E1000Port, Queues), E1000Error> {
        let step = |what| move |source| E1000Error::Step { what, source };
        let door = Door::listen(&options.path)?;
        let shared = Shared::new(E1000::new(options.card)).map_err(step("make a timer"))?;
        let stop = Arc::new(Doorbell::new().map_err(step("make an eventfd"))?);
        let state = Arc::<Mutex<E1000State>>::default();
        let server = Server {
            door,
            card: options.card,
            shared: Arc::clone(&shared),
            stop: Arc::clone(&stop),
            state: Arc::clone(&state),
        };
        let thread = std::thread::Builder::new().name("netvale-e1000".into()).spawn(move || server.run());
        let failed = |e: std::io::Error| e.raw_os_error().map_or(Errno::AGAIN, Errno::from_raw_os_error);
        let thread = Some(thread.map_err(|e| step("start a thread")(failed(e)))?);
        let egress = Arc::new(E1000Egress::new(Arc::clone(&shared)));
        let ingress = Box::new(E1000Ingress::new(Arc::clone(&shared)));
        let port = E1000Port { options: options.clone(), state, shared, stop, thread };
        Ok((port, (egress, ingress)))
    }

    /// What it was made with.
    pub fn options(&self) -> &E1000Options {
        &self.options
    }

    /// What it is doing.
    pub fn state(&self) -> E1000State {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Register accesses and interrupts so far.
    pub fn crossings(&self) -> &Crossings {
        &self.shared.crossings
    }

    /// The driver has the link up.
    pub fn is_linked(&self) -> bool {
        self.shared.control(|core| core.e1000.is_linked()).unwrap_or(false)
    }
}

impl Drop for E1000Port {
    fn drop(&mut self) {
        self.stop.ring();
        if let Some(thread) = self.thread.take() {
            // A panic was reported by the runtime.
            let _ = thread.join();
        }
    }
}

/// The control thread.
struct Server {
    door: Door,
    card: Card,
    shared: Arc<Shared>,
    stop: Arc<Doorbell>,
    state: Arc<Mutex<E1000State>>,
}

impl Server {
    fn path(&self) -> &Path {
        self.door.path()
    }

    fn update(&self, f: impl FnOnce(&mut E1000State)) {
        f(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Serves one hypervisor after the other; each finds the card as after power-up.
    fn run(&self) {
        let stop = self.stop.as_fd();
        while let Some(connection) = self.door.meet(stop) {
            self.update(|s| (s.connected, s.connections, s.last_error) = (true, s.connections + 1, None));
            tracing::info!(path = %self.path().display(), "virtual machine connected");
            let device = E1000Device::new(Arc::clone(&self.shared), self.card.subsystem);
            let mut session = Session::new(device, E1000Device::vectors());
            let why = serve(connection.as_fd(), stop, &mut session).reason();
            session.device().0.power_off();
            match &why {
                None => tracing::info!(path = %self.path().display(), "virtual machine gone"),
                Some(why) => tracing::warn!(path = %self.path().display(), why, "virtual machine disconnected"),
            }
            let failed = why.is_some();
            self.update(|s| (s.connected, s.last_error) = (false, why));
            // One that comes back at once with the same mistake is not worth a core.
            if failed && nap(stop, RETRY) {
                return;
            }
        }
    }
}
