//! A VDE switch: a plug (VDE's client) connects to the control socket in the switch's folder, sends the address of its
//! own socket, and receives the address of one of the switch's sockets.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use netvale_fdio::state::Fd;
use netvale_port::listener::{Claim, ListenAddress, Listener, OpenError, SocketFile, bind_datagrams, connect_to_place};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{SendFlags, SocketAddrUnix, SocketType};

use super::listen::Acceptor;
use super::place::{is_trusted, place_of_peer};
use super::{FIRST, PeerArrival, PeerSource, SourceEvents, who_made, widen};
use crate::line::{LeftPeer, SocketPeer};
use crate::sys::{Peeked, maker_of, peek};
use crate::vde::{BadRequest, LONGEST, PlugAddress, PlugRequest, answer};

/// Maximum number of connections that wait until they are accepted.
const BACKLOG: i32 = 64;
/// Time limit for a plug's request.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum number of plugs whose requests are incomplete.
const MOST_WAITING: usize = 64;

/// epoll events of a connection whose request is incomplete.
const NEWS: epoll::EventFlags = epoll::EventFlags::IN.union(epoll::EventFlags::RDHUP).union(epoll::EventFlags::ET);
/// epoll events of a connection whose request is complete: only its end matters.
const END: epoll::EventFlags = epoll::EventFlags::RDHUP;

/// A plug that has not completed its request, or that waits for a line.
struct WaitingPlug {
    control: OwnedFd,
    since: Instant,
    user: u32,
    request: Option<PlugRequest>,
}

/// A plug that is connected to a line.
struct Plug {
    control: Arc<OwnedFd>,
    token: u64,
    /// File of the switch's socket to which the plug sends its frames.
    file: SocketFile,
}

/// The sockets of a VDE switch.
pub struct PlugSwitch {
    acceptor: Acceptor,
    file: SocketFile,
    /// Path and access rights of the control socket.
    site: ListenAddress,
    folder: PathBuf,
    events: Option<SourceEvents>,
    waiting: BTreeMap<u64, WaitingPlug>,
    plugs: BTreeMap<u16, Plug>,
    leaving: Vec<u16>,
    next: u64,
    refused: Vec<String>,
    strangers: Vec<OwnedFd>,
}

impl PlugSwitch {
    /// Listens for plugs at the control socket of a folder.
    ///
    /// # Errors
    /// [`OpenError`] if the path is not free or a system call fails.
    pub fn open(site: &ListenAddress) -> Result<PlugSwitch, OpenError> {
        let (listener, file) = Listener::listen_for(site, SocketType::STREAM, BACKLOG)?;
        Ok(Self::with(site, listener, file))
    }

    /// Takes over a predecessor's socket.
    ///
    /// # Errors
    /// [`OpenError`] if the socket is of another type, or its file is not at the path.
    pub fn restore(site: &ListenAddress, socket: OwnedFd) -> Result<PlugSwitch, OpenError> {
        let (listener, file) = Listener::restore(socket, site)?;
        Ok(Self::with(site, listener, file))
    }

    fn with(site: &ListenAddress, listener: Listener, file: SocketFile) -> PlugSwitch {
        PlugSwitch {
            acceptor: Acceptor::new(listener.into_fd()),
            file,
            site: site.clone(),
            folder: site.path().parent().map(PathBuf::from).unwrap_or_default(),
            events: None,
            waiting: BTreeMap::new(),
            plugs: BTreeMap::new(),
            leaving: Vec::new(),
            next: FIRST,
            refused: Vec::new(),
            strangers: Vec::new(),
        }
    }

    /// Returns the path of the socket that the switch creates for the plug on a line.
    fn data_path(&self, number: u16) -> PathBuf {
        self.folder.join(data_name(number))
    }

    /// Returns the path and the access rights of that socket, to which `user` sends frames.
    fn data_site(&self, number: u16, user: u32) -> ListenAddress {
        let place = self.site.place.sibling(&data_name(number));
        let mut access = self.site.access.clone();
        if !is_trusted(user) {
            access.users.push(user);
        }
        ListenAddress { place, access }
    }

