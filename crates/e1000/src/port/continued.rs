//! A port that goes on in another process, with the guest that is connected to it.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use netvale_mem::fault::Fault;
use netvale_port::listener::Listener;
use netvale_port::service::{AskedToPause, Paused, Service, State};
use netvale_vfio_user::continued::SessionState;
use netvale_vfio_user::kept::Kept;
use netvale_vfio_user::page::Page;
use netvale_vfio_user::session::Session;
use serde::{Deserialize, Serialize};

use super::{Connected, E1000Options, E1000Port, Guest, Queues, Server, THREAD, known, queues};
use crate::core::Shared;
use crate::device::{Card, E1000};
use crate::kept::{CARD_WORDS, CardPage};
use crate::state::{CoreState, VERSION};
use crate::vfio::E1000Device;

/// What a port says of itself. Descriptors: the listening socket, the page if there is one, then, if there is a guest,
/// its connection and those of its session.
#[derive(Serialize, Deserialize)]
pub struct PortState {
    version: u32,
    /// The card; `None`: this was noted for the case that the process is killed, and the card is in the page.
    core: Option<CoreState>,
    /// How often what is kept has changed; `None`: there is no page.
    #[serde(default)]
    page: Option<u64>,
    /// Registers read and written, interrupts.
    crossings: [u64; 3],
    service: State<()>,
    /// The guest's session, and the register that it has chosen by port.
    guest: Option<(SessionState, u32)>,
}

/// What the control thread says of its guest.
pub(super) type Said = std::io::Result<(SessionState, u32, Vec<OwnedFd>)>;

/// What a control thread says of the guest that it serves.
pub(super) fn say(connection: &OwnedFd, session: &mut Guest) -> Said {
    let (state, mut fds) = session.state()?;
    fds.insert(0, connection.try_clone()?);
    Ok((state, session.device().0.address(), fds))
}

impl E1000Port {
    /// Asks the control thread to pause, which [`E1000Port::hand_over`] then waits for.
    pub fn ask_to_pause(&self) -> AskedToPause {
        self.service.ask_to_pause()
    }

    /// Has the control thread pause until the last result is dropped, and says what another process must know to
    /// continue the port. Its workers pause already.
    ///
    /// # Errors
    /// A sentence that says why it cannot be continued now.
    pub fn hand_over(&self) -> std::io::Result<(PortState, Vec<OwnedFd>, Paused)> {
        let held_up = || std::io::Error::other("its guest holds it up: try again");
        let mut paused = self.service.pause().ok_or_else(held_up)?;
        let mut fds = vec![self.listener.to_fd()?];
        let page = self.kept.as_ref().map(|kept| kept.page().fd().try_clone_to_owned()).transpose()?;
        fds.extend(page);
        let mut guest = None;
        if let Some(said) = paused.take::<Said>() {
            let (state, address, more) = said?;
            guest = Some((state, address));
            fds.extend(more);
        }
        let crossings = self.crossings();
        let counts = [&crossings.reads, &crossings.writes, &*crossings.interrupts].map(|n| n.load(Ordering::Relaxed));
        let core = Some(self.shared.state().map_err(|_| held_up())?);
        let (page, service) = (self.kept.as_ref().map(|kept| kept.changes()), self.service.state());
        Ok((PortState { version: VERSION, core, page, crossings: counts, service, guest }, fds, paused))
    }

