//! A port that goes on in another process, with the guest that is connected to it.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use netvale_mem::fault::Fault;
use netvale_port::listener::Listener;
use netvale_port::service::{AskedToPause, Paused, Service, State};
use serde::{Deserialize, Serialize};

use super::{Connection, PtnetOptions, PtnetPort, Server, Serving, Transport};
use crate::backend::Backend;
use crate::guest::{Guest, THREAD};
use crate::instance::{Instance, InstanceState};
use crate::keep::Keeper;
use crate::vfio::{Devices, DevicesState};

/// Version of what a port says of itself.
const VERSION: u32 = 1;

/// What a port says of itself.
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
    /// By ivshmem. Descriptors: the listening socket, then, if there is a guest, its connection, its memory, its
    /// doorbells and its vectors.
    Ivshmem(State<Guest>, Option<InstanceState>),
    /// By vfio-user, with the descriptors of both devices.
    VfioUser(Box<DevicesState>),
}

/// What the control thread says of its guest, by ivshmem; its descriptors begin with the connection.
type Said = std::io::Result<(InstanceState, Vec<OwnedFd>)>;

/// What a control thread says of the guest that it serves.
pub(super) fn say(connection: &OwnedFd, device: &Instance) -> Box<Said> {
    let fds = || -> std::io::Result<Vec<OwnedFd>> {
        let memory = device.memory().ok_or(rustix::io::Errno::BADF)?;
        let bells = device.doorbells().iter().chain(device.vectors()).map(AsFd::as_fd);
        [connection.as_fd(), memory].into_iter().chain(bells).map(|fd| fd.try_clone_to_owned()).collect()
    };
    Box::new(fds().map(|fds| (device.state(), fds)))
}

impl PtnetPort {
    /// Asks the control threads to pause, which [`PtnetPort::hand_over`] then waits for.
    pub fn ask_to_pause(&self) -> Vec<AskedToPause> {
        match &self.serving {
            Serving::Ivshmem(service, _) => vec![service.ask_to_pause()],
            Serving::VfioUser(devices) => devices.ask_to_pause().into(),
        }
    }

    /// Has the control threads pause until the last result is dropped, and says what another process must know to
    /// continue the port. Its workers pause already.
    ///
    /// # Errors
    /// A sentence that says why it cannot be continued now.
    pub fn hand_over(&self) -> std::io::Result<(PortState, Vec<OwnedFd>, Vec<Paused>)> {
        let (serving, fds, paused) = match &self.serving {
            Serving::Ivshmem(service, listener) => {
                let held_up = || std::io::Error::other("its guest holds it up: try again");
                let mut paused = service.pause().ok_or_else(held_up)?;
                let (mut fds, mut guest) = (vec![listener.to_fd()?], None);
                if let Some(said) = paused.take::<Said>() {
                    let (state, more) = said?;
                    guest = Some(state);
                    fds.extend(more);
                }
                (ServingState::Ivshmem(service.state(), guest), fds, vec![paused])
            }
            Serving::VfioUser(devices) => {
                let (state, fds, paused) = devices.hand_over()?;
                (ServingState::VfioUser(Box::new(state)), fds, paused.into())
            }
        };
        let c = &self.options.config;
        let kicks = |tx, rings: u32| (0..rings as usize).map(|i| self.backend.kicks(tx, i)).collect();
        let kicks = [kicks(true, c.tx_rings), kicks(false, c.rx_rings)];
        Ok((PortState { version: VERSION, serving, kicks }, fds, paused))
    }