    fn accept(&mut self, now: Instant) {
        while let Some((control, _)) = self.acceptor.accept(now) {
            let user = maker_of(&control).map(|maker| maker.uid);
            let token = self.next;
            let added = self.events.as_ref().map(|events| events.add(&control, token, NEWS));
            let (Ok(user), Some(Ok(()))) = (user, added) else {
                self.strangers.push(control);
                continue;
            };
            self.next += 1;
            self.waiting.insert(token, WaitingPlug { control, since: now, user, request: None });
        }
        self.expire(now);
    }

    /// Disconnects plugs whose requests take too long and, if more than [`MOST_WAITING`] wait, the oldest of them.
    fn expire(&mut self, now: Instant) {
        let many = self.waiting.len().saturating_sub(MOST_WAITING);
        let first: Vec<u64> = self.waiting.keys().copied().take(many).collect();
        let is_late = |(token, plug): (&u64, &WaitingPlug)| {
            (now.saturating_duration_since(plug.since) > PATIENCE || first.contains(token)).then_some(*token)
        };
        let late: Vec<u64> = self.waiting.iter().filter_map(is_late).collect();
        late.into_iter().for_each(|token| self.hang_up(token, Some("a plug sent no request in time".to_owned())));
    }

    fn hang_up(&mut self, token: u64, why: Option<String>) {
        let Some(plug) = self.waiting.remove(&token) else { return };
        self.events.iter().for_each(|events| events.remove(&plug.control));
        self.strangers.push(plug.control);
        self.refused.extend(why);
    }

    /// Reads a plug's request. Returns the arrival once the request is complete.
    fn hear(&mut self, token: u64) -> Option<PeerArrival> {
        let plug = self.waiting.get_mut(&token).filter(|plug| plug.request.is_none())?;
        let mut bytes = [0; LONGEST];
        let asked = match peek(&plug.control, &mut bytes) {
            Err(Errno::AGAIN) => return None,
            Ok(Peeked { bytes: len, has_descriptors: false }) if len > 0 => PlugRequest::parse(&bytes[..len]),
            _ => {
                self.hang_up(token, None);
                return None;
            }
        };
        match asked {
            Err(BadRequest::Short(_)) => None,
            Err(why) => {
                self.hang_up(token, Some(format!("a plug was refused: {why}")));
                None
            }
            Ok(request) => {
                let arrival = PeerArrival {
                    peer: None,
                    token,
                    number: request.port,
                    who: who_made(&plug.control),
                    about: Some(request.description.clone()).filter(|text| !text.is_empty()),
                };
                plug.request = Some(request);
                Some(arrival)
            }
        }
    }

    /// Creates the switch's socket for the plug on a line, and connects it to the plug's socket. Returns the new socket
    /// with its file.
    fn connect(&self, plug: &WaitingPlug, number: u16) -> Result<(OwnedFd, SocketFile), String> {
        let request = plug.request.as_ref().ok_or("the plug did not send the address of its socket")?;
        let (socket, file) = bind_datagrams(&self.data_site(number, plug.user)).map_err(|e| e.to_string())?;
        widen(&socket);
        let failed = |e: Errno| format!("cannot connect to the plug's socket: {e}");
        match &request.address {
            PlugAddress::Path(path) => {
                let place = place_of_peer(path, plug.user, &self.folder).ok_or_else(|| {
                    let folder = self.folder.display();
                    format!("user {} may not use {}: expected a path in {folder}", plug.user, path.display())
                })?;
                connect_to_place(&socket, &place).map_err(failed)?;
            }
            PlugAddress::Abstract(_) if !is_trusted(plug.user) => {
                return Err("only root and the daemon's own user may use abstract sockets".to_owned());
            }
            PlugAddress::Abstract(name) => {
                let address = SocketAddrUnix::new_abstract_name(name).map_err(failed)?;
                rustix::net::connect(&socket, &address).map_err(failed)?;
            }
        }
        Ok((socket, file))
    }

    /// Removes the plug's request, which was only peeked at, from the connection, and sends the plug the address of the
    /// switch's socket.
    fn reply(&self, plug: &WaitingPlug, number: u16) -> Result<(), String> {
        let mut request = [0; LONGEST];
        let read = netvale_fdio::receive(&plug.control, &mut request, rustix::net::RecvFlags::DONTWAIT);
        if !read.is_ok_and(|got| got.fds.is_empty() && got.bytes > 0) {
            return Err("the plug is gone".to_owned());
        }
        let answer = answer(&self.data_path(number).display().to_string());
        match rustix::net::send(&plug.control, &answer, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(sent) if sent == answer.len() => Ok(()),
            _ => Err("the plug does not read the answer".to_owned()),
        }
    }

