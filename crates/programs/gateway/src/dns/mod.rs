//! The name service: it answers for names of the switch's network, and forwards all other questions to the host's name
//! servers.
//!
//! The asker of a question ([`NameAsker`]) is a guest's UDP port or TCP connection. A [`NameService`] forwards a
//! message with only its ID replaced, from a new socket for each question, so that source port and ID are random. An
//! answer from the asked server with the same question goes to the guest unchanged except for the ID, including unknown
//! record types, EDNS, the case of letters and the truncation flag. Questions that come by TCP are forwarded and
//! answered by TCP.
//!
//! The policy decides which names may be looked up at servers. The addresses in an answer are recorded for the guest
//! that asked, since rules may allow them by their names ([`answer`], [`resolved`](crate::resolved)).

pub mod answer;
pub mod clients;
pub mod message;
pub mod names;
pub mod resolv;
pub mod zones;

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use serde::{Deserialize, Serialize};

use self::clients::NameClient;
use self::message::{DnsOutcome, DnsQuery, ParsedQuery};
use self::names::LocalNames;
use self::resolv::ResolverFile;
use self::zones::DnsZones;
use crate::core::GatewayCore;
use crate::dhcp::DhcpServers;
use crate::flows::{FlowDirection, FlowEnds};
use crate::guests::{GuestId, GuestResource};
use crate::policy::FlowTransport;
use crate::poller::{Readiness, WatchMode, WatchedThing};
use crate::rates::{RateWay, datagram_cost};
use crate::slots::{NumberedValues, SlotId};
use crate::timers::TimedThing;

pub use self::resolv::PORT;

/// Maximum number of unanswered questions, of all guests together.
const MAX_QUESTIONS: usize = 4096;
/// Maximum number of datagrams that are read from a question's socket in a row. Only one datagram is the answer; all
/// others are forged.
const BATCH: usize = 16;

/// The origin of a question, to which the answer goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NameAsker {
    /// A UDP datagram from `guest` to `own`.
    Datagram {
        /// The guest's address and port.
        guest: SocketAddr,
        /// The gateway's address and port, to which the guest has sent the datagram.
        own: SocketAddr,
    },
    /// A guest's TCP connection to the name service.
    Connection(SlotId),
}

/// The exchange with the name server that is currently asked.
enum ServerExchange {
    None,
    Udp(OwnedFd),
    /// TCP, with a length of two bytes before each message. `sent` is the number of sent bytes of the length and the
    /// message; `got` has the received bytes.
    Tcp {
        socket: OwnedFd,
        sent: usize,
        got: Vec<u8>,
    },
}

struct NameQuestion {
    asker: NameAsker,
    who: GuestId,
    /// The guest's message, with the gateway's random ID.
    message: Vec<u8>,
    /// The ID that the guest has chosen.
    id: [u8; 2],
    /// Offset in `message` at which the question section ends.
    end: usize,
    /// Number of attempts that were made; each attempt asks the next server.
    tries: usize,
    until: Instant,
    exchange: ServerExchange,
    /// An answer with an error code, which the guest gets if no server gives a better answer.
    fallback: Option<Vec<u8>>,
}

/// Numbers of guests' DNS queries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct QueryCounts {
    /// Number of queries that the gateway itself answered, for names of the switch's network and of zones.
    pub own: u64,
    /// Number of queries that were forwarded to a name server. A forwarded query without an answer also counts as
    /// failed.
    pub forwarded: u64,
    /// Number of queries that were refused because no rule allows the name.
    pub refused: u64,
    /// Number of queries that failed, because they were malformed, exceeded a limit, or got no answer from any server.
    pub failed: u64,
}

/// The name service with its open questions and TCP connections.
pub struct NameService {
    questions: NumberedValues<NameQuestion>,
    clients: NumberedValues<NameClient>,
    file: ResolverFile,
    /// The user's zones.
    pub zones: DnsZones,
    /// Numbers of queries.
    pub counts: QueryCounts,
    scratch: Vec<u8>,
}