    /// What another process must know to go on after this one was killed; `None` if nobody keeps that. It changes
    /// whenever [`E1000Options::news`] is told.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub fn kept(&self) -> std::io::Result<Option<(PortState, Vec<OwnedFd>)>> {
        let Some(kept) = &self.kept else { return Ok(None) };
        let told = self.service.state();
        let (changes, guest, mut fds) = kept.state()?;
        fds.insert(0, self.listener.to_fd()?);
        let service = told.with(guest.is_some());
        let guest = guest.map(|(session, ())| (session, 0));
        let state = PortState { version: VERSION, core: None, page: Some(changes), crossings: [0; 3], service, guest };
        Ok(Some((state, fds)))
    }

    /// What [`E1000Port::kept`] returned last is kept.
    pub fn is_stored(&self) {
        self.kept.iter().for_each(|kept| kept.is_stored());
    }

    /// Continues a port of another process. Its thread waits until the last result is dropped; until then nothing is
    /// rung, sent, or written to the guest. After a process that was killed, a guest that cannot be continued is
    /// disconnected.
    ///
    /// # Errors
    /// A sentence that says what is not as it should be.
    pub fn continued(
        options: &E1000Options,
        state: PortState,
        fds: Vec<OwnedFd>,
    ) -> Result<(E1000Port, Queues, Paused), String> {
        if state.version != VERSION {
            return Err(format!("version {} of a card's state, not {VERSION}", state.version));
        }
        let (mut fds, mut told) = (fds.into_iter(), state.service.clone());
        let (killed, changes) = (state.core.is_none(), state.page.unwrap_or_default());
        let listener = fds.next().ok_or("the listening socket is missing")?;
        let ((shared, kept), guest) = match went_on(options, state, fds) {
            Err(why) if killed => {
                told = State { connections: told.connections, last_error: Some(why), ..State::default() };
                (anew(options, None, changes)?, None)
            }
            found => found?,
        };
        let (listener, file) = Listener::continued(listener, &options.site).map_err(text)?;
        let listener = Arc::new(listener);
        let server = Server {
            listener: Arc::clone(&listener),
            card: options.card,
            shared: Arc::clone(&shared),
            kept: kept.clone(),
            first: guest,
        };
        let at = options.site.path().display();
        let (service, paused) = Service::continued(THREAD, at, Some(file), server, told).map_err(text)?;
        let queues = queues(&shared);
        Ok((E1000Port { options: options.clone(), shared, service, listener, kept }, queues, paused))
    }
}

/// A card, and what is known of its guest if somebody keeps that.
type Known = (Arc<Shared>, Option<Arc<Kept<()>>>);

/// A card without a guest: as it was when it was made.
fn anew(options: &E1000Options, page: Option<Page>, changes: u64) -> Result<Known, String> {
    let shared = Shared::new(E1000::new(options.card)).map_err(text)?;
    let kept = known(&shared, page, false, changes, options.news.as_ref()).map_err(text)?;
    Ok((shared, kept))
}

/// The card of another process, and its guest.
fn went_on(
    options: &E1000Options,
    state: PortState,
    mut fds: impl Iterator<Item = OwnedFd>,
) -> Result<(Known, Option<Connected>), String> {
    let mut next = |what: &str| fds.next().ok_or_else(|| format!("{what} is missing"));
    let page = state.page.is_some().then(|| next("the page")).transpose()?;
    let page = page.map(|fd| Page::continued(fd, CARD_WORDS)).transpose().map_err(text)?;
    let connection = state.guest.is_some().then(|| next("the guest's connection")).transpose()?;
    let (changes, killed) = (state.page.unwrap_or_default(), state.core.is_none());
    let core = match (state.core, &page) {
        (Some(core), _) => core,
        (None, None) => return Err("the page is missing".to_owned()),
        (None, Some(_)) if connection.is_none() => return Ok((anew(options, page, changes)?, None)),
        (None, Some(page)) => left(page, &options.card, changes)?,
    };
    let has_block = (!killed).then_some(core.has_block);
    let address = page.as_ref().filter(|_| killed).map(CardPage::address);
    let shared = Shared::continued(&options.card, core, state.crossings);
    let shared = shared.map_err(|e| format!("the card's registers: {e}"))?;
    let kept = known(&shared, page, killed, changes, options.news.as_ref()).map_err(text)?;
    let (Some(connection), Some((session, chosen))) = (connection, state.guest) else {
        return Ok(((shared, kept), None));
    };
    let rest: Vec<OwnedFd> = fds.collect();
    kept.iter().try_for_each(|kept| kept.has(&session, (), &connection, &rest)).map_err(text)?;
    let fault = Fault::new().map_err(text)?;
    let device = E1000Device::new(Arc::clone(&shared), options.card.subsystem);
    let session = Session::continued(device, E1000Device::vectors(), &fault, session, rest).map_err(text)?;
    let mut session = if killed { session.after_a_kill() } else { session };
    let (device, host) = session.device();
    if !device.go_on(host, address.unwrap_or(chosen), has_block).map_err(text)? {
        return Err("the status block is outside of the guest's memory".to_owned());
    }
    Ok(((shared, kept), Some(Connected::Continued(connection, Box::new(session), fault))))
}

