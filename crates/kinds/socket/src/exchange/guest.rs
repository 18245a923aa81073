//! A datagram socket whose peer chooses its own path: the first sender gets the port until that peer is gone.
//!
//! libkrun binds a socket in the folder of the port's socket, connects it to the port's socket, and sends; vfkit and
//! older versions of libkrun first send four bytes (`VFKT`), which are not a frame. The port then connects its socket
//! to the peer's socket, so that the kernel accepts datagrams from no other sender.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use netvale_fdio::state::Fd;
use netvale_port::folder::UserPath;
use netvale_port::listener::{Claim, ListenAddress, OpenError, connect_to_place};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketAddrUnix, sockopt};

use super::bound::BoundSocket;
use super::place::place_of_peer;
use super::{PeerArrival, PeerSource, SOCKET, SourceEvents};
use crate::line::SocketPeer;
use crate::sys::{GuestSender, sender_of_next};

/// The bytes that a peer may send before its first frame.
const MAGIC: &[u8; 4] = b"VFKT";
/// Interval at which the port checks that the peer still exists, as no event reports the end of a peer.
const LOOK: Duration = Duration::from_secs(1);
/// Maximum number of datagrams of rejected senders that are discarded in one call.
const DROPPED: usize = 64;

/// A socket for one guest at a time.
pub struct GuestSocket {
    bound: BoundSocket,
    /// Path of the guest's socket, and the device and inode of its file; `None` if no guest is connected.
    guest: Option<(UserPath, (u64, u64))>,
    next: Option<Instant>,
    is_lost: bool,
    events: Option<SourceEvents>,
    refused: Vec<String>,
    strangers: Vec<OwnedFd>,
}

impl GuestSocket {
    /// Binds the port's socket.
    ///
    /// # Errors
    /// [`OpenError`] if the path is not free or a system call fails.
    pub fn open(site: &ListenAddress) -> Result<GuestSocket, OpenError> {
        BoundSocket::open(site).map(Self::with)
    }

    /// Takes over a predecessor's socket.
    ///
    /// # Errors
    /// [`OpenError`] if the socket is of another type, or its file is not at the path.
    pub fn restore(site: &ListenAddress, socket: OwnedFd) -> Result<GuestSocket, OpenError> {
        BoundSocket::restore(site, socket).map(Self::with)
    }

    fn with(bound: BoundSocket) -> GuestSocket {
        let (refused, strangers) = Default::default();
        GuestSocket { bound, guest: None, next: None, is_lost: false, events: None, refused, strangers }
    }

    /// Turns the sender's credentials in received datagrams (`SO_PASSCRED`) on or off.
    fn ask(&self, on: bool) {
        // If this fails, the first datagram is refused.
        let _ = sockopt::set_socket_passcred(&**self.bound.socket(), on);
    }

    fn listen(&self, on: bool) {
        let Some(events) = &self.events else { return };
        events.remove(&**self.bound.socket());
        if on && events.add(&**self.bound.socket(), SOCKET, epoll::EventFlags::IN).is_ok() {
            self.ask(true);
        }
    }

    /// Discards the next datagram.
    fn forget_next(&mut self) {
        if let Ok(got) = netvale_fdio::receive(&**self.bound.socket(), &mut [0; 4], RecvFlags::DONTWAIT) {
            self.strangers.extend(got.fds);
        }
    }

    /// Connects to the sender of the next datagram. The returned error says why the sender's socket is refused.
    fn connect(&mut self, sender: &GuestSender) -> Result<(), String> {
        let folder = self.folder();
        let path = sender.path.as_deref().ok_or("the peer has no address: expected a socket bound to a path")?;
        let shown = path.display();
        let place = place_of_peer(path, sender.user, folder).ok_or_else(|| {
            format!("user {} may not use {shown}: expected a path in {}", sender.user, folder.display())
        })?;
        let found = place.open().and_then(|folder| folder.find()).map_err(|e| format!("{shown}: {e}"))?;
        connect_to_place(self.bound.socket(), &place).map_err(|e| format!("{shown}: {e}"))?;
        self.guest = Some((place, found.identity()));
        Ok(())
    }