    /// What another process must know to go on after this one was killed; `None` if nobody keeps that, and by ivshmem.
    /// It changes whenever [`PtnetOptions::news`] is told.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub fn kept(&self) -> std::io::Result<Option<(PortState, Vec<OwnedFd>)>> {
        let Serving::VfioUser(devices) = &self.serving else { return Ok(None) };
        let Some((state, fds)) = devices.kept()? else { return Ok(None) };
        let serving = ServingState::VfioUser(Box::new(state));
        Ok(Some((PortState { version: VERSION, serving, kicks: Default::default() }, fds)))
    }

    /// What [`PtnetPort::kept`] returned last is kept.
    pub fn is_stored(&self) {
        if let Serving::VfioUser(devices) = &self.serving {
            devices.is_stored();
        }
    }

    /// Continues a port of another process; `backend` gets its guest's rings. Its threads wait until the last result is
    /// dropped; until then nothing is rung, sent, or written to the guest.
    ///
    /// # Errors
    /// A sentence that says what is not as it should be.
    pub fn continued(
        options: &PtnetOptions,
        backend: Arc<dyn Backend>,
        keeper: Option<Arc<dyn Keeper>>,
        state: PortState,
        fds: Vec<OwnedFd>,
    ) -> Result<(PtnetPort, Vec<Paused>), String> {
        Self::check(&options.config).map_err(|e| e.to_string())?;
        if state.version != VERSION {
            return Err(format!("version {} of a ptnet port's state, not {VERSION}", state.version));
        }
        for (tx, kicks) in [(true, &state.kicks[0]), (false, &state.kicks[1])] {
            kicks.iter().enumerate().for_each(|(ring, kicks)| backend.add_kicks(tx, ring, *kicks));
        }
        let behind = Arc::clone(&backend);
        let (serving, paused) = match (state.serving, options.transport) {
            (ServingState::Ivshmem(told, guest), Transport::Ivshmem) => {
                let (serving, paused) = ivshmem(options, behind, keeper.clone(), told, guest, fds)?;
                (serving, vec![paused])
            }
            (ServingState::VfioUser(state), Transport::VfioUser) => {
                let (devices, paused) =
                    Devices::continued(&options.site, options.config, behind, options.news.as_ref(), *state, fds)?;
                (Serving::VfioUser(Box::new(devices)), paused.into())
            }
            _ => return Err("another transport".to_owned()),
        };
        Ok((PtnetPort { serving, backend, options: options.clone(), keeper }, paused))
    }
}

