//! Delivery of events to subscribers. At most [`CHUNK`] bytes of events are taken from a connection's queue until the
//! socket has accepted them. If the client does not read, the other events stay in the queue.

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
            // Bytes of answers that are not sent yet precede the events. epoll reports when the socket has room for
            // them.
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
            // This cannot fail, because the descriptor is in the set.
            let _ = epoll::modify(&self.epoll, fd, epoll::EventData::new_u64(id), flags);
        }
    }

    /// Appends all queued events to the unsent bytes of their connections, for the hand-over.
    pub(super) fn collect_events(&mut self) {
        for id in self.daemon.events.waiting() {
            if let Some((ClientConnection::Control { unsent, .. }, _)) = self.clients.get_mut(&id) {
                self.daemon.events.fill(id, unsent, usize::MAX);
            }
            // If the hand-over fails, this process sends these bytes.
            self.wait_for_room(id);
        }
    }

    /// Sends subscribers the event that reports that the daemon ends, with the reason.
    pub(super) fn tell_ending(&mut self, why: &str) {
        self.daemon.events.tell(NewEvent::to_all(EventName::DaemonEnding).why(why));
        self.deliver();
    }

    /// Sends the subscribers that the predecessor had the event that reports that this process has taken over.
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

/// Sends queued events until the queue is empty or the socket is full. Returns false if the connection is broken and
/// must be closed.
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
