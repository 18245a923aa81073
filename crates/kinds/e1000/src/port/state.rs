//! Saved state of a port and its connected guest.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use netvale_fdio::state::{BadState, Fd};
use netvale_mem::fault::Fault;
use netvale_port::listener::Listener;
use netvale_port::service::{AskedToPause, KeptState, PausedService, Service, ServiceState};
use netvale_vfio_user::session::DeviceSession;
use netvale_vfio_user::state::ClientState;
use serde::{Deserialize, Serialize};

use super::{CardClient, CardServer, CardSession, E1000Options, E1000Port, E1000Queues, THREAD, queues};
use crate::core::SharedCore;
use crate::device::E1000;
use crate::state::{CoreState, VERSION};
use crate::vfio::E1000Device;

/// State of an e1000 port, for a successor.
#[derive(Serialize, Deserialize)]
pub struct E1000State {
    version: u32,
    listener: Fd,
    /// The card; `None` in state that is saved for the case that the process is killed, because the card ends with the
    /// process.
    core: Option<CoreState>,
    /// Numbers of registers read, registers written, and interrupts.
    crossings: [u64; 3],
    service: ServiceState<()>,
    /// The connected guest; `None` if there is none. The device's own state is IOADDR, the register offset that the
    /// guest has selected through the I/O ports.
    guest: Option<ClientState<u32>>,
}

/// The guest's saved state, which a control thread returns when it pauses, or the error of saving it.
pub(super) type CardAnswer = std::io::Result<ClientState<u32>>;

/// Saves the guest that a control thread serves.
pub(super) fn say(connection: &OwnedFd, session: &mut CardSession) -> CardAnswer {
    let connection = Fd::copy_of(connection)?;
    Ok(ClientState { connection, session: session.save()?, device: session.device().0.address() })
}

impl E1000Port {
    /// Asks the control thread to pause; [`E1000Port::save_parked`] waits until the thread has paused.
    pub fn ask_to_pause(&self) -> AskedToPause {
        self.service.ask_to_pause()
    }

    /// Pauses the control thread until the returned [`PausedService`] is dropped, and returns the state for a
    /// successor. The port's workers must already be paused.
    ///
    /// # Errors
    /// The reason why the state cannot be saved now.
    pub fn save_parked(&self) -> std::io::Result<(E1000State, PausedService)> {
        let held_up = || std::io::Error::other("the control thread did not pause within 1 s; try again");
        let mut paused = self.service.pause().ok_or_else(held_up)?;
        let guest = paused.take::<CardAnswer>().transpose()?;
        let crossings = self.crossings();
        let counts = [&crossings.reads, &crossings.writes, &*crossings.interrupts].map(|n| n.load(Ordering::Relaxed));
        let state = E1000State {
            version: VERSION,
            listener: Fd::shared(&self.listener),
            core: Some(self.shared.state().map_err(|_| held_up())?),
            crossings: counts,
            service: self.service.state(),
            guest,
        };
        Ok((state, paused))
    }

    /// State with which another process restores the port if this process is killed; the guest must then connect again.
    /// The state changes whenever the callback of [`E1000Port::on_peer`] is called.
    pub fn save(&self) -> E1000State {
        let listener = Fd::shared(&self.listener);
        let service = self.service.state();
        E1000State { version: VERSION, listener, core: None, crossings: [0; 3], service, guest: None }
    }

    /// Restores another process's port. Its thread waits until the returned [`PausedService`] is dropped; until then,
    /// no doorbell is rung and nothing is sent or written to the guest. If the other process was killed, the card is a
    /// new one.
    ///
    /// # Errors
    /// [`BadState`], which names the inconsistent part.
    pub fn restore(
        options: &E1000Options,
        state: E1000State,
    ) -> Result<(E1000Port, E1000Queues, PausedService), BadState> {
        if state.version != VERSION {
            return Err(BadState::new(format!("version {} of a card's state: expected {VERSION}", state.version)));
        }
        let E1000State { listener, core, crossings, service, guest, .. } = state;
        let (shared, guest, told) = match core {
            Some(core) => {
                let (shared, guest) = restore_card(options, core, crossings, guest)?;
                (shared, guest, service)
            }
            None => (SharedCore::new(E1000::new(options.card))?, None, service.after_a_kill()),
        };
        let (listener, file) = Listener::restore(listener.take()?, &options.site)?;
        let listener = Arc::new(listener);
        let server = CardServer { first: guest, ..CardServer::new(options.card, &listener, &shared) };
        let at = options.site.path().display();
        let (service, paused) = Service::restore(THREAD, at, Some(file), server, told, KeptState::default())?;
        let queues = queues(&shared);
        Ok((E1000Port { options: options.clone(), shared, service, listener }, queues, paused))
    }
}

