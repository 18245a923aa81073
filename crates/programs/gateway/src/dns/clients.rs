//! Guests that ask by TCP: each connection ends here, at the other end of a pair of sockets whose first end is a TCP
//! flow's.

use std::io::ErrorKind;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use netvale_wire::MacAddr;

use super::{NameAsker, NameService, framed};
use crate::core::{GatewayCore, NewNameClient};
use crate::dhcp::leases::LeaseTable;
use crate::poller::{WatchMode, WatchedThing};
use crate::slots::SlotId;
use crate::timers::TimedThing;

/// Connections of all guests.
const MAX_CLIENTS: usize = 1024;
/// How long one stays without a question (RFC 7766 §6.2.3).
const IDLE: Duration = Duration::from_secs(20);
/// Bytes of a message with its length.
const MAX_FRAMED: usize = 2 + u16::MAX as usize;

/// A connection.
pub struct NameClient {
    mac: MacAddr,
    stream: UnixStream,
    inbox: Vec<u8>,
    outbox: Vec<u8>,
    /// Whether a question is under way; the next one waits.
    asked: bool,
    ended: bool,
    used: Instant,
}

impl NameService {
    /// Takes a connection.
    pub fn accept(&mut self, core: &mut GatewayCore, client: NewNameClient) {
        if self.clients.len() >= MAX_CLIENTS || client.stream.set_nonblocking(true).is_err() {
            tracing::debug!("{}: too many connections to the name service", client.guest);
            return;
        }
        let id = self.clients.insert(NameClient {
            mac: client.mac,
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

    /// Takes what a connection brings, and sends what waits for it.
    pub fn client_ready(&mut self, core: &mut GatewayCore, leases: Option<&LeaseTable>, id: SlotId) {
        let Some(client) = self.clients.get(id) else { return };
        let kept = client.write() && client.read();
        if !kept {
            self.clients.remove(id);
            return;
        }
        self.ask_of_client(core, leases, id);
    }

    /// Asks the next question of a connection that has none under way.
    fn ask_of_client(&mut self, core: &mut GatewayCore, leases: Option<&LeaseTable>, id: SlotId) {
        // A guest's messages come one after the other; those answered here take no time.
        while let Some(client) = self.clients.get(id).filter(|client| !client.asked) {
            let Some(message) = framed(&client.inbox).map(<[u8]>::to_vec) else { break };
            client.inbox.drain(..2 + message.len());
            client.asked = true;
            client.used = core.now;
            let mac = client.mac;
            self.take(core, leases, mac, NameAsker::Connection(id), &message);
        }
        if self.clients.get(id).is_some_and(|client| client.is_done()) {
            self.clients.remove(id);
        }
    }

    /// Gives a connection its answer. Without one, the connection ends.
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

    /// Goes on with connections whose answers have come.
    pub fn go_on(&mut self, core: &mut GatewayCore, leases: Option<&LeaseTable>) {
        for id in std::mem::take(&mut core.asked_again) {
            self.client_ready(core, leases, id);
        }
    }

    /// Ends a connection that has been idle.
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

    /// Reads up to a message. Returns whether the connection stays.
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

    /// Sends what waits. Returns whether the connection stays.
    fn write(&mut self) -> bool {
        while !self.outbox.is_empty() {
            match self.stream.write(&self.outbox) {
                Ok(count) => drop(self.outbox.drain(..count)),
                Err(error) => return matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
            }
        }
        // Who asks without reading the answers has none to come.
        self.outbox.len() < 4 * MAX_FRAMED
    }
}
