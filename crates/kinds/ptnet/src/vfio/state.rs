//! Saved state of both devices and their connected hypervisor.

use std::sync::Arc;

use netvale_fdio::state::{BadState, Fd};
use netvale_mem::fault::Fault;
use netvale_port::listener::{ListenAddress, Listener};
use netvale_port::service::{AskedToPause, KeptState, PausedService, Service, ServiceState};
use netvale_vfio_user::session::DeviceSession;
use netvale_vfio_user::state::{ClientState, VfioClient};
use serde::{Deserialize, Serialize};

use super::{DeviceServices, MEMORY, PtnetClientAnswer, memory_server, ptnet_server};
use crate::backend::Backend;
use crate::guest::{PtnetGuest, THREAD};
use crate::header::PtnetDeviceConfig;
use crate::machine::{MemoryState, PtnetMachine};
use crate::published::{MemoryDevice, PtnetDevice, PtnetRegisters};

/// State of both devices.
#[derive(Serialize, Deserialize)]
pub struct DevicesState {
    /// State of the machine's memory.
    memory: Option<MemoryState>,
    ptnet: DeviceServiceState<PtnetGuest>,
    shown: DeviceServiceState<()>,
}

/// State of a device and its service. State that is saved in case this process is killed has no client, as a client's
/// connection ends with the process.
#[derive(Serialize, Deserialize)]
struct DeviceServiceState<D> {
    listener: Fd,
    service: ServiceState<D>,
    client: SavedClient,
}

impl<D: Clone + Default + Send + 'static> DeviceServiceState<D> {
    fn of(listener: &Arc<Listener>, service: &Service<D>, client: SavedClient) -> Self {
        DeviceServiceState { listener: Fd::shared(listener), service: service.state(), client }
    }

    /// Returns the state with which a successor starts this device's service.
    fn told(&self) -> ServiceState<D> {
        let told = self.service.clone();
        if self.client.is_some() { told } else { told.after_a_kill() }
    }
}

/// State of a device's client, if a client is connected. The registers in it are `None` for a device without
/// guest-writable registers.
type SavedClient = Option<ClientState<Option<PtnetRegisters>>>;

/// Returns the error that reports a control thread that does not pause in time.
fn held_up() -> std::io::Error {
    std::io::Error::other("the control thread did not pause within 1 s; try again")
}

impl DeviceServices {
    /// Requests a pause of the control threads; [`DeviceServices::save_parked`] waits until they have paused.
    pub(crate) fn ask_to_pause(&self) -> [AskedToPause; 2] {
        [self.ptnet.ask_to_pause(), self.memory.ask_to_pause()]
    }

    /// Pauses the control threads until the returned [`PausedService`]s are dropped, and returns the state for a
    /// successor.
    pub(crate) fn save_parked(&self) -> std::io::Result<(DevicesState, [PausedService; 2])> {
        let mut paused = [self.ptnet.pause().ok_or_else(held_up)?, self.memory.pause().ok_or_else(held_up)?];
        let [client, shown] = paused.each_mut().map(|paused| paused.take::<PtnetClientAnswer>().transpose());
        Ok((self.state(self.machine.save()?, client?, shown?), paused))
    }

    fn state(&self, memory: Option<MemoryState>, client: SavedClient, shown: SavedClient) -> DevicesState {
        let [listener, shown_listener] = &self.listeners;
        DevicesState {
            memory,
            ptnet: DeviceServiceState::of(listener, &self.ptnet, client),
            shown: DeviceServiceState::of(shown_listener, &self.memory, shown),
        }
    }

    /// Returns the state from which a successor restores the devices if this process is killed; guests must then
    /// connect again.
    pub(crate) fn save(&self) -> DevicesState {
        self.state(None, None, None)
    }

    /// Restores a predecessor's devices. Their threads wait until the returned [`PausedService`]s are dropped; until
    /// then, no doorbell is rung and nothing is sent or written to the guest. If the predecessor was killed, creates
    /// new devices.
    pub(crate) fn restore(
        site: &ListenAddress,
        config: PtnetDeviceConfig,
        backend: Arc<dyn Backend>,
        state: DevicesState,
    ) -> Result<(DeviceServices, [PausedService; 2]), BadState> {
        let told = state.ptnet.told();
        let told_shown = state.shown.told();
        let DevicesState { memory, ptnet, shown } = state;
        let machine = memory.map(|memory| PtnetMachine::restore(&config, memory)).transpose()?.unwrap_or_default();
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
            Service::restore(THREAD, at, Some(memory_file), server, told_shown, KeptState::default())?;
        let server = ptnet_server(&listeners[0], config, &machine, backend, device);
        let (ptnet, held) =
            Service::restore(THREAD, site.path().display(), Some(ptnet_file), server, told, KeptState::default())?;
        Ok((DeviceServices { ptnet, memory, listeners, machine }, [held, held_memory]))
    }
}

/// Restores a predecessor's ptnet device and its hypervisor.
fn restore_ptnet(
    config: &PtnetDeviceConfig,
    machine: &Arc<PtnetMachine>,
    backend: &Arc<dyn Backend>,
    client: ClientState<Option<PtnetRegisters>>,
) -> Result<VfioClient<PtnetDevice>, BadState> {
    let registers = client.device.ok_or_else(|| BadState::new("the device's registers are missing"))?;
    let fault = Fault::new()?;
    let device = PtnetDevice::continued(config, machine, backend, &fault).map_err(BadState::new)?;
    let mut session = DeviceSession::restore(device, PtnetDevice::vectors(config), &fault, client.session)?;
    let (device, host) = session.device();
    device.go_on(host, &registers).map_err(|e| BadState::new(e).of("the device's rings"))?;
    Ok(VfioClient::Continued(client.connection.take()?, Box::new(session), fault))
}

/// Restores a predecessor's memory device and its hypervisor.
fn restore_memory(
    config: &PtnetDeviceConfig,
    machine: &Arc<PtnetMachine>,
    client: ClientState<Option<PtnetRegisters>>,
) -> Result<VfioClient<MemoryDevice>, BadState> {
    let device = MemoryDevice::new(config, machine).map_err(BadState::new)?;
    let fault = Fault::new()?;
    let session = DeviceSession::restore(device, MemoryDevice::VECTORS, &fault, client.session)?;
    Ok(VfioClient::Continued(client.connection.take()?, Box::new(session), fault))
}
