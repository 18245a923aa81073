//! Events on their way to those who subscribed. A connection has at most [`CHUNK`] bytes of them between its queue and
//! its socket: one that does not read is left alone until it does.

use std::os::fd::AsFd;

use netvale_control::types::EventName;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::SendFlags;

use super::{Client, Server};
use crate::daemon::Daemon;
use crate::ports::looking;
use crate::registry::events::Happened;

/// Most bytes of events that are taken from a queue at a time.
const CHUNK: usize = 16 << 10;

impl Server {
    /// Sends events that wait to those who read.
    pub(super) fn deliver(&mut self) {
        for id in self.daemon.events.waiting() {
            let Some((Client::Control { fd, unsent, .. }, _)) = self.clients.get_mut(&id) else {
                self.daemon.events.forget(id);
                continue;
            };
            // What it has not read yet comes first: its socket says when.
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
        let Some((Client::Control { fd, unsent, ended, .. }, _)) = self.clients.get(&id) else { return };
        if !unsent.is_empty() && !ended {
            let flags = epoll::EventFlags::RDHUP | epoll::EventFlags::IN | epoll::EventFlags::OUT;
            // Fails for no descriptor that is in the set.
            let _ = epoll::modify(&self.epoll, fd, epoll::EventData::new_u64(id), flags);
        }
    }

    /// All events that wait are put behind what their connections have not read yet, to go to a successor together with
    /// that.
    pub(super) fn collect_events(&mut self) {
        for id in self.daemon.events.waiting() {
            if let Some((Client::Control { unsent, .. }, _)) = self.clients.get_mut(&id) {
                self.daemon.events.fill(id, unsent, usize::MAX);
            }
            // There may be no successor after all.
            self.wait_for_room(id);
        }
    }

    /// The daemon ends, for that reason.
    pub(super) fn tell_ending(&mut self, why: &str) {
        self.daemon.events.tell(Happened::to_all(EventName::DaemonEnding).why(why));
        self.deliver();
    }

    /// This process goes on in the place of another one, whose subscriptions it has.
    pub(crate) fn tell_continued(&mut self) {
        if self.daemon.events.are_watched() {
            looking::begin(&mut self.daemon);
            let pid = rustix::process::getpid().as_raw_nonzero().get();
            let continued = Happened::to_all(EventName::DaemonContinued).with("pid", pid);
            self.daemon.events.tell(continued.with("version", env!("CARGO_PKG_VERSION")));
        }
        self.deliver();
    }
}

/// Sends events that wait, until there are none or the socket has no room. Returns whether to keep the connection.
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