impl NameService {
    /// Creates a service that asks the name servers in `file`, which has the format of `resolv.conf`.
    pub fn new(file: &Path) -> Self {
        NameService {
            questions: NumberedValues::default(),
            clients: NumberedValues::default(),
            file: ResolverFile::new(file),
            zones: DnsZones::default(),
            counts: QueryCounts::default(),
            scratch: Vec::new(),
        }
    }

    /// Processes a guest's message: answers or refuses it, or forwards it to a server.
    pub fn take(
        &mut self,
        core: &mut GatewayCore,
        leases: Option<&DhcpServers>,
        who: GuestId,
        asker: NameAsker,
        bytes: &[u8],
    ) {
        let query = match message::parse_query(bytes) {
            ParsedQuery::Query(query) => query,
            ParsedQuery::Refused(outcome) => {
                self.counts.failed += 1;
                let answer = message::refusal(bytes, outcome);
                return self.deliver(core, who, asker, answer.as_deref());
            }
            ParsedQuery::Nothing => {
                self.counts.failed += 1;
                return self.deliver(core, who, asker, None);
            }
        };
        let leases = leases.map(|leases| leases.leases(who.network));
        let addresses = &core.neighbours;
        let names = LocalNames { net: &core.net, leases, addresses, zones: &self.zones, network: who.network };
        if let Some(answer) = names.answer(&query) {
            note_addresses(core, who, &query, &answer);
            self.counts.own += 1;
            return self.deliver(core, who, asker, Some(&answer));
        }
        if !core.policy.resolves(&query.name) {
            self.counts.refused += 1;
            return self.refuse(core, who, asker, &query);
        }
        if self.questions.len() >= MAX_QUESTIONS || !core.guests.take(who, GuestResource::Question) {
            self.counts.failed += 1;
            let answer = message::refusal(bytes, DnsOutcome::Failed);
            return self.deliver(core, who, asker, answer.as_deref());
        }
        self.counts.forwarded += 1;
        self.begin(core, who, asker, &query);
    }

    /// Refuses a question for a name that the policy does not allow.
    fn refuse(&mut self, core: &mut GatewayCore, who: GuestId, asker: NameAsker, query: &DnsQuery<'_>) {
        let ends = match asker {
            NameAsker::Datagram { guest, own } => Some((FlowTransport::Udp, guest, own)),
            NameAsker::Connection(id) => {
                self.clients.get(id).map(|client| (FlowTransport::Tcp, client.guest, client.own))
            }
        };
        if let Some((transport, guest, remote)) = ends {
            let ends = FlowEnds { transport, direction: FlowDirection::Out, who, guest, remote };
            core.flows.refused(&ends, Some(&query.name), "name", core.now);
        }
        let answer = message::refusal(query.bytes, DnsOutcome::Refused);
        self.deliver(core, who, asker, answer.as_deref());
    }

    /// Records a question, and sends it to the first server.
    fn begin(&mut self, core: &mut GatewayCore, who: GuestId, asker: NameAsker, query: &DnsQuery<'_>) {
        let id = self.questions.insert(NameQuestion {
            asker,
            who,
            message: query.bytes.to_vec(),
            id: query.id.to_be_bytes(),
            end: query.end,
            tries: 0,
            until: core.now,
            exchange: ServerExchange::None,
            fallback: None,
        });
        self.ask_next(core, id);
    }

    /// Asks the next server. If all attempts have been made, ends the question.
    fn ask_next(&mut self, core: &mut GatewayCore, id: SlotId) {
        let settings = self.file.settings(core.now);
        let most = settings.servers.len() * settings.attempts as usize;
        let timeout = settings.timeout;
        loop {
            let Some(question) = self.questions.get(id) else { return };
            if question.tries >= most {
                return self.give_up(core, id);
            }
            let server = settings.servers[question.tries % settings.servers.len()];
            question.tries += 1;
            let number = core.random.u16().to_be_bytes();
            question.message[..2].copy_from_slice(&number);
            question.until = core.now + timeout;
            if let Some(exchange) = question.begin(core, id, server) {
                question.exchange = exchange;
                core.timers.add(core.now + timeout, TimedThing::Question(id));
                return;
            }
        }
    }

