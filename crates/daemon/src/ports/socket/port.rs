//! Backend of a socket port. Each peer of an attached port has a *line*, which is a place for one peer. All lines of
//! the attached port are an *exchange*. The attached port is usually the first line; each further line has a separate
//! port.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use netvale_control::types::{PortInfo, PortKind, VdeInfo, VdePlug};
use netvale_fdio::state::{Fd, State};
use netvale_port::listener::Claim;
use netvale_socket::exchange::user_of;
use netvale_socket::line::PEER_MEMORY;
use netvale_socket::{FrameRules, LeftPeer, LineState, LineStory, SocketLine};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::daemon::{Daemon, PortBackend, PortPeers};
use crate::handover::items::{ParkedPort, PortItem};
use crate::ports::kind::{Continuation, place_of};
use crate::ports::plug::{NewPort, plug, unplug};
use crate::refusal::{Refusal, refuse};
use crate::registry::exchanges::{KnownExchange, LineTemplate};
use crate::registry::ports::SwitchPort;
use crate::system::closing;

/// Default MTU of peers.
pub(super) const USUAL_MTU: u32 = 1500;

/// Returns the name of the port for a further line; the attached port is `port`.
pub(super) fn line_name(kind: PortKind, port: &str, number: u16) -> String {
    if kind == PortKind::Vde { format!("{port}{number:04}") } else { format!("{port}-{number}") }
}

/// Closes the descriptors of a peer that has left. A separate thread closes them, because close(2) may block.
pub(super) fn close(left: LeftPeer, uid: u32) {
    let LeftPeer { sockets, strangers } = left;
    let sockets = sockets.into_iter().filter_map(Arc::into_inner);
    sockets.chain(strangers).for_each(|fd| closing::close(fd, uid));
}

/// Claims of a predecessor's socket files. When this value is dropped, the files become this process's own files.
pub(super) struct SocketClaims(pub(super) Vec<Claim>);

impl Drop for SocketClaims {
    fn drop(&mut self) {
        self.0.iter().for_each(Claim::take);
    }
}

/// The kinds of socket ports.
const KINDS: [PortKind; 5] =
    [PortKind::Stream, PortKind::Dgram, PortKind::Seqpacket, PortKind::Unixgram, PortKind::Vde];

/// Backend of a socket port.
pub(super) struct SocketPort {
    kind: PortKind,
    /// Full name of the attached port, to whose exchange the port belongs.
    exchange: String,
    number: u16,
    uid: u32,
    /// The port's line; `None` for the attached port of a VDE switch, which has no line.
    line: Option<Rc<SocketLine>>,
    rules: Arc<FrameRules>,
    /// Copies of the exchange's current sockets, to be saved; `None` for the port of a further line.
    sockets: Option<Rc<RefCell<Vec<Fd>>>>,
}

/// The state from which another process restores the port.
#[derive(Serialize, Deserialize)]
pub(super) struct SocketState {
    /// Full name of the attached port, to whose exchange the port belongs.
    pub exchange: String,
    /// Number of the port's line.
    pub number: u16,
    /// Sockets of the exchange; empty for the port of a further line.
    pub sockets: Vec<Fd>,
    pub line: Option<LineState>,
}

impl SocketPort {
    /// Creates the backend of the attached port.
    pub(super) fn first(template: &LineTemplate, line: Option<Rc<SocketLine>>) -> SocketPort {
        SocketPort { line, sockets: Some(Rc::clone(&template.sockets)), ..SocketPort::of(template, 0) }
    }

    /// Creates the backend of the port for a further line.
    pub(super) fn further(template: &LineTemplate, number: u16, line: &Rc<SocketLine>) -> SocketPort {
        SocketPort { line: Some(Rc::clone(line)), ..SocketPort::of(template, number) }
    }

    fn of(template: &LineTemplate, number: u16) -> SocketPort {
        SocketPort {
            kind: template.kind,
            exchange: template.at.full(),
            number,
            uid: template.owner.uid,
            line: None,
            rules: Arc::clone(&template.rules),
            sockets: None,
        }
    }

    /// Whether the port is the attached port, which stands for a whole VDE switch; false for the ports that stand for
    /// single plugs of the switch.
    pub(super) fn is_vde_switch(&self) -> bool {
        self.kind == PortKind::Vde && self.sockets.is_some()
    }

    fn state(&self, line: Option<LineState>) -> std::io::Result<State> {
        let sockets = self.sockets.as_ref().map(|sockets| sockets.borrow().clone()).unwrap_or_default();
        Ok(State::of(&SocketState { exchange: self.exchange.clone(), number: self.number, sockets, line })?)
    }
}

impl PortBackend for SocketPort {
    fn kind(&self) -> PortKind {
        self.kind
    }

    fn describe(&self, info: &mut PortInfo) {
        let Some(line) = self.line.as_ref().filter(|_| self.kind == PortKind::Vde) else { return };
        let LineStory { connections, who, about, .. } = line.story();
        let user = who.as_deref().and_then(user_of);
        let who = who.unwrap_or_default();
        let about = about.unwrap_or_default();
        let plug = VdePlug { count: connections, who, user, about };
        let plug = line.is_taken().then_some(plug);
        info.detail = Some(VdeInfo { number: self.number, reserved: line.is_reserved(), plug }.into());
    }

