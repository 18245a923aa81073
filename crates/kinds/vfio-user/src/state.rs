//! Saved state of a session: the client's setup, and the data in flight on the connection. Restoring the setup makes
//! the same checks as the client's requests, so a state that no client could have caused is refused.

use std::os::fd::OwnedFd;

use netvale_fdio::state::{BadState, Fd};
use netvale_mem::fault::Fault;
use serde::{Deserialize, Serialize};

use crate::config::SIZE;
use crate::dma::WindowState;
use crate::inbox::SocketInbox;
use crate::irqs::KINDS;
use crate::session::{DeviceSession, VfioAnswer};
use crate::wire::{MAX_FDS, MAX_MESSAGE};
use crate::{Device, DeviceHost};

/// State of a session, without the device.
#[derive(Default, Serialize, Deserialize)]
pub struct SessionState {
    /// Whether the client has sent its version.
    greeted: bool,
    /// The windows of the guest's memory.
    windows: Vec<WindowState>,
    /// The files of the windows.
    files: Vec<Fd>,
    /// Connected interrupts, by kind and vector, with their eventfds.
    vectors: Vec<(usize, usize, Fd)>,
    /// Whether the guest has masked the interrupt pin.
    masked: bool,
    /// The bytes of configuration space.
    config: Vec<u8>,
    /// Received bytes that are not parsed yet.
    unread: Vec<u8>,
    /// Descriptors received with the unparsed bytes, each set with the offset of its message.
    unread_fds: Vec<(usize, Vec<Fd>)>,
    /// The rest of an answer that is only partly sent.
    unsent: Vec<u8>,
    /// Descriptors of that answer, which are sent with its first byte; empty once that byte is sent.
    unsent_fds: Vec<Fd>,
}

/// State of a client's connection; `T` is the device's own state.
#[derive(Serialize, Deserialize)]
pub struct ClientState<T> {
    /// The connection.
    pub connection: Fd,
    /// The client's setup.
    pub session: SessionState,
    /// The device's state.
    pub device: T,
}

/// A client that has just connected, or a predecessor's client with its session.
pub enum VfioClient<D> {
    /// A new client's connection.
    New(OwnedFd),
    /// A predecessor's client: its connection, its session, and the fault of its connection.
    Continued(OwnedFd, Box<DeviceSession<D>>, Fault),
}

impl<D> VfioClient<D> {
    /// Returns the fault of a predecessor's client; `None` for a new client.
    pub fn fault(&self) -> Option<Fault> {
        if let VfioClient::Continued(.., fault) = self { Some(fault.clone()) } else { None }
    }
}

impl<D: Device> DeviceSession<D> {
    /// Returns the state for a successor.
    ///
    /// # Errors
    /// Fails if the process is out of descriptors, or the guest's memory is in more files than are kept.
    pub fn save(&mut self) -> std::io::Result<SessionState> {
        let mut config = vec![0; SIZE];
        self.device.config().read(0, &mut config);
        let DeviceHost { dma, irqs } = &self.host;
        let (windows, files) = dma.state()?;
        let vectors = irqs.connected().map(|(kind, vector, bell)| Ok((kind, vector, Fd::copy_of(bell)?)));
        let vectors = vectors.collect::<std::io::Result<_>>()?;
        let greeted = self.greeted;
        let masked = irqs.masked;
        let mut state = SessionState { greeted, windows, files, vectors, masked, config, ..SessionState::default() };
        for (at, fds) in self.inbox.left(&mut state.unread) {
            state.unread_fds.push((at, Fd::copies_of(fds)?));
        }
        if let Some((answer, done)) = &self.unsent {
            state.unsent = answer.bytes.get(*done..).unwrap_or_default().to_vec();
            // If a byte of the answer is sent, its descriptors are sent, too.
            state.unsent_fds = Fd::copies_of(answer.fds.iter().filter(|_| *done == 0))?;
        }
        Ok(state)
    }

    /// Restores a predecessor's session with the new device `device`. No doorbell is rung and nothing is written to the
    /// guest. The device must then fetch the resources that it uses from the [`DeviceHost`].
    ///
    /// # Errors
    /// [`BadState`] if a client could not have made this setup.
    pub fn restore(
        device: D,
        counts: [u32; KINDS],
        fault: &Fault,
        state: SessionState,
    ) -> Result<DeviceSession<D>, BadState> {
        let mut session = DeviceSession::new(device, counts, fault);
        if state.config.len() != SIZE {
            return Err(BadState::new(format!("configuration space of {} bytes: expected {SIZE}", state.config.len())));
        }
        // This changes only guest-writable bits.
        session.device.config().write(0, &state.config);
        session.greeted = state.greeted;
        let DeviceHost { dma, irqs } = &mut session.host;
        let files = Fd::take_all(state.files)?;
        for window in &state.windows {
            let part = || format!("the guest's memory at {:#x}", window.place.address);
            dma.restore(window, &files).map_err(|why| BadState::from(why).of(part()))?;
        }
        for (kind, vector, fd) in state.vectors {
            let part = |why| BadState::from(why).of(format!("IRQ index {kind}, vector {vector}"));
            irqs.connect(kind, vector, fd.take()?).map_err(part)?;
        }
        irqs.masked = state.masked;
        let unread_fds = state.unread_fds.into_iter().map(|(at, fds)| Ok((at, Fd::take_all(fds)?)));
        let unread_fds = unread_fds.collect::<std::io::Result<_>>()?;
        let impossible = || BadState::new("the unread messages have an impossible size");
        session.inbox = SocketInbox::restore(state.unread, unread_fds).ok_or_else(impossible)?;
        if state.unsent.len() > MAX_MESSAGE || state.unsent_fds.len() > MAX_FDS {
            return Err(impossible());
        }
        let answer = VfioAnswer { bytes: state.unsent, fds: Fd::take_all(state.unsent_fds)? };
        session.unsent = (!answer.bytes.is_empty()).then_some((answer, 0));
        Ok(session)
    }
}
