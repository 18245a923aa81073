//! A session that goes on in another process: what a client has set up, checked as if the client set it up again, and
//! what was under way on the connection. A state is broken if no client could have set it up.

use std::os::fd::OwnedFd;

use netvale_mem::fault::Fault;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::config::SIZE;
use crate::dma::WindowState;
use crate::inbox::Inbox;
use crate::irqs::KINDS;
use crate::session::{Answer, Session};
use crate::wire::{MAX_FDS, MAX_MESSAGE};
use crate::{Device, Host};

/// What another process must know to continue a session, besides its descriptors.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SessionState {
    /// Whether the client has said its version.
    greeted: bool,
    /// The guest's memory. Descriptors: the files, as the windows number them.
    windows: Vec<WindowState>,
    files: usize,
    /// Connected interrupts, by kind and vector. Descriptors: their eventfds.
    vectors: Vec<(usize, usize)>,
    /// Whether the guest has masked the pin.
    masked: bool,
    /// Configuration space.
    config: Vec<u8>,
    /// Bytes that came and are not examined yet, and how many descriptors came with the message at which offset.
    /// Descriptors: those.
    unread: Vec<u8>,
    unread_fds: Vec<(usize, usize)>,
    /// Bytes of an answer that the client has not taken yet, and the number of its descriptors. Descriptors: those.
    unsent: Vec<u8>,
    unsent_fds: usize,
}

impl SessionState {
    /// Without what is under way, and the number of descriptors that are left then.
    pub(crate) fn at_rest(&self) -> (SessionState, usize) {
        let at_rest = SessionState {
            masked: false,
            unread: Vec::new(),
            unread_fds: Vec::new(),
            unsent: Vec::new(),
            unsent_fds: 0,
            ..self.clone()
        };
        (at_rest, self.files.saturating_add(self.vectors.len()))
    }
}

/// Why a session cannot be continued.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Broken {
    /// Descriptors are missing.
    #[error("descriptors of its client are missing")]
    Descriptors,
    /// A window of memory is not what it should be.
    #[error("the guest's memory at {address:#x}: {why}")]
    Window {
        /// Its address.
        address: u64,
        /// The error.
        why: Errno,
    },
    /// An interrupt is not what it should be.
    #[error("the interrupt {1} of kind {0}: {2}")]
    Interrupt(usize, usize, Errno),
    /// What was under way cannot have been.
    #[error("messages that cannot be")]
    Messages,
    /// Configuration space has another size.
    #[error("configuration space of {0} bytes")]
    Config(usize),
    /// The page of the process before is none.
    #[error("the page with what changes often is not what it should be")]
    Page,
    /// The process before was killed before what the client changed last was kept.
    #[error("what its client changed last was not kept in time")]
    Forgotten,
    /// The process has no more descriptors.
    #[error("no descriptors: {0}")]
    System(Errno),
}

impl<D: Device> Session<D> {
    /// What its client has set up, with the descriptors: all but what is under way.
    ///
    /// # Errors
    /// As [`Session::state`].
    pub(crate) fn setup(&mut self) -> std::io::Result<(SessionState, Vec<OwnedFd>)> {
        let mut config = vec![0; SIZE];
        self.device.config().read(0, &mut config);
        let (windows, mut fds) = self.host.dma.state()?;
        let mut state =
            SessionState { greeted: self.greeted, windows, files: fds.len(), config, ..SessionState::default() };
        for (kind, vector, bell) in self.host.irqs.connected() {
            state.vectors.push((kind, vector));
            fds.push(bell.try_clone()?.into_fd());
        }
        Ok((state, fds))
    }

    /// What another process must know to continue it, with the descriptors.
    ///
    /// # Errors
    /// When the process is out of descriptors, or the client has more files than are kept.
    pub fn state(&mut self) -> std::io::Result<(SessionState, Vec<OwnedFd>)> {
        let (mut state, mut fds) = self.setup()?;
        state.masked = self.host.irqs.masked;
        for (at, of) in self.inbox.left(&mut state.unread) {
            state.unread_fds.push((at, of.len()));
            fds.extend(of.iter().map(OwnedFd::try_clone).collect::<std::io::Result<Vec<_>>>()?);
        }
        if let Some((answer, done)) = &self.unsent {
            state.unsent = answer.bytes.get(*done..).unwrap_or_default().to_vec();
            // They went with the first byte.
            let with_it = answer.fds.iter().filter(|_| *done == 0);
            let with_it = with_it.map(OwnedFd::try_clone).collect::<std::io::Result<Vec<_>>>()?;
            state.unsent_fds = with_it.len();
            fds.extend(with_it);
        }
        Ok((state, fds))
    }

    /// The process before was killed: the next message may have been handled by it. Interrupts are not known to be
    /// masked.
    pub fn after_a_kill(mut self) -> Session<D> {
        self.again = true;
        self
    }

    /// Continues a session of another process, with a device that has just been made; nothing is rung, and nothing is
    /// written to the guest. The device must then be told what of the [`Host`] it uses.
    ///
    /// # Errors
    /// [`Broken`] if a client could not have set it up.
    pub fn continued(
        device: D,
        counts: [u32; KINDS],
        fault: &Fault,
        state: SessionState,
        fds: Vec<OwnedFd>,
    ) -> Result<Session<D>, Broken> {
        let mut session = Session::new(device, counts, fault);
        if state.config.len() != SIZE {
            return Err(Broken::Config(state.config.len()));
        }
        // Only what a guest can write is changed.
        session.device.config().write(0, &state.config);
        session.greeted = state.greeted;
        let mut fds = fds.into_iter();
        let Host { dma, irqs } = &mut session.host;
        let files: Vec<OwnedFd> = fds.by_ref().take(state.files).collect();
        for window in &state.windows {
            let address = window.place.address;
            dma.go_on(window, &files).map_err(|why| Broken::Window { address, why })?;
        }
        for (kind, vector) in state.vectors {
            let fd = fds.next().ok_or(Broken::Descriptors)?;
            irqs.connect(kind, vector, fd).map_err(|why| Broken::Interrupt(kind, vector, why))?;
        }
        irqs.masked = state.masked;
        let mut unread_fds = Vec::new();
        for (at, count) in state.unread_fds {
            unread_fds.push((at, some(&mut fds, count)?));
        }
        session.inbox = Inbox::continued(state.unread, unread_fds).ok_or(Broken::Messages)?;
        if state.unsent.len() > MAX_MESSAGE {
            return Err(Broken::Messages);
        }
        let answer = Answer { bytes: state.unsent, fds: some(&mut fds, state.unsent_fds)? };
        session.unsent = (!answer.bytes.is_empty()).then_some((answer, 0));
        Ok(session)
    }
}

/// The next descriptors, as many as one message has.
fn some(fds: &mut impl Iterator<Item = OwnedFd>, count: usize) -> Result<Vec<OwnedFd>, Broken> {
    let some: Vec<OwnedFd> = fds.take(count.min(MAX_FDS)).collect();
    if some.len() == count { Ok(some) } else { Err(Broken::Descriptors) }
}