    fn notes(&self) -> Vec<String> {
        let Some(line) = &self.line else {
            let first = line_name(self.kind, &self.exchange, 1);
            return vec![format!("each peer has a port of its own: {first} and so on")];
        };
        let LineStory { connections, last_error, who, about } = line.story();
        let mut notes = vec![if line.is_taken() {
            format!("peer connected: {}", who.as_deref().unwrap_or("unknown"))
        } else {
            format!("waits for a peer; connections: {connections}")
        }];
        if line.is_taken() {
            notes.extend(about.map(|about| format!("the peer's description: {about}")));
            notes.extend((connections > 1).then(|| format!("earlier peers: {}", connections - 1)));
        }
        if line.is_reserved() {
            notes.push(format!("reserved for plugs that request number {}", self.number));
        }
        notes.extend(last_error.map(|why| format!("the last peer was disconnected: {why}")));
        notes
    }

    fn memory(&self) -> u64 {
        if self.line.as_ref().is_some_and(|line| line.is_taken()) { PEER_MEMORY } else { 0 }
    }

    fn peers(&self) -> Option<PortPeers> {
        let line = self.line.as_ref()?;
        let LineStory { connections, last_error, .. } = line.story();
        Some(PortPeers { connected: line.is_taken(), connections, last_error })
    }

    fn link(&self) -> Option<bool> {
        self.line.as_ref().map(|line| line.is_taken())
    }

    fn comes_with(&self) -> Option<&str> {
        self.sockets.is_none().then_some(&self.exchange)
    }

    /// Sets the MTU of all ports of the exchange.
    fn set_mtu(&self, mtu: Option<u32>) -> Result<(), Refusal> {
        self.rules.set_mtu(mtu.unwrap_or(USUAL_MTU));
        Ok(())
    }

    fn save(&self) -> std::io::Result<Option<State>> {
        self.state(self.line.as_ref().map(|line| line.save())).map(Some)
    }

    fn save_parked(&self) -> std::io::Result<Option<ParkedPort>> {
        let line = match &self.line {
            None => None,
            Some(line) => {
                let Some(state) = line.save_parked() else { return Ok(None) };
                Some(state)
            }
        };
        Ok(Some(self.state(line)?.into()))
    }

    /// Disconnects the peer. If this port is the attached port, disconnects all peers of the exchange, and removes the
    /// peers' ports.
    fn stop(self: Box<Self>, d: &mut Daemon, full: &str) {
        if let Some(line) = &self.line {
            close(line.end(None), self.uid);
        }
        if self.sockets.is_none() {
            if let Some(known) = d.exchanges.get_mut(&self.exchange) {
                known.exchange.source().left(self.number, std::time::Instant::now());
                known.exchange.remove(self.number);
            }
            return;
        }
        let Some(known) = d.exchanges.remove(full) else { return };
        let others = known.exchange.lines().keys().filter(|number| **number > 0);
        let others: Vec<String> = others.map(|number| line_name(self.kind, full, *number)).collect();
        for other in others {
            // If the other port no longer exists, that is not an error.
            let _ = unplug(d, &other, "the port that created this one is detached");
        }
    }
}

/// Restores the ports of further lines, which an attached port has created.
pub const LINE: Continuation = Continuation {
    is_for: |item| KINDS.contains(&item.kind) && item.declared.is_none(),
    go_on: continue_line,
    is_last: false,
    is_still: false,
};

/// Restores a further line, whose attached port has already been restored.
fn continue_line(d: &mut Daemon, item: &PortItem, state: State) -> Result<(), Refusal> {
    let at = place_of(item)?;
    let state: SocketState = state.read()?;
    let Some(mut known) = d.exchanges.take(&state.exchange) else {
        return refuse(Errno::INVAL, format!("the port {}, which created this one, is missing", state.exchange));
    };
    let full = known.template.at.full();
    let done = restore(d, &mut known, item, &at, state);
    d.exchanges.put_back(&full, known);
    done
}

fn restore(
    d: &mut Daemon,
    known: &mut KnownExchange,
    item: &PortItem,
    at: &SwitchPort,
    state: SocketState,
) -> Result<(), Refusal> {
    let SocketState { number, line: Some(state), .. } = state else {
        return refuse(Errno::INVAL, "missing state of the peer's line");
    };
    let (line, queues) = SocketLine::new(&known.template.rules, known.exchange.news())?;
    let line = Rc::new(line);
    known.exchange.restore(number, Rc::clone(&line), state)?;
    d.held.push(Box::new(SocketClaims(known.exchange.source().claims())));
    let behind = Box::new(SocketPort::further(&known.template, number, &line));
    let PortItem { persistent, lossless, .. } = *item;
    let new = NewPort::of(behind, item.owner.into()).in_domain(known.template.domain);
    let plugged = plug(d, at, queues, NewPort { persistent, lossless, policies: item.policies.clone(), ..new });
    if plugged.is_err() {
        known.exchange.remove(number);
    }
    plugged
}
