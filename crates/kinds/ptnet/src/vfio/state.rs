//! Saved state of both devices and their connected hypervisor.

use std::sync::Arc;

use netvale_fdio::state::{BadState, Fd};
use netvale_mem::fault::Fault;
use netvale_port::listener::{Listener, Site};
use netvale_port::service::{AskedToPause, Kept, Paused, Service, State};
use netvale_vfio_user::session::Session;
use netvale_vfio_user::state::ClientState;
use serde::{Deserialize, Serialize};

use super::{Came, Devices, MEMORY, Said, memory_server, ptnet_server};
use crate::backend::Backend;
use crate::guest::{Guest, THREAD};
use crate::header::Config;
use crate::machine::{Machine, MemoryState};
use crate::published::{MemoryDevice, PtnetDevice, Registers};

/// State of both devices.
#[derive(Serialize, Deserialize)]
pub struct DevicesState {
    /// State of the machine's memory.
    memory: Option<MemoryState>,
    ptnet: DeviceState<Guest>,
    shown: DeviceState<()>,
}

/// State of a device. In state saved in case the process is killed, its service has no client, as clients end with it.
/// Registers are `None` if a guest cannot change any.
#[derive(Serialize, Deserialize)]
struct DeviceState<D> {
    listener: Fd,
    service: State<D>,
    client: Client,
}

impl<D: Clone + Default + Send + 'static> DeviceState<D> {
    fn of(listener: &Arc<Listener>, service: &Service<D>, client: Client) -> Self {
        DeviceState { listener: Fd::shared(listener), service: service.state(), client }
    }

    /// State of its service after a restore.
    fn told(&self) -> State<D> {
        let told = self.service.clone();
        if self.client.is_some() { told } else { told.after_a_kill() }
    }
}

/// A device's client, if it has one.
type Client = Option<ClientState<Option<Registers>>>;

/// The error of a service whose peer blocks it.
fn held_up() -> std::io::Error {
    std::io::Error::other("its guest holds it up: try again")
}

impl Devices {
    /// Asks the control threads to pause; [`Devices::save_parked`] waits for that.
    pub(crate) fn ask_to_pause(&self) -> [AskedToPause; 2] {
        [self.ptnet.ask_to_pause(), self.memory.ask_to_pause()]
    }

    /// Pauses the control threads until the last result is dropped, and returns the state for a successor.
    pub(crate) fn save_parked(&self) -> std::io::Result<(DevicesState, [Paused; 2])> {
        let mut paused = [self.ptnet.pause().ok_or_else(held_up)?, self.memory.pause().ok_or_else(held_up)?];
        let [client, shown] = paused.each_mut().map(|paused| paused.take::<Said>().transpose());
        Ok((self.state(self.machine.save()?, client?, shown?), paused))
    }

    fn state(&self, memory: Option<MemoryState>, client: Client, shown: Client) -> DevicesState {
        let [listener, shown_listener] = &self.listeners;
        DevicesState {
            memory,
            ptnet: DeviceState::of(listener, &self.ptnet, client),
            shown: DeviceState::of(shown_listener, &self.memory, shown),
        }
    }

    /// State for restoring the devices after this process is killed: guests must connect again.
    pub(crate) fn save(&self) -> DevicesState {
        self.state(None, None, None)
    }

    /// Restores another process's devices. Their threads wait until the last result is dropped; until then nothing is
    /// rung, sent, or written to the guest. After a killed process, the devices are new ones.
    pub(crate) fn restore(
        site: &Site,
        config: Config,
        backend: Arc<dyn Backend>,
        state: DevicesState,
    ) -> Result<(Devices, [Paused; 2]), BadState> {
        let told = state.ptnet.told();
        let told_shown = state.shown.told();
        let DevicesState { memory, ptnet, shown } = state;
        let machine = memory.map(|memory| Machine::restore(&config, memory)).transpose()?.unwrap_or_default();
        let machine = Arc::new(machine);
        let device = ptnet.client.map(|client| restore_ptnet(&config, &machine, &backend, client)).transpose()?;
        let shown_device = shown.client.map(|client| restore_memory(&config, &machine, client)).transpose()?;
        let beside = site.beside(MEMORY);
        let (ptnet, ptnet_file) = Listener::restore(ptnet.listener.take()?, site)?;
        let (memory, memory_file) = Listener::restore(shown.listener.take()?, &beside)?;
        let listeners = [Arc::new(ptnet), Arc::new(memory)];
        let server = memory_server(&listeners[1], config, &machine, shown_device);
        let at = beside.path().display();
        let (memory, held_memory) =
            Service::restore(THREAD, at, Some(memory_file), server, told_shown, Kept::default())?;
        let server = ptnet_server(&listeners[0], config, &machine, backend, device);
        let (ptnet, held) =
            Service::restore(THREAD, site.path().display(), Some(ptnet_file), server, told, Kept::default())?;
        Ok((Devices { ptnet, memory, listeners, machine }, [held, held_memory]))
    }
}

/// Restores another process's ptnet device, with its hypervisor.
fn restore_ptnet(
    config: &Config,
    machine: &Arc<Machine>,
    backend: &Arc<dyn Backend>,
    client: ClientState<Option<Registers>>,
) -> Result<Came<PtnetDevice>, BadState> {
    let registers = client.device.ok_or_else(|| BadState::new("its registers are missing"))?;
    let fault = Fault::new()?;
    let device = PtnetDevice::continued(config, machine, backend, &fault).map_err(BadState::new)?;
    let mut session = Session::restore(device, PtnetDevice::vectors(config), &fault, client.session)?;
    let (device, host) = session.device();
    device.go_on(host, &registers).map_err(|e| BadState::new(e).of("its rings"))?;
    Ok(Came::Continued(client.connection.take()?, Box::new(session), fault))
}

/// Restores another process's memory device, with its hypervisor.
fn restore_memory(
    config: &Config,
    machine: &Arc<Machine>,
    client: ClientState<Option<Registers>>,
) -> Result<Came<MemoryDevice>, BadState> {
    let device = MemoryDevice::new(config, machine).map_err(BadState::new)?;
    let fault = Fault::new()?;
    let session = Session::restore(device, MemoryDevice::VECTORS, &fault, client.session)?;
    Ok(Came::Continued(client.connection.take()?, Box::new(session), fault))
}
