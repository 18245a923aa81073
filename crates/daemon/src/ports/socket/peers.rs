//! Assigns peers to socket ports: each new peer gets a line (a place for one peer) of its port's exchange. This code
//! runs on the main thread.

use std::rc::Rc;
use std::time::{Duration, Instant};

use netvale_socket::{LeftPeer, PeerArrival, SocketLine};

use super::port::{SocketPort, close, line_name};
use crate::daemon::Daemon;
use crate::permission::{self, PermissionRequest};
use crate::ports::plug::{NewPort, plug};
use crate::registry::exchanges::{KnownExchange, LineTemplate};
use crate::registry::ports::SwitchPort;
use crate::system::closing;

/// Maximum length of a port's full name in bytes.
const MOST_NAME: usize = 63;

/// Serves the exchanges that have work. An exchange is the set of lines of one attached port. Returns the time until
/// the next call.
pub fn tick(d: &mut Daemon, now: Instant) -> Duration {
    serve(d, now);
    d.exchanges.wait(now)
}

/// Assigns lines to new peers, and frees the lines of peers that have left.
pub fn serve(d: &mut Daemon, now: Instant) {
    let mut has_changed = false;
    for full in d.exchanges.due(now) {
        if let Some(mut known) = d.exchanges.take(&full) {
            has_changed |= serve_one(d, &mut known, now);
            d.exchanges.put_back(&full, known);
        }
    }
    if has_changed {
        // Wakes the main thread, which saves the change with the service manager and removes the learned addresses of
        // peers that have left.
        d.news.ring();
    }
}

fn serve_one(d: &mut Daemon, known: &mut KnownExchange, now: Instant) -> bool {
    let uid = known.template.owner.uid;
    let at = known.template.at.full();
    let arrivals = known.exchange.arrivals(now);
    let mut has_changed = end_peers(known, now);
    for arrival in arrivals {
        has_changed |= admit(d, known, arrival, now);
    }
    for why in known.exchange.source().refused() {
        tracing::warn!(at, uid, why, "refused a peer");
    }
    known.exchange.source().strangers().into_iter().for_each(|fd| closing::close(fd, uid));
    known.template.sockets.replace(known.exchange.save());
    has_changed
}

/// Disconnects peers that have left or broken a rule. Returns whether a peer was disconnected.
fn end_peers(known: &mut KnownExchange, now: Instant) -> bool {
    let KnownExchange { exchange, template } = known;
    let over = |(number, line): (&u16, &Rc<SocketLine>)| Some((*number, Rc::clone(line), exchange.over(line)?));
    let over: Vec<_> = exchange.lines().iter().filter_map(over).collect();
    let any = !over.is_empty();
    for (number, line, why) in over {
        let at = name_of(template, number);
        match &why {
            Some(why) => tracing::warn!(at, why, "disconnected a peer"),
            None => tracing::info!(at, "a peer has left"),
        }
        exchange.source().left(number, now);
        close(line.end(why), template.owner.uid);
    }
    any
}

/// Returns the full name of a line's port.
fn name_of(template: &LineTemplate, number: u16) -> String {
    let full = template.at.full();
    if number == 0 { full } else { line_name(template.kind, &full, number) }
}

/// Assigns a line to a peer, or refuses the peer. Returns true if the peer got a line.
fn admit(d: &mut Daemon, known: &mut KnownExchange, mut arrival: PeerArrival, now: Instant) -> bool {
    let at = known.template.at.full();
    let who = arrival.who.clone().unwrap_or_default();
    match seat(d, known, &mut arrival, now) {
        Ok(number) => {
            tracing::info!(at = name_of(&known.template, number), who, "a peer has connected");
            true
        }
        Err(why) => {
            tracing::warn!(at, who, why, "refused a peer");
            close(known.exchange.source().turn_away(arrival, now), known.template.owner.uid);
            false
        }
    }
}

fn seat(d: &mut Daemon, known: &mut KnownExchange, arrival: &mut PeerArrival, now: Instant) -> Result<u16, String> {
    let number = choose(known, arrival)?;
    let line = match known.exchange.lines().get(&number) {
        Some(line) => Rc::clone(line),
        None => new_line(d, known, number)?,
    };
    let peer = known.exchange.source().seat(arrival, number)?;
    let begun = line.begin(peer.clone(), arrival.who.clone(), arrival.about.clone());
    if begun.is_err() {
        known.exchange.source().left(number, now);
        close(LeftPeer::of(peer), known.template.owner.uid);
    }
    begun.map(|()| number)
}

/// Returns the number of the line for a peer: the line that the peer requests, else the free line that the peer had
/// before, else the first free line, else a new line.
fn choose(known: &KnownExchange, arrival: &PeerArrival) -> Result<u16, String> {
    let lines = known.exchange.lines();
    let has_room = lines.len() < known.template.most;
    let full = || format!("the limit of {} peers is reached: raise 'peers'", known.template.most);
    if let Some(number) = arrival.number {
        return match lines.get(&number) {
            Some(line) if line.is_taken() => Err(format!("port {number} already has a peer")),
            None if !has_room => Err(full()),
            _ => Ok(number),
        };
    }
    let free = || lines.iter().filter(|(_, line)| !line.is_taken() && !line.is_reserved());
    let had = free().find(|(_, line)| arrival.who.is_some() && line.story().who == arrival.who);
    if let Some((number, _)) = had.or_else(|| free().next()) {
        return Ok(*number);
    }
    let new = (known.template.first..u16::MAX).find(|number| !lines.contains_key(number));
    new.filter(|_| has_room).ok_or_else(full)
}

/// Creates another line, with a port. If the attached port itself is not a line (VDE), the policies of the attached
/// port apply to new lines.
pub(super) fn new_line(d: &mut Daemon, known: &mut KnownExchange, number: u16) -> Result<Rc<SocketLine>, String> {
    let LineTemplate { at, kind, owner, domain, lossless, mut policies, rules, first, .. } = known.template.clone();
    if let Some(attached) = d.ports.get(&at.full()).filter(|_| first > 0) {
        policies = attached.given_policies();
    }
    let at = SwitchPort::new(&at.switch, line_name(kind, &at.port, number));
    if at.full().len() > MOST_NAME {
        return Err(format!("the port name {} is too long: expected at most {MOST_NAME} bytes", at.full()));
    }
    permission::admit(d, owner, PermissionRequest::Bring(&at)).map_err(|e| e.to_string())?;
    let (line, queues) = SocketLine::new(&rules, known.exchange.news()).map_err(|e| e.to_string())?;
    let line = Rc::new(line);
    let behind = Box::new(SocketPort::further(&known.template, number, &line));
    let new = NewPort { lossless, policies, ..NewPort::of(behind, owner).in_domain(domain) };
    plug(d, &at, queues, new).map_err(|e| e.to_string())?;
    known.exchange.add(number, Rc::clone(&line));
    Ok(line)
}
