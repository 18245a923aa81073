//! What another process needs to go on with a port, and with its front end where the conversation stopped: at any time
//! ([`VhostPort::save`]), or exactly, while the workers are parked ([`VhostPort::save_parked`]).

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use netvale_fdio::state::{BadState, Fd};
use netvale_mem::fault::Fault;
use netvale_port::service::{AskedToPause, Paused, Peer};
use rustix::net::{AddressFamily, SocketType, sockopt};
use serde::{Deserialize, Serialize};

use crate::port::{FrontEnd, Seats, VhostPort};
use crate::proto::device::{Device, NetConfig};
use crate::proto::state::{DeviceState, mac_of};
use crate::proto::wire::Inbox;

/// A port.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VhostState {
    /// Its listening socket, if it listens.
    pub listener: Option<Fd>,
    /// Number of front ends so far.
    pub connections: u64,
    /// Why the last front end was disconnected.
    pub last_error: Option<String>,
    /// How often the front end changed something: descriptors alone do not show it.
    pub changes: u64,
    /// Kicks sent and received, of each queue.
    pub kicks: Vec<(u64, u64)>,
    /// The connected front end.
    pub peer: Option<PeerState>,
}

/// A front end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerState {
    /// Its connection.
    pub socket: Fd,
    /// The device.
    pub device: DeviceState,
    /// What came of a message.
    pub unread: UnreadState,
}

/// What came of a message, with its descriptors, when the thread paused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnreadState {
    pub(crate) bytes: Vec<u8>,
    pub(crate) fds: Vec<Fd>,
}

impl VhostPort {
    /// Asks the thread to pause, which [`VhostPort::save_parked`] then waits for.
    pub fn ask_to_pause(&self) -> AskedToPause {
        self.service.ask_to_pause()
    }

    /// What a successor needs to go on with the port, whose conversation stands still until the second part is dropped.
    /// The workers must be parked, and stay so until the successor goes on, or does not. `None`: it cannot go on,
    /// because a peer holds the port's thread up, or its guest's memory lies in too many files.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub fn save_parked(&self) -> std::io::Result<Option<(VhostState, Paused)>> {
        let Some(mut paused) = self.service.pause() else { return Ok(None) };
        let said = paused.said.take().and_then(|said| said.downcast::<std::io::Result<UnreadState>>().ok());
        let unread = said.map(|unread| *unread).transpose()?;
        let Some(mut state) = self.save()? else { return Ok(None) };
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

    /// What another process needs to go on with the port after this one ended without notice: all but where running
    /// queues are, and numbers of kicks. It changes whenever [`VhostPort::on_change`] says so. `None`: it could not go
    /// on, as the guest's memory lies in too many files.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub fn save(&self) -> std::io::Result<Option<VhostState>> {
        let told = self.service.state();
        let Noted { changes, front } = self.now.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let peer = match front {
            Connected::Nobody => None,
            Connected::Unknown => return Ok(None),
            Connected::To(peer) => Some(PeerState::clone(&peer)),
        };
        Ok(Some(VhostState {
            listener: self.listener.as_ref().map(Fd::shared),
            connections: told.connections,
            last_error: told.last_error,
            changes,
            kicks: vec![(0, 0); self.seats.len()],
            peer,
        }))
    }

    /// Has the port's thread call this whenever [`VhostPort::save`] changed. Only the first call counts.
    pub fn on_change(&self, call: impl Fn() + Send + Sync + 'static) {
        self.service.on_change(call);
    }

    /// Adds where its queues are. Returns whether that is known.
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

/// What is known of the front end, for other threads.
#[derive(Clone, Default)]
pub(crate) enum Connected {
    /// There is none.
    #[default]
    Nobody,
    /// Nobody could go on with it.
    Unknown,
    /// What it set up.
    To(Arc<PeerState>),
}

impl Connected {
    /// What a front end has set up by now.
    fn to(socket: &Arc<OwnedFd>, device: &Device) -> Connected {
        let peer = |device| PeerState { socket: Fd::shared(socket), device, unread: UnreadState::default() };
        device.state().map_or(Connected::Unknown, |device| Connected::To(Arc::new(peer(device))))
    }
}

/// What is known of the front end, and how often that changed.
#[derive(Clone, Default)]
pub(crate) struct Noted {
    pub(crate) changes: u64,
    front: Connected,
}

/// Shared by the port and its thread.
pub(crate) type Now = Arc<Mutex<Noted>>;

/// Writes it. Dropping this says that the front end is gone.
pub(crate) struct Known<'a>(&'a Now);

impl<'a> Known<'a> {
    pub(crate) fn new(now: &'a Now) -> Self {
        Known(now)
    }

    fn set(&self, to: Connected) {
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *noted = Noted { changes: noted.changes + 1, front: to };
    }

    /// The front end may have changed its device.
    pub(crate) fn update(&self, socket: &Arc<OwnedFd>, device: &Device, peer: &Peer<FrontEnd>) {
        let to = Connected::to(socket, device);
        let is_same = match (&to, &self.0.lock().unwrap_or_else(PoisonError::into_inner).front) {
            (Connected::To(now), Connected::To(before)) => now == before,
            _ => false,
        };
        if !is_same {
            self.set(to);
            peer.changed();
        }
    }
}

impl Drop for Known<'_> {
    fn drop(&mut self) {
        self.set(Connected::Nobody);
    }
}

/// A front end that connected, or that another process went on with.
pub(crate) struct Front {
    pub(crate) socket: Arc<OwnedFd>,
    pub(crate) inbox: Inbox,
    /// `None`: it has said nothing yet.
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

    /// What is noted of a front end that another process left.
    pub(crate) fn noted(&self, changes: u64) -> Noted {
        Noted {
            changes,
            front: self.device.as_ref().map_or(Connected::Nobody, |device| Connected::to(&self.socket, device)),
        }
    }

    pub(crate) fn told(&self) -> FrontEnd {
        self.device.as_ref().map(FrontEnd::of).unwrap_or_default()
    }
}