    fn first(&mut self) -> Option<PeerArrival> {
        for _ in 0..DROPPED {
            let sender = match sender_of_next(self.bound.socket()) {
                Ok(sender) => sender,
                Err(Errno::ACCESS) => {
                    self.forget_next();
                    continue;
                }
                Err(_) => return None,
            };
            if let Err(why) = self.connect(&sender) {
                self.refused.push(why);
                self.forget_next();
                continue;
            }
            if sender.len == MAGIC.len() && sender.begins == *MAGIC {
                self.forget_next();
            }
            let who = format!("process {} of user {}", sender.process, sender.user);
            return Some(PeerArrival::of(self.begun(), Some(who)));
        }
        None
    }

    fn begun(&mut self) -> SocketPeer {
        self.listen(false);
        self.ask(false);
        self.next = Some(Instant::now() + LOOK);
        SocketPeer::datagrams(self.bound.socket())
    }

    /// Returns the path, and the device and inode of the file, of the socket to which a predecessor connected the
    /// port's socket. `None` if that guest is gone.
    fn found_again(&self) -> Option<(UserPath, (u64, u64))> {
        let name = rustix::net::getpeername(&**self.bound.socket()).ok()??;
        let name = SocketAddrUnix::try_from(name).ok()?;
        let path = PathBuf::from(OsString::from_vec(name.path()?.to_bytes().to_vec()));
        let found = UserPath::from(&*path).open().and_then(|folder| folder.find()).ok()?;
        let place = place_of_peer(&path, found.owner(), self.folder())?;
        Some((place, found.identity()))
    }

    fn folder(&self) -> &Path {
        self.bound.site().path().parent().unwrap_or(Path::new("/"))
    }

    fn is_still_there(&self) -> bool {
        let Some((place, file)) = &self.guest else { return false };
        let found = place.open().and_then(|folder| folder.find());
        found.is_ok_and(|found| found.identity() == *file) && connect_to_place(self.bound.socket(), place).is_ok()
    }

    /// Creates a new socket for the next guest; after a failure, schedules another attempt.
    fn renew(&mut self) {
        self.next = self.bound.renew().is_err().then(|| Instant::now() + LOOK);
        self.listen(self.bound.is_there());
    }
}

impl PeerSource for GuestSocket {
    fn watch(&mut self, events: SourceEvents) -> Result<(), Errno> {
        self.events = Some(events);
        self.listen(true);
        Ok(())
    }

    fn arrivals(&mut self, now: Instant, ready: &BTreeSet<u64>) -> Vec<PeerArrival> {
        let is_due = self.next.is_some_and(|next| now >= next);
        if is_due {
            self.next = Some(now + LOOK);
        }
        if self.guest.is_some() {
            self.is_lost |= is_due && !self.is_still_there();
            return Vec::new();
        }
        if is_due && !self.bound.is_there() {
            self.renew();
        }
        if ready.contains(&SOCKET) { self.first().into_iter().collect() } else { Vec::new() }
    }

    fn wait(&self, now: Instant) -> Duration {
        self.next.map_or(Duration::MAX, |next| next.saturating_duration_since(now))
    }

    fn goes_when_missed(&self) -> bool {
        true
    }

    fn leaving(&mut self) -> Vec<u16> {
        if std::mem::take(&mut self.is_lost) { vec![0] } else { Vec::new() }
    }

    fn left(&mut self, _number: u16, _now: Instant) {
        self.guest = None;
        self.listen(false);
        self.renew();
    }

    fn own_peer(&mut self) -> Option<SocketPeer> {
        self.guest = self.found_again();
        Some(self.begun())
    }

    fn save(&self) -> Vec<Fd> {
        vec![Fd::shared(self.bound.socket())]
    }

    fn claims(&self) -> Vec<Claim> {
        self.bound.claims()
    }

    fn refused(&mut self) -> Vec<String> {
        std::mem::take(&mut self.refused)
    }

    fn strangers(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.strangers)
    }
}
