//! Events, and the subscriptions to them.
//!
//! Each subscription has a bounded queue. If the client does not read, events are dropped and counted, and a
//! notification reports the number of dropped events in their place. A stalled client therefore delays no other client,
//! and takes no more of the daemon's memory than its queue.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use netvale_control::types::{EventName, NOTIFICATION, Owner, SubscribeParams};
use netvale_portspec::{SwitchName, printable};
use serde::Serialize;
use serde_json::{Map, Value};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

use crate::caller::{Caller, is_trusted_user};

/// Maximum size of a subscription's queue: number of events, and number of bytes.
const MOST_WAITING: (usize, usize) = (1024, 256 << 10);
/// Maximum length of a reason in characters.
const LONGEST: usize = 300;

/// An event under construction.
pub struct NewEvent {
    name: EventName,
    /// The user whom the event concerns; `None`: all users.
    uid: Option<u32>,
    switch: Option<String>,
    port: Option<String>,
    by: Option<Caller>,
    why: Option<String>,
    details: Map<String, Value>,
}

impl NewEvent {
    /// Creates an event for all users.
    pub fn to_all(name: EventName) -> NewEvent {
        NewEvent { name, uid: None, switch: None, port: None, by: None, why: None, details: Map::new() }
    }

    /// Creates an event for one user. Root and the daemon's own user receive it as well.
    pub fn to(name: EventName, uid: u32) -> NewEvent {
        NewEvent { uid: Some(uid), ..NewEvent::to_all(name) }
    }

    /// Sets the port that the event concerns, and that port's switch.
    #[must_use]
    pub fn at(self, full: &str) -> NewEvent {
        NewEvent { switch: SwitchName::of_port(full).map(str::to_owned), port: Some(full.to_owned()), ..self }
    }

    /// Sets the switch that the event concerns.
    #[must_use]
    pub fn on(self, switch: &str) -> NewEvent {
        NewEvent { switch: Some(switch.to_owned()), ..self }
    }

    /// Sets the caller who caused the event.
    #[must_use]
    pub fn by(self, caller: Caller) -> NewEvent {
        NewEvent { by: Some(caller), ..self }
    }

    /// Sets the reason, which may contain text from a caller.
    #[must_use]
    pub fn why(self, why: &str) -> NewEvent {
        NewEvent { why: Some(printable(why).chars().take(LONGEST).collect()), ..self }
    }

    /// Adds a field from the list of [`EventName::details`].
    #[must_use]
    pub fn with(mut self, detail: &str, value: impl Serialize) -> NewEvent {
        debug_assert!(self.name.details().contains(&detail), "{detail} is not a field of {:?}", self.name);
        // Serialising numbers, names and maps cannot fail.
        self.details.insert(detail.to_owned(), serde_json::to_value(value).unwrap_or_default());
        self
    }

    /// Returns the event's name.
    #[cfg(test)]
    pub fn name(&self) -> EventName {
        self.name
    }

    fn is_for(&self, caller: Caller, params: &SubscribeParams) -> bool {
        let is_seen = self.uid.is_none_or(|uid| uid == caller.uid) || is_trusted_user(caller.uid);
        let is = |place: &Option<String>, name: &String| place.as_ref() == Some(name);
        let is_there = |name: &String| is(&self.switch, name) || is(&self.port, name);
        is_seen
            && (params.names.is_empty() || params.names.iter().any(|name| self.name.is_meant(name)))
            && (params.only.is_empty() || params.only.iter().any(is_there))
    }

    /// Returns the notification as a line of JSON, but without the sequence number, which each subscription adds.
    fn line(self) -> Arc<str> {
        #[derive(Serialize)]
        struct EventBody {
            time: String,
            now_ns: u64,
            name: &'static str,
            #[serde(skip_serializing_if = "Option::is_none")]
            switch: Option<String>,
            #[serde(skip_serializing_if = "Option::is_none")]
            port: Option<String>,
            #[serde(skip_serializing_if = "Option::is_none")]
            by: Option<Owner>,
            #[serde(skip_serializing_if = "Option::is_none")]
            why: Option<String>,
            #[serde(flatten)]
            details: Map<String, Value>,
        }
        let NewEvent { name, switch, port, by, why, details, .. } = self;
        let by = by.map(|caller| Owner { uid: caller.uid, pid: caller.pid });
        let time = wall_clock();
        let name = name.as_str();
        let rest = EventBody { time, now_ns: now_ns(), name, switch, port, by, why, details };
        // Serialising strings, numbers and maps cannot fail.
        let text = serde_json::to_string(&rest).unwrap_or_default();
        format!("{}}}\n", text.strip_prefix('{').unwrap_or_default()).into()
    }
}