fn ivshmem(
    options: &PtnetOptions,
    backend: Arc<dyn Backend>,
    keeper: Option<Arc<dyn Keeper>>,
    told: State<Guest>,
    guest: Option<InstanceState>,
    fds: Vec<OwnedFd>,
) -> Result<(Serving, Paused), String> {
    let mut fds = fds.into_iter();
    let mut next = |what: &str| fds.next().ok_or_else(|| format!("{what} is missing"));
    let listener = next("the listening socket")?;
    let (listener, file) = Listener::continued(listener, &options.site).map_err(|e| e.to_string())?;
    let first = match guest {
        Some(state) => {
            let (connection, memory) = (next("the guest's connection")?, next("the guest's memory")?);
            let fault = Fault::new().map_err(|e| e.to_string())?;
            let device = Instance::continued(&options.config, &backend, (memory, fds.collect()), state, &fault);
            let device = device.map_err(|e| format!("the guest's device: {e}"))?;
            Some(Connection::Continued(connection, Box::new(device), fault))
        }
        None => None,
    };
    let listener = Arc::new(listener);
    let server = Server {
        backend,
        config: options.config,
        place: options.site.place.clone(),
        listener: Arc::clone(&listener),
        first,
        keeper,
    };
    let at = options.site.path().display();
    let (service, paused) = Service::continued(THREAD, at, Some(file), server, told).map_err(|e| e.to_string())?;
    Ok((Serving::Ivshmem(Box::new(service), listener), paused))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    use netvale_mem::fault::Fault;
    use serde_json::{Value, json};

    use super::*;
    use crate::header::Config;
    use crate::port::Survival;
    use crate::seats::Seats;

    fn copies(fds: &[OwnedFd]) -> Vec<OwnedFd> {
        fds.iter().map(|fd| fd.try_clone().unwrap()).collect()
    }

    fn seats() -> Arc<dyn Backend> {
        Arc::new(Seats::new(1, 1).unwrap().0)
    }

    const CONFIG: Config =
        Config { tx_rings: 1, rx_rings: 1, slots: 16, buf_size: 0, vnet_hdr: false, mac: [0; 6], mtu: 1500 };

    /// Objective: what cannot have been a guest's is refused, by its name; the device of who has it stays as it was.
    #[test]
    fn forged() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let options =
            PtnetOptions { site: path.clone().into(), config: CONFIG, transport: Transport::Ivshmem, news: None };
        let port = PtnetPort::new(&options, seats(), Survival::default()).unwrap();
        let _guest = UnixStream::connect(&path).unwrap();
        let until = Instant::now() + Duration::from_secs(30);
        let mut given = port.hand_over().unwrap();
        while given.1.len() == 1 && Instant::now() < until {
            // It goes on in between.
            drop(given);
            given = port.hand_over().unwrap();
        }
        let (state, fds, paused) = given;
        let said = serde_json::to_value(&state).unwrap();
        let go_on = |said: &Value, fds: Vec<OwnedFd>, options: &PtnetOptions| -> Result<_, String> {
            let state = serde_json::from_value(said.clone()).map_err(|e| e.to_string())?;
            PtnetPort::continued(options, seats(), None, state, fds)
        };
        let running =
            |index: u32, hdr_len: u32| json!({"running": {"index": index, "extra_bufs": 0, "hdr_len": hdr_len}});
        let forgeries = [
            ("/version", json!(2), "version 2"),
            ("/serving/ivshmem/1/rings", running(0, 12), "a header"),
            ("/serving/ivshmem/1/rings", running(u32::MAX, 0), "netmap_if"),
            ("/serving/ivshmem/1/rings", json!("walking"), "unknown variant"),
        ];
        for (at, value, why) in forgeries {
            let mut forged = said.clone();
            *forged.pointer_mut(at).unwrap() = value;
            let refused = go_on(&forged, copies(&fds), &options).map(drop).unwrap_err();
            assert!(refused.contains(why), "{at}: {refused}");
        }
        for (count, why) in [(0, "is missing"), (1, "is missing"), (2, "is missing"), (8, "doorbells are missing")] {
            let refused = go_on(&said, copies(&fds[..count]), &options).map(drop).unwrap_err();
            assert!(refused.contains(why), "{count} descriptors: {refused}");
        }
        let mut others = copies(&fds);
        others.swap(2, 3);
        assert!(go_on(&said, others, &options).map(drop).unwrap_err().contains("memory"), "no memory");
        let larger = PtnetOptions { config: Config { slots: 32, ..CONFIG }, ..options.clone() };
        assert!(go_on(&said, copies(&fds), &larger).map(drop).unwrap_err().contains("memory"), "another size");
        assert!(path.exists(), "the socket is whose it was");
        let (next, held) = go_on(&said, fds, &options).unwrap();
        std::mem::forget((port, paused));
        drop(held);
        assert!(next.state().connected && next.state().connections == 1);
        drop(next);
        assert!(!path.exists(), "the socket is the successor's");
    }

    /// Objective: rings of which nobody knows how far they have come wait until the device is this process's; then its
    /// driver is asked to restart them.
    #[test]
    fn unknown_positions() {
        let (fault, backend) = (Fault::new().unwrap(), seats());
        let device = Instance::new(&CONFIG, &backend, &fault).unwrap();
        let said = serde_json::from_value(json!({"seen": 0, "rings": "unknown"})).unwrap();
        let connection = OwnedFd::from(UnixStream::pair().unwrap().0);
        let mut fds = (*say(&connection, &device)).unwrap().1.split_off(1);
        let memory = fds.remove(0);
        let map = netvale_mem::Mapping::map(memory.as_fd(), 4096).unwrap();
        let words = netvale_mem::words::Words::new(&Arc::new(map), 0, 1024).unwrap();
        let status = || (0..1024).map(|at| words.load(at)).collect::<Vec<_>>();
        let before = status();
        let mut next = Instance::continued(&CONFIG, &seats(), (memory, fds), said, &fault).unwrap();
        assert!(status() == before && !device.vectors()[2].drain());
        next.go_on();
        assert!(status() != before && device.vectors()[2].drain());
        drop((next, device));
    }
}