    fn give_up(&mut self, core: &mut GatewayCore, id: SlotId) {
        let Some(question) = self.questions.get(id) else { return };
        let failed = || message::refusal(&question.message, DnsOutcome::Failed);
        let fallback = question.fallback.take();
        self.counts.failed += u64::from(fallback.is_none());
        let answer = fallback.or_else(failed);
        self.finish(core, id, answer);
    }

    /// Ends a question, and sends the guest the answer with the ID that the guest has chosen.
    fn finish(&mut self, core: &mut GatewayCore, id: SlotId, answer: Option<Vec<u8>>) {
        let Some(question) = self.questions.remove(id) else { return };
        if let (Some(answer), ParsedQuery::Query(query)) = (&answer, message::parse_query(&question.message)) {
            note_addresses(core, question.who, &query, answer);
        }
        core.guests.give_back(question.who, GuestResource::Question);
        let answer = answer.map(|mut bytes| {
            bytes[..2].copy_from_slice(&question.id);
            bytes
        });
        self.deliver(core, question.who, question.asker, answer.as_deref());
    }

    fn deliver(&mut self, core: &mut GatewayCore, who: GuestId, asker: NameAsker, answer: Option<&[u8]>) {
        match asker {
            NameAsker::Datagram { guest, own } => {
                let cost = |answer: &[u8]| datagram_cost(answer.len(), guest.is_ipv4());
                if let Some(answer) = answer.filter(|answer| core.passes(who, RateWay::Received, cost(answer))) {
                    core.send_datagram(who, own, guest, answer);
                }
            }
            NameAsker::Connection(id) => self.answer_client(core, id, answer),
        }
    }

    /// Reads a server's answer. If the answer is SERVFAIL, NOTIMP or REFUSED, asks the next server.
    pub fn ready(&mut self, core: &mut GatewayCore, id: SlotId, readiness: Readiness) {
        let heard = match self.questions.get(id) {
            Some(question) => question.hear(readiness, &mut self.scratch),
            None => return,
        };
        match heard {
            HeardAnswer::Nothing => {}
            HeardAnswer::Failure => self.ask_next(core, id),
            HeardAnswer::Answer(answer) => {
                let servers = self.file.settings(core.now).servers.len();
                match self.questions.get(id) {
                    Some(question) if message::is_no_help(&answer) && question.tries < servers => {
                        question.fallback = Some(answer);
                        self.ask_next(core, id);
                    }
                    _ => self.finish(core, id, Some(answer)),
                }
            }
        }
    }

    /// Called when a question's timer expires. Asks the next server if the current server has not answered in time.
    pub fn timer(&mut self, core: &mut GatewayCore, id: SlotId) {
        let Some(question) = self.questions.get(id) else { return };
        // If the current attempt still has time, the timer belongs to an earlier attempt.
        if question.until <= core.now {
            self.ask_next(core, id);
        }
    }
}

/// Records the addresses in an answer for the guest that has asked.
fn note_addresses(core: &mut GatewayCore, who: GuestId, query: &DnsQuery<'_>, answer: &[u8]) {
    core.resolved.record(who, &query.name, &answer::addresses(answer, query.kind), core.now);
}

enum HeardAnswer {
    Nothing,
    Failure,
    Answer(Vec<u8>),
}

