//! Delivery of events to subscribers. At most [`CHUNK`] bytes of events are in transit between a connection's queue and
//! its socket. A client that does not read gets no more until it does.

use std::os::fd::AsFd;

use netvale_control::types::EventName;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::SendFlags;

use super::{ClientConnection, DaemonServer};
use crate::daemon::Daemon;
use crate::ports::looking;
use crate::registry::events::NewEvent;

/// Maximum number of event bytes taken from a queue at a time.
const CHUNK: usize = 16 << 10;

impl DaemonServer {
    /// Sends queued events to all clients that read.
    pub(super) fn deliver(&mut self) {
        for id in self.daemon.events.waiting() {
            let Some((ClientConnection::Control { fd, unsent, .. }, _)) = self.clients.get_mut(&id) else {
                self.daemon.events.forget(id);
                continue;
            };
            // Unread bytes go first. The socket reports when it has room.
            if !unsent.is_empty() {
                continue;
            }
            if send(&mut self.daemon, fd, id, unsent) {
                self.wait_for_room(id);
            } else {
                self.hang_up(id);
            }
        }
    }

    fn wait_for_room(&self, id: u64) {
        let Some((ClientConnection::Control { fd, unsent, ended, .. }, _)) = self.clients.get(&id) else { return };
        if !unsent.is_empty() && !ended {
            let flags = epoll::EventFlags::RDHUP | epoll::EventFlags::IN | epoll::EventFlags::OUT;
            // Cannot fail for a descriptor in the set.
            let _ = epoll::modify(&self.epoll, fd, epoll::EventData::new_u64(id), flags);
        }
    }

    /// Appends all queued events to the unread bytes of their connections, for the hand-over.
    pub(super) fn collect_events(&mut self) {
        for id in self.daemon.events.waiting() {
            if let Some((ClientConnection::Control { unsent, .. }, _)) = self.clients.get_mut(&id) {
                self.daemon.events.fill(id, unsent, usize::MAX);
            }
            // The hand-over may still fail, and this process may then send them.
            self.wait_for_room(id);
        }
    }

    /// Sends subscribers the event that the daemon ends, with the reason.
    pub(super) fn tell_ending(&mut self, why: &str) {
        self.daemon.events.tell(NewEvent::to_all(EventName::DaemonEnding).why(why));
        self.deliver();
    }

    /// Sends inherited subscriptions the event that this process has taken over.
    pub(crate) fn tell_continued(&mut self) {
        if self.daemon.events.are_watched() {
            looking::begin(&mut self.daemon);
            let pid = rustix::process::getpid().as_raw_nonzero().get();
            let continued = NewEvent::to_all(EventName::DaemonContinued).with("pid", pid);
            self.daemon.events.tell(continued.with("version", env!("CARGO_PKG_VERSION")));
        }
        self.deliver();
    }
}

/// Sends queued events until the queue is empty or the socket is full. Returns whether to keep the connection.
fn send(d: &mut Daemon, fd: &impl AsFd, id: u64, unsent: &mut Vec<u8>) -> bool {
    loop {
        d.events.fill(id, unsent, CHUNK);
        if unsent.is_empty() {
            return true;
        }
        match rustix::net::send(fd, unsent, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(n) => drop(unsent.drain(..n)),
            Err(Errno::AGAIN | Errno::INTR) => return true,
            Err(_) => return false,
        }
        if !unsent.is_empty() {
            return true;
        }
    }
}
