//! Saved state of a port and its connected guest.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use netvale_fdio::state::{BadState, Fd};
use netvale_mem::fault::Fault;
use netvale_port::listener::Listener;
use netvale_port::service::{AskedToPause, KeptState, PausedService, Service, ServiceState};
use serde::{Deserialize, Serialize};

use super::{IvshmemConnection, IvshmemServer, PtnetOptions, PtnetPort, PtnetService, PtnetTransport};
use crate::backend::Backend;
use crate::guest::{PtnetGuest, THREAD};
use crate::instance::{InstanceState, PtnetInstance};
use crate::vfio::{DeviceServices, DevicesState};

/// Version of a port's state.
const VERSION: u32 = 1;

/// State of a ptnet port.
#[derive(Serialize, Deserialize)]
pub struct PtnetState {
    version: u32,
    serving: ServingState,
    /// Kick counts per tx ring, then per rx ring: interrupts sent, interrupts suppressed, kicks.
    kicks: [Vec<(u64, u64, u64)>; 2],
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ServingState {
    Ivshmem(Box<IvshmemState>),
    VfioUser(Box<DevicesState>),
}

/// State of a port over ivshmem.
#[derive(Serialize, Deserialize)]
struct IvshmemState {
    listener: Fd,
    service: ServiceState<PtnetGuest>,
    guest: Option<GuestState>,
}

/// State of a guest over ivshmem.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct GuestState {
    connection: Fd,
    memory: Fd,
    /// The doorbells that the guest rings, followed by the doorbells that interrupt the guest.
    bells: Vec<Fd>,
    instance: InstanceState,
}

/// The control thread's answer to a request for the state of its guest.
type IvshmemAnswer = std::io::Result<GuestState>;

/// Saves the guest that a control thread serves.
pub(super) fn say(connection: &OwnedFd, device: &PtnetInstance) -> Box<IvshmemAnswer> {
    Box::new(of(connection, device, device.state()))
}

/// Returns the state of a guest with its device in state `instance`.
pub(super) fn of(connection: &OwnedFd, device: &PtnetInstance, instance: InstanceState) -> IvshmemAnswer {
    let memory = device.memory().ok_or(rustix::io::Errno::BADF)?;
    let bells = device.doorbells().iter().chain(device.vectors()).map(AsFd::as_fd);
    Ok(GuestState {
        connection: Fd::copy_of(connection)?,
        memory: Fd::copy_of(memory)?,
        bells: Fd::copies_of(bells)?,
        instance,
    })
}

impl PtnetPort {
    /// Requests a pause of the control threads; [`PtnetPort::save_parked`] waits until they have paused.
    pub fn ask_to_pause(&self) -> Vec<AskedToPause> {
        match &self.serving {
            PtnetService::Ivshmem(service, ..) => vec![service.ask_to_pause()],
            PtnetService::VfioUser(devices) => devices.ask_to_pause().into(),
        }
    }

    /// Pauses the control threads until the returned [`PausedService`]s are dropped, and returns the state for a
    /// successor. The port's workers must be parked, i.e. paused between batches.
    ///
    /// # Errors
    /// The reason why the port cannot be saved now.
    pub fn save_parked(&self) -> std::io::Result<(PtnetState, Vec<PausedService>)> {
        let (serving, paused) = match &self.serving {
            PtnetService::Ivshmem(service, listener) => {
                let held_up = || std::io::Error::other("the control thread did not pause within 1 s; try again");
                let mut paused = service.pause().ok_or_else(held_up)?;
                let guest = paused.take::<IvshmemAnswer>().transpose()?;
                let state = IvshmemState { listener: Fd::shared(listener), service: service.state(), guest };
                (ServingState::Ivshmem(Box::new(state)), vec![paused])
            }
            PtnetService::VfioUser(devices) => {
                let (state, paused) = devices.save_parked()?;
                (ServingState::VfioUser(Box::new(state)), paused.into())
            }
        };
        let c = &self.options.config;
        let kicks = |tx, rings: u32| (0..rings as usize).map(|i| self.backend.kicks(tx, i)).collect();
        let kicks = [kicks(true, c.tx_rings), kicks(false, c.rx_rings)];
        Ok((PtnetState { version: VERSION, serving, kicks }, paused))
    }

    /// Returns the state from which a successor restores the port if this process is killed. It does not contain the
    /// positions of the rings. The state changes whenever the callback of [`PtnetPort::on_change`] is called.
    pub fn save(&self) -> PtnetState {
        let serving = match &self.serving {
            PtnetService::Ivshmem(service, listener) => {
                let guest = service.kept().last;
                let service = service.state().with(guest.is_some());
                ServingState::Ivshmem(Box::new(IvshmemState { listener: Fd::shared(listener), service, guest }))
            }
            PtnetService::VfioUser(devices) => ServingState::VfioUser(Box::new(devices.save())),
        };
        PtnetState { version: VERSION, serving, kicks: Default::default() }
    }

