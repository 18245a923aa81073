//! Both devices go on in another process, with the hypervisor that is connected to them.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use netvale_mem::fault::Fault;
use netvale_port::listener::{Listener, Site};
use netvale_port::service::{AskedToPause, Paused, Service, State};
use netvale_vfio_user::continued::SessionState;
use netvale_vfio_user::kept::News;
use netvale_vfio_user::page::Page;
use netvale_vfio_user::session::Session;
use serde::{Deserialize, Serialize};

use super::{Came, Devices, Known, MEMORY, Said, known, memory_server, ptnet_server};
use crate::backend::Backend;
use crate::guest::{Guest, THREAD};
use crate::header::Config;
use crate::machine::Machine;
use crate::published::{MemoryDevice, PtnetDevice, Registers};

/// What both devices say of themselves. Descriptors: the listening sockets, the pages that are kept, the machine's
/// memory, if it has any, then, for each device that is connected, its connection and those of its session.
#[derive(Serialize, Deserialize)]
pub struct DevicesState {
    /// Whether each has a page, and how often it has changed.
    #[serde(default)]
    pages: Option<[u64; 2]>,
    /// Whether this was noted for the case that the process is killed.
    #[serde(default)]
    killed: bool,
    /// Number of the memory.
    memory: Option<u16>,
    /// The sessions, and the number of their descriptors.
    ptnet: (State<Guest>, Option<(SessionState, Registers, usize)>),
    shown: (State<()>, Option<(SessionState, usize)>),
}

/// The service is held up by its peer.
fn held_up() -> std::io::Error {
    std::io::Error::other("its guest holds it up: try again")
}

impl Devices {
    /// Asks the control threads to pause, which [`Devices::hand_over`] then waits for.
    pub(crate) fn ask_to_pause(&self) -> [AskedToPause; 2] {
        [self.ptnet.ask_to_pause(), self.memory.ask_to_pause()]
    }

    /// Has the control threads pause until the last result is dropped, and says what another process must know.
    pub(crate) fn hand_over(&self) -> std::io::Result<(DevicesState, Vec<OwnedFd>, [Paused; 2])> {
        let mut paused = [self.ptnet.pause().ok_or_else(held_up)?, self.memory.pause().ok_or_else(held_up)?];
        let mut fds = vec![self.listeners[0].to_fd()?, self.listeners[1].to_fd()?];
        let mut pages = None;
        if let [Some(ptnet), Some(shown)] = &self.kept {
            pages = Some([ptnet.changes(), shown.changes()]);
            for kept in [ptnet, shown] {
                fds.push(kept.page().fd().try_clone_to_owned()?);
            }
        }
        let number = self.add_memory(&mut fds)?;
        let [ptnet, shown] = &mut paused;
        let mut said = |paused: &mut Paused| -> std::io::Result<Option<(SessionState, Option<Registers>, usize)>> {
            let Some(said) = paused.take::<Said>() else { return Ok(None) };
            let (session, registers, more) = said?;
            let count = more.len();
            fds.extend(more);
            Ok(Some((session, registers, count)))
        };
        let device = said(ptnet)?.and_then(|(session, registers, count)| Some((session, registers?, count)));
        let shown = said(shown)?.map(|(session, _, count)| (session, count));
        let (ptnet, shown) = ((self.ptnet.state(), device), (self.memory.state(), shown));
        Ok((DevicesState { pages, killed: false, memory: number, ptnet, shown }, fds, paused))
    }

    /// Adds the memory's descriptor. Returns its number.
    fn add_memory(&self, fds: &mut Vec<OwnedFd>) -> std::io::Result<Option<u16>> {
        let memory = self.machine.state()?;
        let number = memory.as_ref().map(|(number, _)| *number);
        fds.extend(memory.map(|(_, fd)| fd));
        Ok(number)
    }

    /// What another process must know to go on after this one was killed; `None` if nobody keeps it.
    pub(crate) fn kept(&self) -> std::io::Result<Option<(DevicesState, Vec<OwnedFd>)>> {
        let [Some(ptnet), Some(shown)] = &self.kept else { return Ok(None) };
        let (told, told_shown) = (self.ptnet.state(), self.memory.state());
        let ((changes, device, mut of_device), (shown_changes, shown, mut of_shown)) = (ptnet.state()?, shown.state()?);
        let mut fds = vec![self.listeners[0].to_fd()?, self.listeners[1].to_fd()?];
        fds.extend([of_device.remove(0), of_shown.remove(0)]);
        let memory = self.add_memory(&mut fds)?;
        let counts = [of_device.len(), of_shown.len()];
        fds.extend(of_device.into_iter().chain(of_shown));
        let device = device.and_then(|(session, registers)| Some((session, registers?, counts[0])));
        let shown = shown.map(|(session, _)| (session, counts[1]));
        let (told, told_shown) = (told.with(device.is_some()), told_shown.with(shown.is_some()));
        let pages = Some([changes, shown_changes]);
        let state = DevicesState { pages, killed: true, memory, ptnet: (told, device), shown: (told_shown, shown) };
        Ok(Some((state, fds)))
    }

    /// What was given out last is kept.
    pub(crate) fn is_stored(&self) {
        self.kept.iter().flatten().for_each(|kept| kept.is_stored());
    }