/// Returns the time of the monotonic clock in nanoseconds.
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Returns the time of day in UTC, in the log's format.
fn wall_clock() -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut text));
    text
}

/// A connection's subscription.
struct Subscription {
    caller: Caller,
    params: SubscribeParams,
    /// Sequence number of the subscription's last event.
    sequence: u64,
    waiting: VecDeque<(u64, Arc<str>)>,
    bytes: usize,
    /// Number of events dropped since the last event was queued.
    lost: u64,
}

impl Subscription {
    fn push(&mut self, line: &Arc<str>) {
        self.sequence += 1;
        let (events, bytes) = MOST_WAITING;
        if self.waiting.len() >= events || self.bytes + line.len() > bytes {
            self.lost += 1;
            return;
        }
        if self.lost > 0 {
            self.tell_lost(self.sequence - 1);
        }
        self.add(self.sequence, Arc::clone(line));
    }

    fn add(&mut self, sequence: u64, line: Arc<str>) {
        self.bytes += line.len();
        self.waiting.push_back((sequence, line));
    }

    /// Queues the notification that events were dropped; `last` is the sequence number of the last dropped event.
    fn tell_lost(&mut self, last: u64) {
        let lost = std::mem::take(&mut self.lost);
        self.add(last, NewEvent::to_all(EventName::EventsLost).with("lost", lost).line());
    }

    /// Moves queued notifications to `into`, until `into` contains at least `most` bytes.
    fn fill(&mut self, into: &mut Vec<u8>, most: usize) {
        while into.len() < most {
            let Some((sequence, line)) = self.waiting.pop_front() else { return };
            self.bytes -= line.len();
            let head = format!(r#"{{"jsonrpc":"2.0","method":"{NOTIFICATION}","params":{{"sequence":{sequence},"#);
            into.extend_from_slice(head.as_bytes());
            into.extend_from_slice(line.as_bytes());
            if self.waiting.is_empty() && self.lost > 0 {
                self.tell_lost(self.sequence);
            }
        }
    }
}

/// All subscriptions, by connection.
#[derive(Default)]
pub struct Subscriptions(BTreeMap<u64, Subscription>);

impl Subscriptions {
    /// Whether any subscription exists.
    pub fn are_watched(&self) -> bool {
        !self.0.is_empty()
    }

    /// Returns the number of subscriptions, in total and of that user.
    pub fn counts(&self, uid: u32) -> (usize, usize) {
        (self.0.len(), self.0.values().filter(|one| one.caller.uid == uid).count())
    }

    /// Whether that connection has a subscription.
    pub fn has(&self, client: u64) -> bool {
        self.0.contains_key(&client)
    }

    /// Subscribes a connection to events; the first event gets the sequence number `sequence` + 1. If the connection
    /// already has a subscription, only the filters of that subscription are replaced. Returns the sequence number of
    /// the connection's last event.
    pub fn subscribe(&mut self, caller: Caller, params: SubscribeParams, sequence: u64) -> u64 {
        let new = || {
            let waiting = VecDeque::new();
            let params = SubscribeParams::default();
            Subscription { caller, params, sequence, waiting, bytes: 0, lost: 0 }
        };
        let one = self.0.entry(caller.client).or_insert_with(new);
        one.params = SubscribeParams { snapshot: false, ..params };
        one.sequence
    }

    /// Returns a connection's filters and the sequence number of its last event, for a successor; `None` if the
    /// connection has no subscription.
    pub fn subscription(&self, client: u64) -> Option<(SubscribeParams, u64)> {
        self.0.get(&client).map(|one| (one.params.clone(), one.sequence))
    }

    /// Ends the subscription of a connection.
    pub fn forget(&mut self, client: u64) {
        self.0.remove(&client);
    }

    /// Queues an event for each subscription whose filters admit the event.
    pub fn tell(&mut self, what: NewEvent) {
        let mut wanting = self.0.values_mut().filter(|one| what.is_for(one.caller, &one.params)).peekable();
        if wanting.peek().is_none() {
            return;
        }
        let wanting: Vec<_> = wanting.collect();
        let line = what.line();
        wanting.into_iter().for_each(|one| one.push(&line));
    }

    /// Returns the connections for which notifications are queued.
    pub fn waiting(&self) -> Vec<u64> {
        self.0.iter().filter(|(_, one)| !one.waiting.is_empty()).map(|(client, _)| *client).collect()
    }

    /// Moves a connection's queued notifications to `into`, until `into` contains at least `most` bytes.
    pub fn fill(&mut self, client: u64, into: &mut Vec<u8>, most: usize) {
        if let Some(one) = self.0.get_mut(&client) {
            one.fill(into, most);
        }
    }
}

#[cfg(test)]
mod tests;