    /// Makes a thread of the port call `call` whenever [`PtnetPort::save`] changes. Only the first registration counts.
    pub fn on_change(&self, call: impl Fn() + Send + Sync + 'static) {
        match &self.serving {
            PtnetService::Ivshmem(service, _) => service.on_change(call),
            PtnetService::VfioUser(devices) => devices.ptnet.on_change(call),
        }
    }

    /// Restores a predecessor's port; `backend` receives the guest's rings. The port's threads wait until the returned
    /// [`PausedService`]s are dropped; until then, no doorbell is rung and nothing is sent or written to the guest.
    ///
    /// # Errors
    /// [`BadState`] names the inconsistent part.
    pub fn restore(
        options: &PtnetOptions,
        backend: Arc<dyn Backend>,
        state: PtnetState,
    ) -> Result<(PtnetPort, Vec<PausedService>), BadState> {
        Self::check(&options.config).map_err(BadState::new)?;
        if state.version != VERSION {
            return Err(BadState::new(format!("version {} of ptnet state, expected {VERSION}", state.version)));
        }
        for (tx, kicks) in [(true, &state.kicks[0]), (false, &state.kicks[1])] {
            for (ring, &(sent, suppressed, received)) in kicks.iter().enumerate() {
                backend.add_kicks(tx, ring, sent, suppressed, received);
            }
        }
        let behind = Arc::clone(&backend);
        let (serving, paused) = match (state.serving, options.transport) {
            (ServingState::Ivshmem(state), PtnetTransport::Ivshmem) => {
                let (serving, paused) = restore_ivshmem(options, behind, *state)?;
                (serving, vec![paused])
            }
            (ServingState::VfioUser(state), PtnetTransport::VfioUser) => {
                let (devices, paused) = DeviceServices::restore(&options.site, options.config, behind, *state)?;
                (PtnetService::VfioUser(Box::new(devices)), paused.into())
            }
            _ => return Err(BadState::new("the saved state has another transport")),
        };
        Ok((PtnetPort { serving, backend, options: options.clone() }, paused))
    }
}

