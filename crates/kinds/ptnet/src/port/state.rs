//! Saved state of a port and its connected guest.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use netvale_fdio::state::{BadState, Fd};
use netvale_mem::fault::Fault;
use netvale_port::listener::Listener;
use netvale_port::service::{AskedToPause, Kept, Paused, Service, State};
use serde::{Deserialize, Serialize};

use super::{Connection, PtnetOptions, PtnetPort, Server, Serving, Transport};
use crate::backend::Backend;
use crate::guest::{Guest, THREAD};
use crate::instance::{Instance, InstanceState};
use crate::vfio::{Devices, DevicesState};

/// Version of a port's state.
const VERSION: u32 = 1;

/// State of a port.
#[derive(Serialize, Deserialize)]
pub struct PortState {
    version: u32,
    serving: ServingState,
    /// Interrupts sent and saved, and kicks, of each tx ring and each rx ring.
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
    service: State<Guest>,
    guest: Option<GuestState>,
}

/// State of a guest over ivshmem.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct GuestState {
    connection: Fd,
    memory: Fd,
    /// Its doorbells, then its vectors.
    bells: Vec<Fd>,
    instance: InstanceState,
}

/// The control thread's answer about its guest, over ivshmem.
type Said = std::io::Result<GuestState>;

/// Saves the guest served by a control thread.
pub(super) fn say(connection: &OwnedFd, device: &Instance) -> Box<Said> {
    Box::new(of(connection, device, device.state()))
}

/// State of a guest, with its device in state `instance`.
pub(super) fn of(connection: &OwnedFd, device: &Instance, instance: InstanceState) -> Said {
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
    /// Asks the control threads to pause; [`PtnetPort::save_parked`] waits for that.
    pub fn ask_to_pause(&self) -> Vec<AskedToPause> {
        match &self.serving {
            Serving::Ivshmem(service, ..) => vec![service.ask_to_pause()],
            Serving::VfioUser(devices) => devices.ask_to_pause().into(),
        }
    }

    /// Pauses the control threads until the last result is dropped, and returns the state for a successor. The port's
    /// workers are parked already.
    ///
    /// # Errors
    /// A sentence with the reason why it cannot be restored now.
    pub fn save_parked(&self) -> std::io::Result<(PortState, Vec<Paused>)> {
        let (serving, paused) = match &self.serving {
            Serving::Ivshmem(service, listener) => {
                let held_up = || std::io::Error::other("its guest holds it up: try again");
                let mut paused = service.pause().ok_or_else(held_up)?;
                let guest = paused.take::<Said>().transpose()?;
                let state = IvshmemState { listener: Fd::shared(listener), service: service.state(), guest };
                (ServingState::Ivshmem(Box::new(state)), vec![paused])
            }
            Serving::VfioUser(devices) => {
                let (state, paused) = devices.save_parked()?;
                (ServingState::VfioUser(Box::new(state)), paused.into())
            }
        };
        let c = &self.options.config;
        let kicks = |tx, rings: u32| (0..rings as usize).map(|i| self.backend.kicks(tx, i)).collect();
        let kicks = [kicks(true, c.tx_rings), kicks(false, c.rx_rings)];
        Ok((PortState { version: VERSION, serving, kicks }, paused))
    }

    /// State for restoring the port after this process is killed: rings hold their own positions. It changes whenever
    /// [`PtnetPort::on_change`] calls.
    pub fn save(&self) -> PortState {
        let serving = match &self.serving {
            Serving::Ivshmem(service, listener) => {
                let guest = service.kept().last;
                let service = service.state().with(guest.is_some());
                ServingState::Ivshmem(Box::new(IvshmemState { listener: Fd::shared(listener), service, guest }))
            }
            Serving::VfioUser(devices) => ServingState::VfioUser(Box::new(devices.save())),
        };
        PortState { version: VERSION, serving, kicks: Default::default() }
    }

    /// Has a thread of the port call `call` whenever [`PtnetPort::save`] changes. Only the first registration counts.
    pub fn on_change(&self, call: impl Fn() + Send + Sync + 'static) {
        match &self.serving {
            Serving::Ivshmem(service, _) => service.on_change(call),
            Serving::VfioUser(devices) => devices.ptnet.on_change(call),
        }
    }

    /// Restores another process's port; `backend` gets its guest's rings. Its threads wait until the last result is
    /// dropped; until then nothing is rung, sent, or written to the guest.
    ///
    /// # Errors
    /// [`BadState`] with the inconsistent part.
    pub fn restore(
        options: &PtnetOptions,
        backend: Arc<dyn Backend>,
        state: PortState,
    ) -> Result<(PtnetPort, Vec<Paused>), BadState> {
        Self::check(&options.config).map_err(BadState::new)?;
        if state.version != VERSION {
            return Err(BadState::new(format!("version {} of a ptnet port's state, not {VERSION}", state.version)));
        }
        for (tx, kicks) in [(true, &state.kicks[0]), (false, &state.kicks[1])] {
            kicks.iter().enumerate().for_each(|(ring, kicks)| backend.add_kicks(tx, ring, *kicks));
        }
        let behind = Arc::clone(&backend);
        let (serving, paused) = match (state.serving, options.transport) {
            (ServingState::Ivshmem(state), Transport::Ivshmem) => {
                let (serving, paused) = restore_ivshmem(options, behind, *state)?;
                (serving, vec![paused])
            }
            (ServingState::VfioUser(state), Transport::VfioUser) => {
                let (devices, paused) = Devices::restore(&options.site, options.config, behind, *state)?;
                (Serving::VfioUser(Box::new(devices)), paused.into())
            }
            _ => return Err(BadState::new("another transport")),
        };
        Ok((PtnetPort { serving, backend, options: options.clone() }, paused))
    }
}

