//! A session that goes on in another process: what a client has set up, checked as if the client set it up again, and
//! what was under way on the connection. A state is broken if no client could have set it up.

use netvale_fdio::state::{BadState, Fd};
use netvale_mem::fault::Fault;
use serde::{Deserialize, Serialize};

use crate::config::SIZE;
use crate::dma::WindowState;
use crate::inbox::Inbox;
use crate::irqs::KINDS;
use crate::session::{Answer, Session};
use crate::wire::{MAX_FDS, MAX_MESSAGE};
use crate::{Device, Host};

/// What another process must know to continue a session.
#[derive(Default, Serialize, Deserialize)]
pub struct SessionState {
    /// Whether the client has said its version.
    greeted: bool,
    /// The guest's memory, and its files, as the windows number them.
    windows: Vec<WindowState>,
    files: Vec<Fd>,
    /// Connected interrupts, by kind and vector, with their eventfds.
    vectors: Vec<(usize, usize, Fd)>,
    /// Whether the guest has masked the pin.
    masked: bool,
    /// Configuration space.
    config: Vec<u8>,
    /// Bytes that came and are not examined yet, and the descriptors that came with the message at which offset.
    unread: Vec<u8>,
    unread_fds: Vec<(usize, Vec<Fd>)>,
    /// Bytes of an answer that the client has not taken yet, and its descriptors.
    unsent: Vec<u8>,
    unsent_fds: Vec<Fd>,
}

/// A client; `T` is what the device itself says.
#[derive(Serialize, Deserialize)]
pub struct ClientState<T> {
    /// Its connection.
    pub connection: Fd,
    /// What it has set up.
    pub session: SessionState,
    /// The device.
    pub device: T,
}

impl<D: Device> Session<D> {
    /// What another process must know to continue it.
    ///
    /// # Errors
    /// When the process is out of descriptors, or the client has more files than are kept.
    pub fn save(&mut self) -> std::io::Result<SessionState> {
        let mut config = vec![0; SIZE];
        self.device.config().read(0, &mut config);
        let Host { dma, irqs } = &self.host;
        let (windows, files) = dma.state()?;
        let vectors = irqs.connected().map(|(kind, vector, bell)| Ok((kind, vector, Fd::copy_of(bell)?)));
        let vectors = vectors.collect::<std::io::Result<_>>()?;
        let (greeted, masked) = (self.greeted, irqs.masked);
        let mut state = SessionState { greeted, windows, files, vectors, masked, config, ..SessionState::default() };
        for (at, fds) in self.inbox.left(&mut state.unread) {
            state.unread_fds.push((at, Fd::copies_of(fds)?));
        }
        if let Some((answer, done)) = &self.unsent {
            state.unsent = answer.bytes.get(*done..).unwrap_or_default().to_vec();
            // They went with the first byte.
            state.unsent_fds = Fd::copies_of(answer.fds.iter().filter(|_| *done == 0))?;
        }
        Ok(state)
    }

    /// Restores a session of another process, with a device that has just been made; nothing is rung, and nothing is
    /// written to the guest. The device must then be told what of the [`Host`] it uses.
    ///
    /// # Errors
    /// [`BadState`] if a client could not have set it up.
    pub fn restore(
        device: D,
        counts: [u32; KINDS],
        fault: &Fault,
        state: SessionState,
    ) -> Result<Session<D>, BadState> {
        let mut session = Session::new(device, counts, fault);
        if state.config.len() != SIZE {
            return Err(BadState::new(format!("configuration space of {} bytes", state.config.len())));
        }
        // Only what a guest can write is changed.
        session.device.config().write(0, &state.config);
        session.greeted = state.greeted;
        let Host { dma, irqs } = &mut session.host;
        let files = Fd::take_all(state.files)?;
        for window in &state.windows {
            let part = || format!("the guest's memory at {:#x}", window.place.address);
            dma.restore(window, &files).map_err(|why| BadState::from(why).of(part()))?;
        }
        for (kind, vector, fd) in state.vectors {
            let part = |why| BadState::from(why).of(format!("the interrupt {vector} of kind {kind}"));
            irqs.connect(kind, vector, fd.take()?).map_err(part)?;
        }
        irqs.masked = state.masked;
        let unread_fds = state.unread_fds.into_iter().map(|(at, fds)| Ok((at, Fd::take_all(fds)?)));
        let unread_fds = unread_fds.collect::<std::io::Result<_>>()?;
        let impossible = || BadState::new("messages that cannot be");
        session.inbox = Inbox::restore(state.unread, unread_fds).ok_or_else(impossible)?;
        if state.unsent.len() > MAX_MESSAGE || state.unsent_fds.len() > MAX_FDS {
            return Err(impossible());
        }
        let answer = Answer { bytes: state.unsent, fds: Fd::take_all(state.unsent_fds)? };
        session.unsent = (!answer.bytes.is_empty()).then_some((answer, 0));
        Ok(session)
    }
}