    fn plugged(&mut self, plug: WaitingPlug, number: u16, token: u64) -> Result<SocketPeer, String> {
        let made = self.connect(&plug, number).and_then(|made| self.reply(&plug, number).map(|()| made));
        let (socket, file) = match made {
            Ok(made) => made,
            Err(why) => {
                self.events.iter().for_each(|events| events.remove(&plug.control));
                self.strangers.push(plug.control);
                return Err(why);
            }
        };
        let control = Arc::new(plug.control);
        self.events.iter().for_each(|events| events.change(&*control, token, END));
        self.plugs.insert(number, Plug { control: Arc::clone(&control), token, file });
        Ok(SocketPeer::plugged(socket, control))
    }
}

/// Returns the file name of the switch's socket for the plug on a line, as `vde_switch` forms it.
fn data_name(number: u16) -> String {
    format!("{number:03}.0")
}

impl PeerSource for PlugSwitch {
    fn watch(&mut self, events: SourceEvents) -> Result<(), Errno> {
        self.acceptor.watch(events.clone())?;
        self.events = Some(events);
        Ok(())
    }

    fn arrivals(&mut self, now: Instant, ready: &BTreeSet<u64>) -> Vec<PeerArrival> {
        self.accept(now);
        let known: Vec<u64> = self.waiting.keys().copied().collect();
        let arrivals = known.into_iter().filter_map(|token| self.hear(token)).collect();
        let gone = self.plugs.iter().filter(|(_, plug)| ready.contains(&plug.token));
        self.leaving.extend(gone.map(|(number, _)| *number));
        // These plugs are leaving, so no further event of their connections matters.
        let gone = self.leaving.iter().filter_map(|number| self.plugs.get(number));
        gone.for_each(|plug| self.events.iter().for_each(|events| events.remove(&*plug.control)));
        arrivals
    }

    fn wait(&self, now: Instant) -> Duration {
        let patience = |plug: &WaitingPlug| (plug.since + PATIENCE).saturating_duration_since(now);
        self.waiting.values().map(patience).min().unwrap_or(Duration::MAX).min(self.acceptor.wait(now))
    }

    fn seat(&mut self, arrival: &mut PeerArrival, number: u16) -> Result<SocketPeer, String> {
        let plug = self.waiting.remove(&arrival.token).ok_or("the plug is gone")?;
        self.plugged(plug, number, arrival.token)
    }

    fn turn_away(&mut self, arrival: PeerArrival, _now: Instant) -> LeftPeer {
        self.hang_up(arrival.token, None);
        LeftPeer::default()
    }

    fn left(&mut self, number: u16, _now: Instant) {
        if let Some(plug) = self.plugs.remove(&number)
            && let Some(events) = &self.events
        {
            events.remove(&*plug.control);
        }
    }

    fn leaving(&mut self) -> Vec<u16> {
        std::mem::take(&mut self.leaving)
    }

    fn go_on(&mut self, number: u16, peer: &SocketPeer) -> Result<(), OpenError> {
        let path = self.data_path(number);
        let failed = |what| OpenError::step(path.clone(), what);
        let control = peer.control.clone().ok_or(Errno::BADF).map_err(failed("continue a plug"))?;
        let user = maker_of(&control).map_or(u32::MAX, |maker| maker.uid);
        let file = SocketFile::restore(&self.data_site(number, user))?;
        let token = self.next;
        self.next += 1;
        if let Some(events) = &self.events {
            events.add(&*control, token, END).map_err(failed("watch a plug"))?;
        }
        self.plugs.insert(number, Plug { control, token, file });
        Ok(())
    }

    fn save(&self) -> Vec<Fd> {
        vec![Fd::shared(&self.acceptor.socket)]
    }

    fn claims(&self) -> Vec<Claim> {
        let plugs = self.plugs.values().map(|plug| plug.file.claim());
        std::iter::once(self.file.claim()).chain(plugs).collect()
    }

    fn refused(&mut self) -> Vec<String> {
        std::mem::take(&mut self.refused)
    }

    fn strangers(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.strangers)
    }
}