fn restore_ivshmem(
    options: &PtnetOptions,
    backend: Arc<dyn Backend>,
    state: IvshmemState,
) -> Result<(Serving, Paused), BadState> {
    let (listener, file) = Listener::restore(state.listener.take()?, &options.site)?;
    let listener = Arc::new(listener);
    let mut server = Server::new(options, backend, &listener);
    let mut kept = Kept::default();
    if let Some(guest) = state.guest {
        let GuestState { connection, memory, bells, instance } = guest;
        let fault = Fault::new()?;
        let descriptors = (memory.take()?, Fd::take_all(bells)?);
        let device = Instance::restore(&options.config, &server.backend, descriptors, instance, &fault);
        let device = device.map_err(|e| BadState::new(e).of("the guest's device"))?;
        let connection = connection.take()?;
        kept.last = of(&connection, &device, InstanceState::UNKNOWN).ok();
        server.first = Some(Connection::Continued(connection, Box::new(device), fault));
    }
    let at = options.site.path().display();
    let (service, paused) = Service::restore(THREAD, at, Some(file), server, state.service, kept)?;
    Ok((Serving::Ivshmem(Box::new(service), listener), paused))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    use netvale_fdio::state;
    use netvale_mem::fault::Fault;
    use serde_json::{Value, json};

    use super::*;
    use crate::header::Config;
    use crate::seats::Seats;

    fn copies(fds: &[Fd]) -> Vec<OwnedFd> {
        Fd::take_all(fds.iter().cloned()).unwrap()
    }

    fn seats() -> Arc<dyn Backend> {
        Arc::new(Seats::new(1, 1).unwrap().0)
    }

    const CONFIG: Config =
        Config { tx_rings: 1, rx_rings: 1, slots: 16, buf_size: 0, vnet_hdr: false, mac: [0; 6], mtu: 1500 };

    /// Objective: inconsistent state is refused with the name of the wrong part; the device of its owner is unchanged.
    #[test]
    fn forged() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let options = PtnetOptions { site: path.clone().into(), config: CONFIG, transport: Transport::Ivshmem };
        let port = PtnetPort::new(&options, seats()).unwrap();
        let _guest = UnixStream::connect(&path).unwrap();
        let until = Instant::now() + Duration::from_secs(30);
        let mut saved = port.save_parked().unwrap();
        let has_guest = |state: &PortState| matches!(&state.serving, ServingState::Ivshmem(s) if s.guest.is_some());
        while !has_guest(&saved.0) && Instant::now() < until {
            // It resumes in between.
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
            ("/serving/ivshmem/guest/instance/rings", running(0, 12), "a header"),
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
        let larger = PtnetOptions { config: Config { slots: 32, ..CONFIG }, ..options.clone() };
        assert!(go_on(&said, copies(&fds), &larger).map(drop).unwrap_err().contains("memory"), "another size");
        assert!(path.exists(), "the socket is whose it was");
        let (next, held) = go_on(&said, copies(&fds), &options).unwrap();
        std::mem::forget((port, paused));
        drop(held);
        assert!(next.state().connected && next.state().connections == 1);
        drop(next);
        assert!(!path.exists(), "the socket is the successor's");
    }

    /// Objective: rings with unknown positions wait until the device is this process's; then its driver is asked to
    /// restart them.
    #[test]
    fn unknown_positions() {
        let fault = Fault::new().unwrap();
        let backend = seats();
        let device = Instance::new(&CONFIG, &backend, &fault).unwrap();
        let said = serde_json::from_value(json!({"seen": 0, "rings": "unknown"})).unwrap();
        let connection = OwnedFd::from(UnixStream::pair().unwrap().0);
        let GuestState { memory, bells, .. } = (*say(&connection, &device)).unwrap();
        let memory = memory.take().unwrap();
        let map = netvale_mem::Mapping::map(memory.as_fd(), 4096).unwrap();
        let words = netvale_mem::words::Words::new(&Arc::new(map), 0, 1024).unwrap();
        let status = || (0..1024).map(|at| words.load(at)).collect::<Vec<_>>();
        let before = status();
        let mut next =
            Instance::restore(&CONFIG, &seats(), (memory, Fd::take_all(bells).unwrap()), said, &fault).unwrap();
        assert!(status() == before && !device.vectors()[2].drain());
        next.go_on();
        assert!(status() != before && device.vectors()[2].drain());
        drop((next, device));
    }
}
