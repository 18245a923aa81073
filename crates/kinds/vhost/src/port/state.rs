//! Saved state of a port and of the connection to its front end: at any time ([`VhostPort::save`]), or exact, while the
//! workers are parked ([`VhostPort::save_parked`]).

use std::os::fd::OwnedFd;
use std::sync::Arc;

use netvale_fdio::state::{BadState, Fd};
use netvale_mem::fault::Fault;
use netvale_port::listener::is_unix;
use netvale_port::service::{AskedToPause, KeptState, PausedService};
use rustix::net::SocketType;
use serde::{Deserialize, Serialize};

use crate::port::{FrontEndStatus, VhostPort, VhostSeats};
use crate::proto::device::{NetConfig, VhostDevice};
use crate::proto::state::{VhostDeviceState, mac_of};
use crate::proto::wire::MessageInbox;

/// State of a vhost-user port.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VhostState {
    /// The port's listening socket, if it listens.
    pub listener: Option<Fd>,
    /// Number of front ends so far.
    pub connections: u64,
    /// Reason for the last disconnection of a front end.
    pub last_error: Option<String>,
    /// Number of changes that the front end has made. A change that only replaces descriptors shows in this number, but
    /// not in the rest of the state.
    pub changes: u64,
    /// Calls sent and kicks received, for each queue.
    pub kicks: Vec<(u64, u64)>,
    /// The connected front end.
    pub peer: Option<PeerState>,
}

/// State of a front end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerState {
    /// The connection.
    pub socket: Fd,
    /// The device.
    pub device: VhostDeviceState,
    /// A message of which only a part has been received; empty if there is no such message.
    pub unread: UnreadState,
}

/// The received part of a message, with its descriptors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnreadState {
    pub(crate) bytes: Vec<u8>,
    pub(crate) fds: Vec<Fd>,
}

impl VhostPort {
    /// Requests a pause of the port's thread; [`VhostPort::save_parked`] waits until it has paused.
    pub fn ask_to_pause(&self) -> AskedToPause {
        self.service.ask_to_pause()
    }

    /// Returns the state for a successor. The connection is paused until the returned [`PausedService`] is dropped. The
    /// workers must be parked, i.e. paused between batches, and stay parked until the successor resumes or fails.
    /// Returns `None` if the port cannot be restored: a peer blocks the port's thread, or the guest's memory is in too
    /// many files.
    ///
    /// # Errors
    /// Fails if the process is out of descriptors.
    pub fn save_parked(&self) -> std::io::Result<Option<(VhostState, PausedService)>> {
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

    /// Returns the state from which a successor restores the port if this process ends without notice. It contains
    /// everything but the positions of running queues and the numbers of kicks. The state changes whenever the callback
    /// of [`VhostPort::on_change`] is called. Returns `None` if the port cannot be restored because the guest's memory
    /// is in too many files.
    pub fn save(&self) -> Option<VhostState> {
        let told = self.service.state();
        let KeptState { changes, last } = self.service.kept();
        let peer = match last {
            None => None,
            Some(KeptFrontEnd::Unknown) => return None,
            Some(KeptFrontEnd::To(peer)) => Some(PeerState::clone(&peer)),
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

    /// Makes the port's thread call `call` whenever [`VhostPort::save`] changes. Only the first registration counts.
    pub fn on_change(&self, call: impl Fn() + Send + Sync + 'static) {
        self.service.on_change(call);
    }

    /// Adds the positions of the port's queues to `device`. Returns whether all positions are known.
    fn stopped_at(&self, device: &mut VhostDeviceState) -> bool {
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

/// The saved state of a connected front end.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum KeptFrontEnd {
    /// No other process can restore the front end.
    Unknown,
    /// The front end's setup.
    To(Arc<PeerState>),
}

impl KeptFrontEnd {
    /// Returns the current setup of a front end.
    pub(crate) fn to(socket: &Arc<OwnedFd>, device: &VhostDevice) -> KeptFrontEnd {
        let peer = |device| PeerState { socket: Fd::shared(socket), device, unread: UnreadState::default() };
        device.state().map_or(KeptFrontEnd::Unknown, |device| KeptFrontEnd::To(Arc::new(peer(device))))
    }
}

/// The connection to a front end, new or restored.
pub(crate) struct FrontEndConnection {
    pub(crate) socket: Arc<OwnedFd>,
    pub(crate) inbox: MessageInbox,
    /// The device; `None` if the front end has sent no message yet.
    pub(crate) device: Option<VhostDevice>,
}

impl FrontEndConnection {
    pub(crate) fn new(socket: OwnedFd) -> FrontEndConnection {
        FrontEndConnection { socket: Arc::new(socket), inbox: MessageInbox::default(), device: None }
    }

    /// Restores a predecessor's front end.
    pub(crate) fn restore(
        peer: PeerState,
        config: NetConfig,
        seats: VhostSeats,
    ) -> Result<FrontEndConnection, BadState> {
        let PeerState { socket, device, unread } = peer;
        let socket = socket.take()?;
        if !is_unix(&socket, SocketType::STREAM) {
            return Err(BadState::new("a connection that is not a UNIX stream socket"));
        }
        let inbox = MessageInbox::restore(unread.bytes, Fd::take_all(unread.fds)?).map_err(BadState::new)?;
        let device = VhostDevice::restore(config, seats, Fault::new()?, device)?;
        Ok(FrontEndConnection { socket: Arc::new(socket), inbox, device: Some(device) })
    }

    /// Returns the saved state of a restored front end.
    pub(crate) fn kept(&self) -> Option<KeptFrontEnd> {
        self.device.as_ref().map(|device| KeptFrontEnd::to(&self.socket, device))
    }

    pub(crate) fn told(&self) -> FrontEndStatus {
        self.device.as_ref().map(FrontEndStatus::of).unwrap_or_default()
    }
}
