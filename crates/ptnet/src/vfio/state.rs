//! Both devices go on in another process, with the hypervisor that is connected to them.

use std::sync::Arc;

use netvale_fdio::state::{BadState, Fd};
use netvale_mem::fault::Fault;
use netvale_port::listener::{Listener, Site};
use netvale_port::service::{AskedToPause, Paused, Service, State};
use netvale_vfio_user::kept::{ClientState, News, PageState};
use netvale_vfio_user::session::Session;
use serde::{Deserialize, Serialize};

use super::{Came, Devices, Known, MEMORY, Said, known, memory_server, ptnet_server};
use crate::backend::Backend;
use crate::guest::{Guest, THREAD};
use crate::header::Config;
use crate::machine::{Machine, MemoryState};
use crate::published::{MemoryDevice, PtnetDevice, Registers};

/// What both devices say of themselves.
#[derive(Serialize, Deserialize)]
pub struct DevicesState {
    /// Whether this was noted for the case that the process is killed.
    #[serde(default)]
    was_killed: bool,
    /// The machine's memory.
    memory: Option<MemoryState>,
    ptnet: DeviceState<Guest>,
    shown: DeviceState<()>,
}

/// A device. Its registers are `None` if nobody can change them.
#[derive(Serialize, Deserialize)]
struct DeviceState<D> {
    listener: Fd,
    service: State<D>,
    page: Option<PageState>,
    client: Option<ClientState<Option<Registers>>>,
}

/// The service is held up by its peer.
fn held_up() -> std::io::Error {
    std::io::Error::other("its guest holds it up: try again")
}

impl Devices {
    /// Asks the control threads to pause, which [`Devices::save_parked`] then waits for.
    pub(crate) fn ask_to_pause(&self) -> [AskedToPause; 2] {
        [self.ptnet.ask_to_pause(), self.memory.ask_to_pause()]
    }

    /// Has the control threads pause until the last result is dropped, and says what another process must know.
    pub(crate) fn save_parked(&self) -> std::io::Result<(DevicesState, [Paused; 2])> {
        let mut paused = [self.ptnet.pause().ok_or_else(held_up)?, self.memory.pause().ok_or_else(held_up)?];
        let pages = self.kept.each_ref().map(|kept| kept.as_ref().map(|kept| kept.page_state()));
        let [page, shown_page] = pages;
        let [client, shown] = paused.each_mut().map(|paused| paused.take::<Said>().transpose());
        let state = DevicesState {
            was_killed: false,
            memory: self.machine.save()?,
            ptnet: self.device(&self.ptnet, 0, page, client?),
            shown: self.device(&self.memory, 1, shown_page, shown?),
        };
        Ok((state, paused))
    }