impl NameQuestion {
    /// Opens a socket to a server. Over UDP, also sends the question; over TCP, the socket must connect first. Returns
    /// `None` if the server cannot be asked.
    fn begin(&self, core: &GatewayCore, id: SlotId, server: SocketAddr) -> Option<ServerExchange> {
        let family = if server.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let by_tcp = matches!(self.asker, NameAsker::Connection(_));
        let kind = if by_tcp { SocketType::STREAM } else { SocketType::DGRAM };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(family, kind, flags, None).ok()?;
        match rustix::net::connect(&socket, &server) {
            Ok(()) => {}
            Err(Errno::INPROGRESS) if by_tcp => {}
            Err(_) => return None,
        }
        let mode = if by_tcp { WatchMode::Changes } else { WatchMode::Readable };
        core.poller.add(&socket, WatchedThing::Question(id), mode).ok()?;
        if by_tcp {
            return Some(ServerExchange::Tcp { socket, sent: 0, got: Vec::new() });
        }
        rustix::net::send(&socket, &self.message, SendFlags::DONTWAIT).ok()?;
        Some(ServerExchange::Udp(socket))
    }

    fn is_answer(&self, answer: &[u8]) -> bool {
        message::is_answer(&self.message, self.end, answer)
    }

    fn hear(&mut self, readiness: Readiness, scratch: &mut Vec<u8>) -> HeardAnswer {
        match &self.exchange {
            ServerExchange::None => HeardAnswer::Nothing,
            ServerExchange::Udp(socket) => {
                for _ in 0..BATCH {
                    scratch.clear();
                    scratch.reserve(usize::from(u16::MAX));
                    let room = rustix::buffer::spare_capacity(scratch);
                    match rustix::net::recv(socket, room, RecvFlags::DONTWAIT) {
                        Ok(_) if self.is_answer(scratch) => return HeardAnswer::Answer(scratch.clone()),
                        Ok(_) => {}
                        Err(Errno::AGAIN | Errno::INTR) => return HeardAnswer::Nothing,
                        Err(_) => return HeardAnswer::Failure,
                    }
                }
                HeardAnswer::Nothing
            }
            ServerExchange::Tcp { .. } => self.hear_tcp(readiness, scratch),
        }
    }

    fn hear_tcp(&mut self, readiness: Readiness, scratch: &mut Vec<u8>) -> HeardAnswer {
        let ServerExchange::Tcp { socket, sent, got } = &mut self.exchange else { return HeardAnswer::Nothing };
        if readiness.writable && !send_framed(socket, &self.message, sent) {
            return HeardAnswer::Failure;
        }
        loop {
            scratch.clear();
            scratch.reserve(usize::from(u16::MAX));
            let room = rustix::buffer::spare_capacity(scratch);
            match rustix::net::recv(&*socket, room, RecvFlags::DONTWAIT) {
                Ok((_, 0)) => return HeardAnswer::Failure,
                Ok(_) => got.extend_from_slice(scratch),
                Err(Errno::AGAIN | Errno::INTR) => return HeardAnswer::Nothing,
                Err(_) => return HeardAnswer::Failure,
            }
            if let Some(answer) = framed(got) {
                let answer = answer.to_vec();
                let right = self.is_answer(&answer);
                return if right { HeardAnswer::Answer(answer) } else { HeardAnswer::Failure };
            }
        }
    }
}

/// Returns the first message in a TCP stream, without its length prefix; `None` if the message is incomplete.
fn framed(bytes: &[u8]) -> Option<&[u8]> {
    let (len, rest) = bytes.split_first_chunk::<2>()?;
    rest.get(..u16::from_be_bytes(*len).into())
}

/// Sends as much as possible of a message with its length prefix, and updates `sent`, the number of bytes that have
/// been sent. Returns `false` if the connection has failed.
fn send_framed(socket: &OwnedFd, message: &[u8], sent: &mut usize) -> bool {
    let bytes = [&(message.len() as u16).to_be_bytes()[..], message].concat();
    while *sent < bytes.len() {
        match rustix::net::send(socket, &bytes[*sent..], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(count) => *sent += count,
            Err(Errno::AGAIN | Errno::INTR | Errno::NOTCONN) => return true,
            Err(_) => return false,
        }
    }
    true
}
