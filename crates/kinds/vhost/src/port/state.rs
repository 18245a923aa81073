//! Saved state of a port and the conversation with its front end: at any time ([`VhostPort::save`]), or exactly, while
//! the workers are parked ([`VhostPort::save_parked`]).

use std::os::fd::OwnedFd;
use std::sync::Arc;

use netvale_fdio::state::{BadState, Fd};
use netvale_mem::fault::Fault;
use netvale_port::service::{AskedToPause, Kept, Paused};
use rustix::net::{AddressFamily, SocketType, sockopt};
use serde::{Deserialize, Serialize};

use crate::port::{FrontEnd, Seats, VhostPort};
use crate::proto::device::{Device, NetConfig};
use crate::proto::state::{DeviceState, mac_of};
use crate::proto::wire::Inbox;

/// State of a port.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VhostState {
    /// Its listening socket, if it listens.
    pub listener: Option<Fd>,
    /// Number of front ends so far.
    pub connections: u64,
    /// Reason for the last disconnection of a front end.
    pub last_error: Option<String>,
    /// Number of changes by the front end: descriptors alone do not show them.
    pub changes: u64,
    /// Kicks sent and received, of each queue.
    pub kicks: Vec<(u64, u64)>,
    /// The connected front end.
    pub peer: Option<PeerState>,
}

/// State of a front end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerState {
    /// Its connection.
    pub socket: Fd,
    /// The device.
    pub device: DeviceState,
    /// The partly received message.
    pub unread: UnreadState,
}

/// A message, with its descriptors, as far as it was received when the thread paused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnreadState {
    pub(crate) bytes: Vec<u8>,
    pub(crate) fds: Vec<Fd>,
}

impl VhostPort {
    /// Asks the thread to pause; [`VhostPort::save_parked`] waits for that.
    pub fn ask_to_pause(&self) -> AskedToPause {
        self.service.ask_to_pause()
    }

    /// State for a successor. The port's conversation is paused until the second part is dropped. The workers must be
    /// parked, and stay parked until the successor resumes or fails. `None`: it cannot be restored, because a peer
    /// blocks the port's thread, or its guest's memory lies in too many files.
    ///
    /// # Errors
    /// The process is out of descriptors.
    pub fn save_parked(&self) -> std::io::Result<Option<(VhostState, Paused)>> {
        let Some(mut paused) = self.service.pause() else { return Ok(None) };
        let said = paused.said.take().and_then(|said| said.downcast::<std::io::Result<UnreadState>>().ok());
        let unread = said.map(|unread| *unread).transpose()?;
        let Some(mut state) = self.save() else { return Ok(None) };
        state.kicks = self.seats.iter().map(|seat| (seat.kicks.sent(), seat.kicks.received())).collect();
        match (unread, &mut state.peer) {
            (Some(unread), Some(peer)) => {
                if !self.stopped_at(&mut peer.device) {
                    return Ok(None);
                }
                peer.unread = unread;
            }
            (None, None) => {}
            _ => return Ok(None),
        }
        Ok(Some((state, paused)))
    }

    /// State for restoring the port after this process ends without notice: all but the positions of running queues and
    /// the numbers of kicks. It changes whenever [`VhostPort::on_change`] calls. `None`: it cannot be restored, as the
    /// guest's memory lies in too many files.
    pub fn save(&self) -> Option<VhostState> {
        let told = self.service.state();
        let Kept { changes, last } = self.service.kept();
        let peer = match last {
            None => None,
            Some(Connected::Unknown) => return None,
            Some(Connected::To(peer)) => Some(PeerState::clone(&peer)),
        };
        Some(VhostState {
            listener: self.listener.as_ref().map(Fd::shared),
            connections: told.connections,
            last_error: told.last_error,
            changes,
            kicks: vec![(0, 0); self.seats.len()],
            peer,
        })
    }

    /// Has the port's thread call `call` whenever [`VhostPort::save`] changes. Only the first registration counts.
    pub fn on_change(&self, call: impl Fn() + Send + Sync + 'static) {
        self.service.on_change(call);
    }

    /// Adds the positions of its queues. Returns whether they are known.
    fn stopped_at(&self, device: &mut DeviceState) -> bool {
        for (seat, ring) in self.seats.iter().zip(&mut device.rings) {
            let Ok(queue) = seat.queue.control() else { return false };
            let Some(live) = queue.as_ref() else { continue };
            if live.is_broken || !live.taken.is_empty() {
                return false;
            }
            ring.position = Some(live.queue.base());
            device.announcement = live.announce.as_deref().map(mac_of).or(device.announcement);
        }
        !device.is_lost()
    }
}

/// State kept of a connected front end.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Connected {
    /// No other process could restore it.
    Unknown,
    /// Its setup.
    To(Arc<PeerState>),
}

impl Connected {
    /// The current setup of a front end.
    pub(crate) fn to(socket: &Arc<OwnedFd>, device: &Device) -> Connected {
        let peer = |device| PeerState { socket: Fd::shared(socket), device, unread: UnreadState::default() };
        device.state().map_or(Connected::Unknown, |device| Connected::To(Arc::new(peer(device))))
    }
}

/// A front end, new or restored.
pub(crate) struct Front {
    pub(crate) socket: Arc<OwnedFd>,
    pub(crate) inbox: Inbox,
    /// `None`: it has not sent anything yet.
    pub(crate) device: Option<Device>,
}

impl Front {
    pub(crate) fn new(socket: OwnedFd) -> Front {
        Front { socket: Arc::new(socket), inbox: Inbox::default(), device: None }
    }

    /// Restores another process's front end.
    pub(crate) fn restore(peer: PeerState, config: NetConfig, seats: Seats) -> Result<Front, BadState> {
        let PeerState { socket, device, unread } = peer;
        let socket = socket.take()?;
        let is_socket = sockopt::socket_domain(&socket) == Ok(AddressFamily::UNIX)
            && sockopt::socket_type(&socket) == Ok(SocketType::STREAM);
        if !is_socket {
            return Err(BadState::new("a connection that is no UNIX stream socket"));
        }
        let inbox = Inbox::restore(unread.bytes, Fd::take_all(unread.fds)?).map_err(BadState::new)?;
        let device = Device::restore(config, seats, Fault::new()?, device)?;
        Ok(Front { socket: Arc::new(socket), inbox, device: Some(device) })
    }

    /// State kept of a restored front end.
    pub(crate) fn kept(&self) -> Option<Connected> {
        self.device.as_ref().map(|device| Connected::to(&self.socket, device))
    }

    pub(crate) fn told(&self) -> FrontEnd {
        self.device.as_ref().map(FrontEnd::of).unwrap_or_default()
    }
}