fn restore_ivshmem(
    options: &PtnetOptions,
    backend: Arc<dyn Backend>,
    state: IvshmemState,
) -> Result<(PtnetService, PausedService), BadState> {
    let (listener, file) = Listener::restore(state.listener.take()?, &options.site)?;
    let listener = Arc::new(listener);
    let mut server = IvshmemServer::new(options, backend, &listener);
    let mut kept = KeptState::default();
    if let Some(guest) = state.guest {
        let GuestState { connection, memory, bells, instance } = guest;
        let fault = Fault::new()?;
        let memory = memory.take()?;
        let bells = Fd::take_all(bells)?;
        let device = PtnetInstance::restore(&options.config, &server.backend, memory, bells, instance, &fault);
        let device = device.map_err(|e| BadState::new(e).of("the guest's device"))?;
        let connection = connection.take()?;
        kept.last = of(&connection, &device, InstanceState::UNKNOWN).ok();
        server.first = Some(IvshmemConnection::Continued(connection, Box::new(device), fault));
    }
    let at = options.site.path().display();
    let (service, paused) = Service::restore(THREAD, at, Some(file), server, state.service, kept)?;
    Ok((PtnetService::Ivshmem(Box::new(service), listener), paused))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    use netvale_fdio::state;
    use netvale_mem::fault::Fault;
    use serde_json::{Value, json};

    use super::*;
    use crate::header::PtnetDeviceConfig;
    use crate::seats::Seats;

    fn copies(fds: &[Fd]) -> Vec<OwnedFd> {
        Fd::take_all(fds.iter().cloned()).unwrap()
    }

    fn seats() -> Arc<dyn Backend> {
        Arc::new(Seats::new(1, 1).unwrap().0)
    }

    const CONFIG: PtnetDeviceConfig =
        PtnetDeviceConfig { tx_rings: 1, rx_rings: 1, slots: 16, buf_size: 0, vnet_hdr: false, mac: [0; 6], mtu: 1500 };

    /// Objective: inconsistent state is refused with the name of the wrong part; the predecessor's device is unchanged.
    #[test]
    fn a_forged_state_is_refused_with_the_wrong_part() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let options = PtnetOptions { site: path.clone().into(), config: CONFIG, transport: PtnetTransport::Ivshmem };
        let port = PtnetPort::new(&options, seats()).unwrap();
        let _guest = UnixStream::connect(&path).unwrap();
        let until = Instant::now() + Duration::from_secs(30);
        let mut saved = port.save_parked().unwrap();
        let has_guest = |state: &PtnetState| matches!(&state.serving, ServingState::Ivshmem(s) if s.guest.is_some());
        while !has_guest(&saved.0) && Instant::now() < until {
            // Dropping the saved state resumes the service before it is saved a second time.
            drop(saved);
            saved = port.save_parked().unwrap();
        }
        let (state, paused) = saved;
        let (said, fds) = state::State::of(&state).unwrap().into_parts();
        let go_on = |said: &Value, fds: Vec<OwnedFd>, options: &PtnetOptions| -> Result<_, String> {
            let state = state::State::from_parts(said.clone(), fds).read().map_err(|e| e.to_string())?;
            PtnetPort::restore(options, seats(), state).map_err(|e| e.to_string())
        };
        let running =
            |index: u32, hdr_len: u32| json!({"running": {"index": index, "extra_bufs": 0, "hdr_len": hdr_len}});
        let forgeries = [
            ("/version", json!(2), "version 2"),
            ("/serving/ivshmem/guest/instance/rings", running(0, 12), "a virtio-net header"),
            ("/serving/ivshmem/guest/instance/rings", running(u32::MAX, 0), "netmap_if"),
            ("/serving/ivshmem/guest/instance/rings", json!("walking"), "unknown variant"),
            ("/serving/ivshmem/guest/bells/1", said["serving"]["ivshmem"]["guest"]["bells"][0].clone(), "named twice"),
        ];
        for (at, value, why) in forgeries {
            let mut forged = said.clone();
            *forged.pointer_mut(at).unwrap() = value;
            let refused = go_on(&forged, copies(&fds), &options).map(drop).unwrap_err();
            assert!(refused.contains(why), "{at}: {refused}");
        }
        for count in 0..fds.len() {
            let refused = go_on(&said, copies(&fds[..count]), &options).map(drop).unwrap_err();
            assert!(refused.contains("is missing"), "{count} descriptors: {refused}");
        }
        let mut few = said.clone();
        few["serving"]["ivshmem"]["guest"]["bells"].as_array_mut().unwrap().pop();
        let refused = go_on(&few, copies(&fds[..fds.len() - 1]), &options).map(drop).unwrap_err();
        assert!(refused.contains("doorbells are missing"), "{refused}");
        let mut others = copies(&fds);
        others.swap(2, 3);
        assert!(go_on(&said, others, &options).map(drop).unwrap_err().contains("memory"), "no memory");
        let larger = PtnetOptions { config: PtnetDeviceConfig { slots: 32, ..CONFIG }, ..options.clone() };
        assert!(go_on(&said, copies(&fds), &larger).map(drop).unwrap_err().contains("memory"), "another size");
        assert!(path.exists(), "the socket is still the predecessor's");
        let (next, held) = go_on(&said, copies(&fds), &options).unwrap();
        std::mem::forget((port, paused));
        drop(held);
        assert!(next.state().connected && next.state().connections == 1);
        drop(next);
        assert!(!path.exists(), "the socket is the successor's");
    }

    /// Objective: rings with unknown positions wait until the successor takes over the device, which then asks the
    /// rings' driver to restart them.
    #[test]
    fn rings_with_unknown_positions_wait() {
        let fault = Fault::new().unwrap();
        let backend = seats();
        let device = PtnetInstance::new(&CONFIG, &backend, &fault).unwrap();
        let said = serde_json::from_value(json!({"seen": 0, "rings": "unknown"})).unwrap();
        let connection = OwnedFd::from(UnixStream::pair().unwrap().0);
        let GuestState { memory, bells, .. } = (*say(&connection, &device)).unwrap();
        let memory = memory.take().unwrap();
        let map = netvale_mem::Mapping::map(memory.as_fd(), 4096).unwrap();
        let words = netvale_mem::words::Words::new(&Arc::new(map), 0, 1024).unwrap();
        let status = || (0..1024).map(|at| words.load(at)).collect::<Vec<_>>();
        let before = status();
        let bells = Fd::take_all(bells).unwrap();
        let mut next = PtnetInstance::restore(&CONFIG, &seats(), memory, bells, said, &fault).unwrap();
        assert!(status() == before && !device.vectors()[2].drain());
        next.go_on();
        assert!(status() != before && device.vectors()[2].drain());
        drop((next, device));
    }
}