/// Restores another process's card and guest.
fn restore_card(
    options: &E1000Options,
    core: CoreState,
    crossings: [u64; 3],
    guest: Option<ClientState<u32>>,
) -> Result<(Arc<SharedCore>, Option<CardClient>), BadState> {
    let has_block = core.has_block;
    let shared = SharedCore::continued(&options.card, core, crossings);
    let shared = shared.map_err(|e| BadState::new(e).of("the card's registers"))?;
    let Some(ClientState { connection, session, device: chosen }) = guest else { return Ok((shared, None)) };
    let fault = Fault::new()?;
    let device = E1000Device::new(Arc::clone(&shared), options.card.subsystem);
    let mut session = DeviceSession::restore(device, E1000Device::vectors(), &fault, session)?;
    let (device, host) = session.device();
    if !device.go_on(host, chosen, has_block).map_err(BadState::new)? {
        return Err(BadState::new("the status block is outside of the guest's memory"));
    }
    Ok((shared, Some(CardClient::Continued(connection.take()?, Box::new(session), fault))))
}

#[cfg(test)]
mod tests {
    use netvale_fdio::state;
    use serde_json::{Value, json};

    use super::*;
    use crate::device::Card;
    use crate::driver::remote::SimulatedGuest as Driver;
    use crate::driver::{CardDriverOptions, CardRegisters};
    use crate::regs::{STATUS, STATUS_LU};

    fn copies(fds: &[Fd]) -> Vec<OwnedFd> {
        Fd::take_all(fds.iter().cloned()).unwrap()
    }

    /// Objective: inconsistent state is refused with the name of the wrong part, and the process that has the guest
    /// continues to serve it; valid state is restored.
    #[test]
    fn a_forged_state_is_refused_with_the_wrong_part() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let card = Card { mac: [2, 0, 0, 0, 0, 1], subsystem: 0, forced_interval: None };
        let options = E1000Options { site: path.clone().into(), card };
        let (port, _queues) = E1000Port::new(&options).unwrap();
        let guest = Driver::new(&path, CardDriverOptions::default()).unwrap();
        assert!(guest.has_block);
        let (state, paused) = port.save_parked().unwrap();
        let (said, fds) = state::State::of(&state).unwrap().into_parts();
        let go_on = |said: &Value, fds: Vec<OwnedFd>| -> Result<_, String> {
            let state = state::State::from_parts(said.clone(), fds).read().map_err(|e| e.to_string())?;
            E1000Port::restore(&options, state).map_err(|e| e.to_string())
        };
        let forgeries = [
            ("/version", json!(2), "version 2"),
            ("/core/now", json!(u64::MAX), "the card's registers"),
            ("/core/e1000/card/mac/0", json!(4), "the card's registers"),
            ("/core/e1000/eeprom/serial", json!({"Sending": [0, 99]}), "the card's registers"),
            ("/core/e1000/causes/mask", json!(u32::MAX), "the card's registers"),
            ("/core/e1000/filter/vlans", json!([1, 2]), "another number of words"),
            ("/core/e1000/csb", json!(64), "the status block"),
            ("/guest/session/config", json!([]), "configuration space"),
            ("/guest/session/windows/0/place/size", json!(1u64 << 40), "the guest's memory"),
            ("/guest/session/windows/0/file", json!(7), "the guest's memory"),
            ("/guest/session/vectors/0/1", json!(1), "IRQ index 1, vector 1"),
            ("/guest/session/unread_fds", json!([[0, [1]]]), "named twice"),
            ("/guest/session/unsent_fds", json!([usize::MAX]), "is missing"),
        ];
        for (at, value, why) in forgeries {
            let mut forged = said.clone();
            *forged.pointer_mut(at).unwrap() = value;
            let refused = go_on(&forged, copies(&fds)).map(drop).expect_err(at);
            assert!(refused.contains(why), "{at}: {refused}");
        }
        let mut many = said.clone();
        let beyond = fds.len() + netvale_vfio_user::wire::MAX_FDS + 1;
        many["guest"]["session"]["unsent_fds"] = (fds.len()..beyond).collect();
        let copied = copies(&fds).into_iter().chain((fds.len()..beyond).map(|_| copies(&fds[..1]).remove(0)));
        assert!(go_on(&many, copied.collect()).map(drop).unwrap_err().contains("messages have an impossible size"));
        for count in 0..fds.len() {
            let refused = go_on(&said, copies(&fds[..count])).map(drop).unwrap_err();
            assert!(refused.contains("is missing"), "{count} descriptors: {refused}");
        }
        let mut others = copies(&fds);
        others[3] = others[0].try_clone().unwrap();
        assert!(go_on(&said, others).map(drop).unwrap_err().contains("IRQ index"), "no eventfd");
        // The process that has the guest resumes.
        drop(paused);
        assert_eq!(guest.remote.read(STATUS) & STATUS_LU, STATUS_LU);
        let (state, paused) = port.save_parked().unwrap();
        let (said, fds) = state::State::of(&state).unwrap().into_parts();
        let (next, _queues, held) = go_on(&said, Fd::take_all(fds).unwrap()).unwrap();
        std::mem::forget((port, paused));
        drop(held);
        assert_eq!(guest.remote.read(STATUS) & STATUS_LU, STATUS_LU);
        assert!(next.state().connected && next.state().connections == 1);
        drop(next);
        assert!(!path.exists(), "the successor owns the socket's file");
    }
}