    /// Continues devices of another process. Their threads wait until the last result is dropped; until then nothing is
    /// rung, sent, or written to the guest. After a process that was killed, a guest that cannot be continued is
    /// disconnected.
    pub(crate) fn continued(
        site: &Site,
        config: Config,
        backend: Arc<dyn Backend>,
        news: Option<&News>,
        state: DevicesState,
        fds: Vec<OwnedFd>,
    ) -> Result<(Devices, [Paused; 2]), String> {
        let (mut fds, killed) = (fds.into_iter(), state.killed);
        let missing = || "descriptors are missing".to_owned();
        let listening = [fds.next().ok_or_else(missing)?, fds.next().ok_or_else(missing)?];
        let (mut told, mut told_shown) = (state.ptnet.0.clone(), state.shown.0.clone());
        let (kept, machine, device, shown) = match went_on(&config, &backend, news, state, fds) {
            Err(why) if killed => {
                backend.empty().map_err(text)?;
                told = State { connections: told.connections, last_error: Some(why), ..State::default() };
                told_shown = State { connections: told_shown.connections, ..State::default() };
                (pages(None, false, &mut std::iter::empty(), news)?, Arc::default(), None, None)
            }
            found => found?,
        };
        let ([ptnet, memory], beside) = (listening, site.beside(MEMORY));
        let (ptnet, ptnet_file) = Listener::continued(ptnet, site).map_err(text)?;
        let (memory, memory_file) = Listener::continued(memory, &beside).map_err(text)?;
        let listeners = [Arc::new(ptnet), Arc::new(memory)];
        let server = memory_server(&listeners[1], config, &machine, kept[1].clone(), shown);
        let at = beside.path().display();
        let (memory, held_memory) =
            Service::continued(THREAD, at, Some(memory_file), server, told_shown).map_err(text)?;
        let server = ptnet_server(&listeners[0], config, &machine, backend, kept[0].clone(), device);
        let (ptnet, held) =
            Service::continued(THREAD, site.path().display(), Some(ptnet_file), server, told).map_err(text)?;
        Ok((Devices { ptnet, memory, listeners, machine, kept }, [held, held_memory]))
    }
}

/// What is known of both devices, the machine, and what is connected.
type WentOn = ([Option<Arc<Known>>; 2], Arc<Machine>, Option<Came<PtnetDevice>>, Option<Came<MemoryDevice>>);

/// The devices of another process.
fn went_on(
    config: &Config,
    backend: &Arc<dyn Backend>,
    news: Option<&News>,
    state: DevicesState,
    mut fds: impl Iterator<Item = OwnedFd>,
) -> Result<WentOn, String> {
    let (missing, killed) = (|| "descriptors are missing".to_owned(), state.killed);
    let kept = pages(state.pages, killed, &mut fds, news)?;
    let machine = match state.memory {
        Some(number) => Machine::continued(config, number, fds.next().ok_or_else(missing)?).map_err(text)?,
        None => Machine::default(),
    };
    let machine = Arc::new(machine);
    let device = state.ptnet.1.map(|(session, registers, count)| {
        let fds = fds.by_ref().take(count).collect();
        came(fds, kept[0].as_deref(), (session, Some(registers.clone())), |fault, session, fds| {
            let device = PtnetDevice::continued(config, &machine, backend, fault).map_err(text)?;
            let session = Session::continued(device, PtnetDevice::vectors(config), fault, session, fds);
            let mut session = session.map_err(text)?;
            let (device, host) = session.device();
            device.go_on(host, &registers).map_err(|e| format!("its rings: {e}"))?;
            Ok(if killed { session.after_a_kill() } else { session })
        })
    });
    let device = device.transpose()?;
    let shown = state.shown.1.map(|(session, count)| {
        came(fds.by_ref().take(count).collect(), kept[1].as_deref(), (session, None), |fault, session, fds| {
            let device = MemoryDevice::new(config, &machine).map_err(text)?;
            let session = Session::continued(device, MemoryDevice::VECTORS, fault, session, fds).map_err(text)?;
            Ok(if killed { session.after_a_kill() } else { session })
        })
    });
    Ok((kept, machine, device, shown.transpose()?))
}

/// What is known of both devices, with their pages or new ones.
fn pages(
    changes: Option<[u64; 2]>,
    killed: bool,
    fds: &mut impl Iterator<Item = OwnedFd>,
    news: Option<&News>,
) -> Result<[Option<Arc<Known>>; 2], String> {
    let mut next = |which: usize| {
        let mut page = None;
        if let Some(changes) = changes {
            let found = Page::continued(fds.next().ok_or("descriptors are missing")?, 0).map_err(text)?;
            if killed {
                Known::check(&found, changes[which]).map_err(text)?;
            }
            page = Some(found);
        }
        known(page, changes.map_or(0, |changes| changes[which]), news).map_err(text)
    };
    Ok([next(0)?, next(1)?])
}

fn text(e: impl std::fmt::Display) -> String {
    e.to_string()
}

/// A hypervisor whose first descriptor is its connection; `make` gets the others.
fn came<D>(
    mut fds: Vec<OwnedFd>,
    kept: Option<&Known>,
    (state, registers): (SessionState, Option<Registers>),
    make: impl FnOnce(&Fault, SessionState, Vec<OwnedFd>) -> Result<Session<D>, String>,
) -> Result<Came<D>, String> {
    if fds.is_empty() {
        return Err("a connection is missing".to_owned());
    }
    let (connection, fault) = (fds.remove(0), Fault::new().map_err(text)?);
    if let Some(kept) = kept {
        kept.has(&state, registers, &connection, &fds).map_err(text)?;
    }
    let session = make(&fault, state, fds)?;
    Ok(Came::Continued(connection, Box::new(session), fault))
}