    fn device<D: Clone + Default + Send + 'static>(
        &self,
        service: &Service<D>,
        which: usize,
        page: Option<PageState>,
        client: Option<ClientState<Option<Registers>>>,
    ) -> DeviceState<D> {
        DeviceState { listener: Fd::shared(&self.listeners[which]), service: service.state(), page, client }
    }

    /// What another process must know to go on after this one was killed; `None` if nobody keeps it.
    pub(crate) fn save(&self) -> std::io::Result<Option<DevicesState>> {
        let [Some(ptnet), Some(shown)] = &self.kept else { return Ok(None) };
        let (page, client) = ptnet.state();
        let (shown_page, shown) = shown.state();
        let mut ptnet = self.device(&self.ptnet, 0, Some(page), client.filter(|client| client.device.is_some()));
        let mut shown = self.device(&self.memory, 1, Some(shown_page), shown);
        ptnet.service = ptnet.service.with(ptnet.client.is_some());
        shown.service = shown.service.with(shown.client.is_some());
        Ok(Some(DevicesState { was_killed: true, memory: self.machine.save()?, ptnet, shown }))
    }

    /// What was given out last is kept.
    pub(crate) fn is_stored(&self) {
        self.kept.iter().flatten().for_each(|kept| kept.is_stored());
    }

    /// Restores devices of another process. Their threads wait until the last result is dropped; until then nothing is
    /// rung, sent, or written to the guest. After a process that was killed, a guest that cannot be continued is
    /// disconnected.
    pub(crate) fn restore(
        site: &Site,
        config: Config,
        backend: Arc<dyn Backend>,
        news: Option<&News>,
        state: DevicesState,
    ) -> Result<(Devices, [Paused; 2]), BadState> {
        let was_killed = state.was_killed;
        let listeners = [state.ptnet.listener.clone(), state.shown.listener.clone()];
        let mut told = state.ptnet.service.clone();
        let mut told_shown = state.shown.service.clone();
        let Restored { kept, machine, device, shown } = match Restored::of(&config, &backend, news, state) {
            Err(why) if was_killed => {
                backend.empty().map_err(BadState::new)?;
                told = State { connections: told.connections, last_error: Some(why.to_string()), ..State::default() };
                told_shown = State { connections: told_shown.connections, ..State::default() };
                Restored { kept: [known(None, news)?, known(None, news)?], ..Restored::default() }
            }
            found => found?,
        };
        let beside = site.beside(MEMORY);
        let [ptnet, memory] = listeners;
        let (ptnet, ptnet_file) = Listener::restore(ptnet.take()?, site)?;
        let (memory, memory_file) = Listener::restore(memory.take()?, &beside)?;
        let listeners = [Arc::new(ptnet), Arc::new(memory)];
        let server = memory_server(&listeners[1], config, &machine, kept[1].clone(), shown);
        let at = beside.path().display();
        let (memory, held_memory) = Service::restore(THREAD, at, Some(memory_file), server, told_shown)?;
        let server = ptnet_server(&listeners[0], config, &machine, backend, kept[0].clone(), device);
        let (ptnet, held) = Service::restore(THREAD, site.path().display(), Some(ptnet_file), server, told)?;
        Ok((Devices { ptnet, memory, listeners, machine, kept }, [held, held_memory]))
    }
}

/// What is known of both devices, the machine, and what is connected.
#[derive(Default)]
struct Restored {
    kept: [Option<Arc<Known>>; 2],
    machine: Arc<Machine>,
    device: Option<Came<PtnetDevice>>,
    shown: Option<Came<MemoryDevice>>,
}

impl Restored {
    /// The devices of another process.
    fn of(
        config: &Config,
        backend: &Arc<dyn Backend>,
        news: Option<&News>,
        state: DevicesState,
    ) -> Result<Restored, BadState> {
        let DevicesState { was_killed, memory, ptnet, shown } = state;
        let page = |page: Option<PageState>| -> Result<_, BadState> {
            Ok(known(page.map(|page| page.restore(0, was_killed)).transpose()?, news)?)
        };
        let kept = [page(ptnet.page)?, page(shown.page)?];
        let machine = memory.map(|memory| Machine::restore(config, memory)).transpose()?.unwrap_or_default();
        let machine = Arc::new(machine);
        let device = ptnet.client.map(|client| {
            let registers = client.device.clone().ok_or_else(|| BadState::new("its registers are missing"))?;
            came(kept[0].as_deref(), client, was_killed, |fault, session| {
                let device = PtnetDevice::continued(config, &machine, backend, fault).map_err(BadState::new)?;
                let mut session = Session::restore(device, PtnetDevice::vectors(config), fault, session)?;
                let (device, host) = session.device();
                device.go_on(host, &registers).map_err(|e| BadState::new(e).of("its rings"))?;
                Ok(session)
            })
        });
        let device = device.transpose()?;
        let shown = shown.client.map(|client| {
            came(kept[1].as_deref(), client, was_killed, |fault, session| {
                let device = MemoryDevice::new(config, &machine).map_err(BadState::new)?;
                Session::restore(device, MemoryDevice::VECTORS, fault, session)
            })
        });
        let shown = shown.transpose()?;
        Ok(Restored { kept, machine, device, shown })
    }
}

/// A hypervisor that another process served; `make` makes its device.
fn came<D: netvale_vfio_user::Device>(
    kept: Option<&Known>,
    client: ClientState<Option<Registers>>,
    was_killed: bool,
    make: impl FnOnce(&Fault, netvale_vfio_user::state::SessionState) -> Result<Session<D>, BadState>,
) -> Result<Came<D>, BadState> {
    kept.into_iter().for_each(|kept| kept.has(&client));
    let fault = Fault::new()?;
    let session = make(&fault, client.session)?;
    let session = if was_killed { session.after_a_kill() } else { session };
    Ok(Came::Continued(client.connection.take()?, Box::new(session), fault))
}
