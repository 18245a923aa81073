//! The two vfio-user sockets of a ptnet port, and their services.

mod state;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use netvale_fdio::state::Fd;
use netvale_mem::fault::Fault;
use netvale_port::listener::{Listener, OpenError, Site};
use netvale_port::service::{Peer, Protocol, Service};
use netvale_vfio_user::Device;
use netvale_vfio_user::ended::Ended;
use netvale_vfio_user::serve::serve;
use netvale_vfio_user::session::Session;
use netvale_vfio_user::state::ClientState;

pub(crate) use self::state::DevicesState;
use crate::backend::Backend;
use crate::guest::{Guest, THREAD};
use crate::header::Config;
use crate::machine::Machine;
use crate::published::{MemoryDevice, PtnetDevice, Registers};

/// Suffix of the memory device's socket name.
const MEMORY: &str = ".mem";

/// The socket of the memory device, beside that of the ptnet device.
pub fn memory_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(MEMORY);
    name.into()
}

/// The services of both devices, with their sockets and shared state.
pub(crate) struct Devices {
    pub(crate) ptnet: Service<Guest>,
    pub(crate) memory: Service<()>,
    /// Listeners of the ptnet device and of the memory device.
    listeners: [Arc<Listener>; 2],
    machine: Arc<Machine>,
}

impl Devices {
    /// Serves the ptnet device at `site`, and the memory device beside it.
    pub(crate) fn new(site: &Site, config: Config, backend: Arc<dyn Backend>) -> Result<Devices, OpenError> {
        let machine = Arc::<Machine>::default();
        let start = |site: &Site| Listener::listen(site).map(|(listener, file)| (Arc::new(listener), file));
        let beside = site.beside(MEMORY);
        let (shown, shown_file) = start(&beside)?;
        let server = memory_server(&shown, config, &machine, None);
        let memory = Service::start(THREAD, beside.path().display(), Some(shown_file), server)?;
        let (listener, file) = start(site)?;
        let server = ptnet_server(&listener, config, &machine, backend, None);
        let ptnet = Service::start(THREAD, site.path().display(), Some(file), server)?;
        Ok(Devices { ptnet, memory, listeners: [listener, shown], machine })
    }
}

fn memory_server(
    listener: &Arc<Listener>,
    config: Config,
    machine: &Arc<Machine>,
    first: Option<Came<MemoryDevice>>,
) -> Server<MemoryDevice, impl FnMut(&Peer<()>) -> Made<MemoryDevice> + Send + 'static> {
    let machine = Arc::clone(machine);
    let make = move |peer: &Peer<()>| {
        let device = MemoryDevice::new(&config, &machine).map_err(|e| e.to_string())?;
        Ok(Session::new(device, MemoryDevice::VECTORS, peer.fault()))
    };
    Server { listener: Arc::clone(listener), first, make }
}

fn ptnet_server(
    listener: &Arc<Listener>,
    config: Config,
    machine: &Arc<Machine>,
    backend: Arc<dyn Backend>,
    first: Option<Came<PtnetDevice>>,
) -> Server<PtnetDevice, impl FnMut(&Peer<Guest>) -> Made<PtnetDevice> + Send + 'static> {
    let machine = Arc::clone(machine);
    let make = move |peer: &Peer<Guest>| {
        let device = PtnetDevice::new(&config, &machine, &backend, Box::new(|_| ()), peer.fault());
        Ok(Session::new(device.map_err(|e| e.to_string())?, PtnetDevice::vectors(&config), peer.fault()))
    };
    Server { listener: Arc::clone(listener), first, make }
}

/// A session with a new device.
type Made<D> = Result<Session<D>, String>;

/// A device served by a service.
trait Served: Device + Send + Sized + 'static {
    /// The service's detail about it.
    type Detail: Clone + Default + Send + 'static;

    /// Starts showing its state in `_peer`.
    fn shown(&mut self, _peer: &Peer<Self::Detail>) {}

    /// Its guest-writable registers, if any.
    fn registers(&self) -> Option<Registers> {
        None
    }
}

impl Served for MemoryDevice {
    type Detail = ();
}

impl Served for PtnetDevice {
    type Detail = Guest;

    fn shown(&mut self, peer: &Peer<Guest>) {
        let told = peer.told().clone();
        self.tells(Box::new(move |running| told.update(|guest: &mut Guest| guest.obeyed(running))));
    }

    fn registers(&self) -> Option<Registers> {
        Some(PtnetDevice::registers(self))
    }
}

/// A hypervisor that has just connected, or one restored from another process.
enum Came<D> {
    New(OwnedFd),
    Continued(OwnedFd, Box<Session<D>>, Fault),
}

/// The control thread's answer about its hypervisor.
type Said = std::io::Result<ClientState<Option<Registers>>>;

fn say<D: Served>(connection: &OwnedFd, session: &mut Session<D>) -> Said {
    let connection = Fd::copy_of(connection)?;
    Ok(ClientState { connection, session: session.save()?, device: session.device().0.registers() })
}

/// State of the control thread.
struct Server<D, F> {
    listener: Arc<Listener>,
    /// The restored hypervisor, served first.
    first: Option<Came<D>>,
    make: F,
}

impl<D: Served, F: FnMut(&Peer<D::Detail>) -> Made<D> + Send + 'static> Protocol for Server<D, F> {
    type Connection = Came<D>;
    type Detail = D::Detail;
    type Kept = ();
    const PEER: &'static str = "virtual machine";

    fn next(&mut self, stop: BorrowedFd<'_>) -> Option<Result<Came<D>, String>> {
        if let Some(first) = self.first.take() {
            return Some(Ok(first));
        }
        self.listener.accept(stop).map(|connection| Ok(Came::New(connection)))
    }

    fn fault(&self, came: &Came<D>) -> Option<Fault> {
        if let Came::Continued(.., fault) = came { Some(fault.clone()) } else { None }
    }

    fn serve(&mut self, came: Came<D>, peer: &Peer<D::Detail>) -> Result<(), String> {
        let (connection, mut session) = match came {
            Came::New(connection) => (connection, (self.make)(peer)?),
            Came::Continued(connection, session, _) => (connection, *session),
        };
        session.device().0.shown(peer);
        loop {
            let ended = serve(connection.as_fd(), peer.ends(), &mut session);
            let pause = if matches!(ended, Ended::Stopped) { peer.asked_to_pause() } else { None };
            let Some(pause) = pause else { return ended.reason().map_or(Ok(()), Err) };
            pause.with(Box::new(say(&connection, &mut session)));
        }
    }
}
