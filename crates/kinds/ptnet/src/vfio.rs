//! The two vfio-user sockets of a ptnet port, and their services.

mod state;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use netvale_fdio::state::Fd;
use netvale_mem::fault::Fault;
use netvale_port::listener::{ListenAddress, Listener, OpenError};
use netvale_port::service::{Protocol, Service, ServicePeer};
use netvale_vfio_user::Device;
use netvale_vfio_user::ended::ConnectionEnd;
use netvale_vfio_user::serve::serve;
use netvale_vfio_user::session::DeviceSession;
use netvale_vfio_user::state::{ClientState, VfioClient};

pub(crate) use self::state::DevicesState;
use crate::backend::Backend;
use crate::guest::{PtnetGuest, THREAD};
use crate::header::PtnetDeviceConfig;
use crate::machine::PtnetMachine;
use crate::published::{MemoryDevice, PtnetDevice, PtnetRegisters};

/// Suffix of the memory device's socket name.
const MEMORY: &str = ".mem";

/// Returns the path of the memory device's socket; `path` is the path of the ptnet device's socket.
pub fn memory_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(MEMORY);
    name.into()
}

/// The services of both devices, with their sockets and shared state.
pub(crate) struct DeviceServices {
    pub(crate) ptnet: Service<PtnetGuest>,
    pub(crate) memory: Service<()>,
    /// Listeners of the ptnet device and of the memory device.
    listeners: [Arc<Listener>; 2],
    machine: Arc<PtnetMachine>,
}

impl DeviceServices {
    /// Serves the ptnet device at `site`, and the memory device at the path from [`memory_path`].
    pub(crate) fn new(
        site: &ListenAddress,
        config: PtnetDeviceConfig,
        backend: Arc<dyn Backend>,
    ) -> Result<DeviceServices, OpenError> {
        let machine = Arc::<PtnetMachine>::default();
        let start = |site: &ListenAddress| Listener::listen(site).map(|(listener, file)| (Arc::new(listener), file));
        let beside = site.beside(MEMORY);
        let (shown, shown_file) = start(&beside)?;
        let server = memory_server(&shown, config, &machine, None);
        let memory = Service::start(THREAD, beside.path().display(), Some(shown_file), server)?;
        let (listener, file) = start(site)?;
        let server = ptnet_server(&listener, config, &machine, backend, None);
        let ptnet = Service::start(THREAD, site.path().display(), Some(file), server)?;
        Ok(DeviceServices { ptnet, memory, listeners: [listener, shown], machine })
    }
}

fn memory_server(
    listener: &Arc<Listener>,
    config: PtnetDeviceConfig,
    machine: &Arc<PtnetMachine>,
    first: Option<VfioClient<MemoryDevice>>,
) -> PtnetServer<MemoryDevice, impl FnMut(&ServicePeer<()>) -> NewDeviceSession<MemoryDevice> + Send + 'static> {
    let machine = Arc::clone(machine);
    let make = move |peer: &ServicePeer<()>| {
        let device = MemoryDevice::new(&config, &machine).map_err(|e| e.to_string())?;
        Ok(DeviceSession::new(device, MemoryDevice::VECTORS, peer.fault()))
    };
    PtnetServer { listener: Arc::clone(listener), first, make }
}

fn ptnet_server(
    listener: &Arc<Listener>,
    config: PtnetDeviceConfig,
    machine: &Arc<PtnetMachine>,
    backend: Arc<dyn Backend>,
    first: Option<VfioClient<PtnetDevice>>,
) -> PtnetServer<PtnetDevice, impl FnMut(&ServicePeer<PtnetGuest>) -> NewDeviceSession<PtnetDevice> + Send + 'static> {
    let machine = Arc::clone(machine);
    let make = move |peer: &ServicePeer<PtnetGuest>| {
        let device = PtnetDevice::new(&config, &machine, &backend, peer.fault());
        Ok(DeviceSession::new(device.map_err(|e| e.to_string())?, PtnetDevice::vectors(&config), peer.fault()))
    };
    PtnetServer { listener: Arc::clone(listener), first, make }
}

/// A session with a new device, or the reason why the device cannot be created.
type NewDeviceSession<D> = Result<DeviceSession<D>, String>;

/// A device that a service serves.
trait ServedDevice: Device + Send + Sized + 'static {
    /// The device's state for display.
    type Detail: Clone + Default + Send + 'static;

    /// Makes the device publish its state for display in `_peer`.
    fn shown(&mut self, _peer: &ServicePeer<Self::Detail>) {}

    /// Returns the device's guest-writable registers, if it has any.
    fn registers(&self) -> Option<PtnetRegisters> {
        None
    }
}

impl ServedDevice for MemoryDevice {
    type Detail = ();
}

impl ServedDevice for PtnetDevice {
    type Detail = PtnetGuest;

    fn shown(&mut self, peer: &ServicePeer<PtnetGuest>) {
        let told = peer.told().clone();
        self.tells(Box::new(move |running| told.update(|guest: &mut PtnetGuest| guest.obeyed(running))));
    }

    fn registers(&self) -> Option<PtnetRegisters> {
        Some(PtnetDevice::registers(self))
    }
}

/// The control thread's answer to a request for its hypervisor's state.
type PtnetClientAnswer = std::io::Result<ClientState<Option<PtnetRegisters>>>;

fn say<D: ServedDevice>(connection: &OwnedFd, session: &mut DeviceSession<D>) -> PtnetClientAnswer {
    let connection = Fd::copy_of(connection)?;
    Ok(ClientState { connection, session: session.save()?, device: session.device().0.registers() })
}

/// State of a control thread.
struct PtnetServer<D, F> {
    listener: Arc<Listener>,
    /// The restored hypervisor, which is served first.
    first: Option<VfioClient<D>>,
    make: F,
}

impl<D: ServedDevice, F: FnMut(&ServicePeer<D::Detail>) -> NewDeviceSession<D> + Send + 'static> Protocol
    for PtnetServer<D, F>
{
    type Connection = VfioClient<D>;
    type Detail = D::Detail;
    type Kept = ();
    const PEER: &'static str = "virtual machine";

    fn next(&mut self, stop: BorrowedFd<'_>) -> Option<Result<VfioClient<D>, String>> {
        if let Some(first) = self.first.take() {
            return Some(Ok(first));
        }
        self.listener.accept(stop).map(|connection| Ok(VfioClient::New(connection)))
    }

    fn fault(&self, came: &VfioClient<D>) -> Option<Fault> {
        came.fault()
    }

    fn serve(&mut self, came: VfioClient<D>, peer: &ServicePeer<D::Detail>) -> Result<(), String> {
        let (connection, mut session) = match came {
            VfioClient::New(connection) => (connection, (self.make)(peer)?),
            VfioClient::Continued(connection, session, _) => (connection, *session),
        };
        session.device().0.shown(peer);
        loop {
            let ended = serve(connection.as_fd(), peer.ends(), &mut session);
            let pause = if matches!(ended, ConnectionEnd::Stopped) { peer.asked_to_pause() } else { None };
            let Some(pause) = pause else { return ended.reason().map_or(Ok(()), Err) };
            pause.with(Box::new(say(&connection, &mut session)));
        }
    }
}
