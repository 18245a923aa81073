//! What another process needs to go on with a port, and with its front end where the conversation stopped: at any time
//! ([`VhostPort::kept`]), or exactly, while the workers are parked ([`VhostPort::hand_over`]).

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use netvale_mem::fault::Fault;
use netvale_port::service::{AskedToPause, Paused, Peer};
use rustix::net::{AddressFamily, SocketType, sockopt};
use serde::{Deserialize, Serialize};

use crate::port::{FrontEnd, Seats, VhostPort};
use crate::proto::continued::{DeviceState, KeptFile, mac_of};
use crate::proto::device::{Device, NetConfig};
use crate::proto::message::Refused;
use crate::proto::wire::Inbox;

/// A port. Descriptors: its listening socket, if it listens; those of its front end.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VhostState {
    /// Whether it listens.
    pub listens: bool,
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

/// A front end. Descriptors: its socket, those of its device, those of the unread message.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PeerState {
    /// The device.
    pub device: DeviceState,
    /// What came of a message, and how many descriptors.
    pub unread: (Vec<u8>, usize),
}

/// What a port says of itself for a successor.
pub struct Given {
    /// Numbers.
    pub state: VhostState,
    /// Descriptors.
    pub fds: Vec<OwnedFd>,
    /// Its conversation stands still until this is dropped.
    pub paused: Paused,
}

/// What came of a message when the thread paused.
pub(crate) struct Unread {
    pub(crate) bytes: Vec<u8>,
    pub(crate) fds: Vec<OwnedFd>,
}

impl VhostPort {
    /// Asks the thread to pause, which [`VhostPort::hand_over`] then waits for.
    pub fn ask_to_pause(&self) -> AskedToPause {
        self.service.ask_to_pause()
    }

    /// What a successor needs to go on with the port. The workers must be parked, and stay so until the successor goes
    /// on, or does not. `None`: it cannot go on, because a peer holds the port's thread up, or its guest's memory lies
    /// in too many files.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub fn hand_over(&self) -> std::io::Result<Option<Given>> {
        let Some(mut paused) = self.service.pause() else { return Ok(None) };
        let said = paused.said.take().and_then(|said| said.downcast::<std::io::Result<Unread>>().ok());
        let unread = said.map(|unread| *unread).transpose()?;
        let Some((mut state, mut fds)) = self.kept()? else { return Ok(None) };
        state.kicks = self.seats.iter().map(|seat| (seat.kicks.sent(), seat.kicks.received())).collect();
        match (unread, &mut state.peer) {
            (Some(unread), Some(peer)) => {
                if !self.stopped_at(&mut peer.device) {
                    return Ok(None);
                }
                peer.unread = (unread.bytes, unread.fds.len());
                fds.extend(unread.fds);
            }
            (None, None) => {}
            _ => return Ok(None),
        }
        Ok(Some(Given { state, fds, paused }))
    }

    /// What another process needs to go on with the port after this one ended without notice: all but where running
    /// queues are, and numbers of kicks. It changes whenever [`VhostPort::on_change`] says so. `None`: it could not go
    /// on, as the guest's memory lies in too many files.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub fn kept(&self) -> std::io::Result<Option<(VhostState, Vec<OwnedFd>)>> {
        let told = self.service.state();
        let now = self.now.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut fds = Vec::new();
        fds.extend(self.listener.as_ref().map(|listener| listener.to_fd()).transpose()?);
        let Noted { changes, front } = now;
        let peer = match front {
            Connected::Nobody => None,
            Connected::Unknown => return Ok(None),
            Connected::To(front) => {
                fds.push(front.socket.try_clone()?);
                for fd in &front.fds {
                    fds.push(fd.as_fd().as_fd().try_clone_to_owned()?);
                }
                Some(PeerState { device: front.device.clone(), unread: (Vec::new(), 0) })
            }
        };
        let kicks = vec![(0, 0); self.seats.len()];
        let (listens, connections, last_error) = (self.listener.is_some(), told.connections, told.last_error);
        Ok(Some((VhostState { listens, connections, last_error, changes, kicks, peer }, fds)))
    }

    /// Has the port's thread call this whenever [`VhostPort::kept`] changed. Only the first call counts.
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
    To(Arc<Setup>),
}

impl Connected {
    /// What a front end has set up by now.
    fn to(socket: &Arc<OwnedFd>, device: &Device) -> Connected {
        match device.state() {
            Some((device, fds)) => Connected::To(Arc::new(Setup { socket: Arc::clone(socket), device, fds })),
            None => Connected::Unknown,
        }
    }
}

/// A front end's device, as another process would go on with it.
pub(crate) struct Setup {
    socket: Arc<OwnedFd>,
    device: DeviceState,
    fds: Vec<KeptFile>,
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

    /// The front end may have changed its device; `has_fds`: certainly, as it sent descriptors.
    pub(crate) fn update(&self, socket: &Arc<OwnedFd>, device: &Device, peer: &Peer<FrontEnd>, has_fds: bool) {
        let to = Connected::to(socket, device);
        let is_same = match (&to, &self.0.lock().unwrap_or_else(PoisonError::into_inner).front) {
            (Connected::To(a), Connected::To(b)) => a.device == b.device && !has_fds,
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

    /// Goes on with another process's front end.
    pub(crate) fn continued(
        peer: &PeerState,
        mut fds: Vec<OwnedFd>,
        (config, seats): (NetConfig, Seats),
    ) -> Result<Front, Refused> {
        let (bytes, count) = &peer.unread;
        if fds.is_empty() || *count > fds.len() - 1 {
            return Err(Refused::Incomplete);
        }
        let socket = fds.remove(0);
        let is_socket = sockopt::socket_domain(&socket) == Ok(AddressFamily::UNIX)
            && sockopt::socket_type(&socket) == Ok(SocketType::STREAM);
        if !is_socket {
            return Err(Refused::NoSocket);
        }
        let unread = fds.split_off(fds.len() - count);
        let inbox = Inbox::continued(bytes.clone(), unread)?;
        let fault = Fault::new().map_err(Refused::System)?;
        let device = Device::continued(config, seats, fault, &peer.device, fds)?;
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
