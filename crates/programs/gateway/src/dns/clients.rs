//! DNS clients that use TCP. A guest's connection ends at a TCP flow of the gateway. The flow passes the connection's
//! bytes through a socket pair to the name service, whose end of the pair is handled here.

use std::io::ErrorKind;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::{NameAsker, NameService, framed};
use crate::core::{GatewayCore, NewNameClient};
use crate::dhcp::DhcpServers;
use crate::guests::{GuestId, GuestResource, NetworkId};
use crate::poller::{WatchMode, WatchedThing};
use crate::slots::SlotId;
use crate::timers::TimedThing;

/// Maximum number of TCP connections to the name service, of all guests together.
const MAX_CLIENTS: usize = 1024;
/// Time for which a connection without an unanswered question stays open (RFC 7766 §6.2.3).
const IDLE: Duration = Duration::from_secs(20);
/// Maximum length of a message in bytes, including the two bytes of its length field.
const MAX_FRAMED: usize = 2 + u16::MAX as usize;

/// A guest's TCP connection to the name service.
pub struct NameClient {
    /// The guest's address and port.
    pub(super) guest: SocketAddr,
    /// The gateway's address and port, to which the guest has connected.
    pub(super) own: SocketAddr,
    who: GuestId,
    stream: UnixStream,
    inbox: Vec<u8>,
    outbox: Vec<u8>,
    /// Whether a question is unanswered. If so, further questions wait in `inbox`.
    asked: bool,
    ended: bool,
    used: Instant,
}

impl NameService {
    /// Accepts and watches a guest's new connection, or closes it if there are too many connections.
    pub fn accept(&mut self, core: &mut GatewayCore, client: NewNameClient) {
        if self.clients.len() >= MAX_CLIENTS || client.stream.set_nonblocking(true).is_err() {
            tracing::debug!("{}: too many connections to the name service", client.guest);
            return;
        }
        let id = self.clients.insert(NameClient {
            guest: client.guest,
            own: client.own,
            who: client.who,
            stream: client.stream,
            inbox: Vec::new(),
            outbox: Vec::new(),
            asked: false,
            ended: false,
            used: core.now,
        });
        core.timers.add(core.now + IDLE, TimedThing::NameClient(id));
        let watched = self
            .clients
            .get(id)
            .map(|client| core.poller.add(&client.stream, WatchedThing::NameClient(id), WatchMode::Changes));
        if !matches!(watched, Some(Ok(()))) {
            self.clients.remove(id);
        }
    }

    /// Serves a connection that is readable or writable: sends queued answers and reads questions.
    pub fn client_ready(&mut self, core: &mut GatewayCore, leases: Option<&DhcpServers>, id: SlotId) {
        let Some(client) = self.clients.get(id) else { return };
        let kept = client.write() && client.read();
        if !kept {
            self.clients.remove(id);
            return;
        }
        self.ask_of_client(core, leases, id);
    }

    /// Begins the next question on a connection, unless an earlier question is unanswered.
    fn ask_of_client(&mut self, core: &mut GatewayCore, leases: Option<&DhcpServers>, id: SlotId) {
        // A connection has one question at a time. The loop continues after a question that is answered locally, as
        // that is complete when `take` returns.
        while let Some(client) = self.clients.get(id).filter(|client| !client.asked) {
            let Some(message) = framed(&client.inbox).map(<[u8]>::to_vec) else { break };
            client.inbox.drain(..2 + message.len());
            client.asked = true;
            client.used = core.now;
            let who = client.who;
            self.take(core, leases, who, NameAsker::Connection(id), &message);
        }
        if self.clients.get(id).is_some_and(|client| client.is_done()) {
            self.clients.remove(id);
        }
    }

    /// Sends the answer to a connection's question. If there is no answer (`None`), closes the connection.
    pub(super) fn answer_client(&mut self, core: &mut GatewayCore, id: SlotId, answer: Option<&[u8]>) {
        let Some(client) = self.clients.get(id) else { return };
        client.asked = false;
        client.used = core.now;
        let Some(answer) = answer.filter(|answer| answer.len() <= usize::from(u16::MAX)) else {
            self.clients.remove(id);
            return;
        };
        client.outbox.extend_from_slice(&(answer.len() as u16).to_be_bytes());
        client.outbox.extend_from_slice(answer);
        if !client.write() {
            self.clients.remove(id);
            return;
        }
        core.asked_again.push(id);
    }

    /// Ends the questions and the connections of a network's guests.
    pub fn forget(&mut self, core: &mut GatewayCore, network: NetworkId) {
        for id in self.questions.ids_of(|question| question.who.network == network) {
            if let Some(question) = self.questions.remove(id) {
                core.guests.give_back(question.who, GuestResource::Question);
            }
        }
        for id in self.clients.ids_of(|client| client.who.network == network) {
            self.clients.remove(id);
        }
    }

    /// Serves the connections whose question was just answered, so that their next questions begin.
    pub fn go_on(&mut self, core: &mut GatewayCore, leases: Option<&DhcpServers>) {
        for id in std::mem::take(&mut core.asked_again) {
            self.client_ready(core, leases, id);
        }
    }

    /// Called when a connection's timer expires. Closes the connection if it has been idle for too long; otherwise
    /// restarts the timer.
    pub fn client_timer(&mut self, core: &mut GatewayCore, id: SlotId) {
        let Some(client) = self.clients.get(id) else { return };
        let end = client.used + IDLE;
        if end <= core.now {
            self.clients.remove(id);
        } else {
            core.timers.add(end, TimedThing::NameClient(id));
        }
    }
}

impl NameClient {
    fn is_done(&self) -> bool {
        self.ended && !self.asked && self.outbox.is_empty()
    }

    /// Reads until no bytes are left, or `inbox` has the maximum length of a message. Returns `false` if the connection
    /// has failed.
    fn read(&mut self) -> bool {
        let mut bytes = [0; 4096];
        while self.inbox.len() < MAX_FRAMED && !self.ended {
            match self.stream.read(&mut bytes) {
                Ok(0) => self.ended = true,
                Ok(count) => self.inbox.extend_from_slice(&bytes[..count]),
                Err(error) => return matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
            }
        }
        true
    }

    /// Sends queued answers. Returns `false` if the connection has failed, or the client does not read its answers.
    fn write(&mut self) -> bool {
        while !self.outbox.is_empty() {
            match self.stream.write(&self.outbox) {
                Ok(count) => drop(self.outbox.drain(..count)),
                Err(error) => return matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
            }
        }
        // The connection of a client that sends questions without reading the answers is closed.
        self.outbox.len() < 4 * MAX_FRAMED
    }
}