/// The card that a process has left which was killed after that many changes had been kept.
fn left(page: &Page, card: &Card, changes: u64) -> Result<CoreState, String> {
    Kept::<()>::check(page, changes).map_err(text)?;
    CardPage::core(page, card).map_err(|why| format!("the card's registers: {why}"))
}

fn text(e: impl std::fmt::Display) -> String {
    e.to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::driver::remote::Guest as Driver;
    use crate::driver::{DriverOptions, Registers};
    use crate::regs::{STATUS, STATUS_LU};

    fn copies(fds: &[OwnedFd]) -> Vec<OwnedFd> {
        fds.iter().map(|fd| fd.try_clone().unwrap()).collect()
    }

    /// Objective: what cannot have been a guest's is refused, by its name; meanwhile, and afterwards, the guest is
    /// served by who has it; what is right goes on.
    #[test]
    fn forged() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let card = Card { mac: [2, 0, 0, 0, 0, 1], subsystem: 0, forced_interval: None };
        let options = E1000Options { site: path.clone().into(), card, news: None };
        let (port, _queues) = E1000Port::new(&options).unwrap();
        let guest = Driver::new(&path, DriverOptions::default()).unwrap();
        assert!(guest.has_block);
        let (state, fds, paused) = port.hand_over().unwrap();
        let said = serde_json::to_value(&state).unwrap();
        let go_on = |said: &Value, fds: Vec<OwnedFd>| -> Result<_, String> {
            let state = serde_json::from_value(said.clone()).map_err(|e| e.to_string())?;
            E1000Port::continued(&options, state, fds)
        };
        let forgeries = [
            ("/version", json!(2), "version 2"),
            ("/core/now", json!(u64::MAX), "the card's registers"),
            ("/core/e1000/card/mac/0", json!(4), "the card's registers"),
            ("/core/e1000/eeprom/serial", json!({"Sending": [0, 99]}), "the card's registers"),
            ("/core/e1000/causes/mask", json!(u32::MAX), "the card's registers"),
            ("/core/e1000/filter/vlans", json!([1, 2]), "another number of words"),
            ("/core/e1000/csb", json!(64), "the status block"),
            ("/guest/0/config", json!([]), "configuration space"),
            ("/guest/0/windows/0/place/size", json!(1u64 << 40), "the guest's memory"),
            ("/guest/0/windows/0/file", json!(7), "the guest's memory"),
            ("/guest/0/vectors/0/1", json!(1), "the interrupt 1 of kind 1"),
            ("/guest/0/unread_fds", json!([[0, 1]]), "descriptors"),
            ("/guest/0/unsent_fds", json!(usize::MAX), "descriptors"),
        ];
        for (at, value, why) in forgeries {
            let mut forged = said.clone();
            *forged.pointer_mut(at).unwrap() = value;
            let refused = go_on(&forged, copies(&fds)).map(drop).expect_err(at);
            assert!(refused.contains(why), "{at}: {refused}");
        }
        for (i, why) in ["is missing", "is missing", "the guest's memory", "descriptors"].into_iter().enumerate() {
            let refused = go_on(&said, copies(&fds[..i])).map(drop).unwrap_err();
            assert!(refused.contains(why), "{i} descriptors: {refused}");
        }
        let mut others = copies(&fds);
        others[3] = others[0].try_clone().unwrap();
        assert!(go_on(&said, others).map(drop).unwrap_err().contains("the interrupt"), "no eventfd");
        // The one that has it goes on.
        drop(paused);
        assert_eq!(guest.remote.read(STATUS) & STATUS_LU, STATUS_LU);
        let (state, fds, paused) = port.hand_over().unwrap();
        let (next, _queues, held) = go_on(&serde_json::to_value(state).unwrap(), fds).unwrap();
        std::mem::forget((port, paused));
        drop(held);
        assert_eq!(guest.remote.read(STATUS) & STATUS_LU, STATUS_LU);
        assert!(next.state().connected && next.state().connections == 1);
        drop(next);
        assert!(!path.exists(), "the socket is the successor's");
    }
}
