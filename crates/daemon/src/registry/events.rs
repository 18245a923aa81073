//! Events: what happens, and who is told of it.
//!
//! Each subscription has a queue of its own, which is bounded: of one that does not read, events are dropped, counted,
//! and their number is told in their place. So a client that stands still costs the others nothing, and the daemon no
//! more than its queue.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use netvale_control::types::{EventName, NOTIFICATION, Owner, SubscribeParams};
use netvale_portspec::{SwitchName, printable};
use serde::Serialize;
use serde_json::{Map, Value};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

use crate::caller::{Caller, is_trusted_user};

/// Most events that wait for one subscription, and most bytes of them.
const MOST_WAITING: (usize, usize) = (1024, 256 << 10);
/// Most characters of a reason.
const LONGEST: usize = 300;

/// Something that has happened.
pub struct Happened {
    name: EventName,
    /// The user whom it concerns; `None`: all.
    uid: Option<u32>,
    switch: Option<String>,
    port: Option<String>,
    by: Option<Caller>,
    why: Option<String>,
    details: Map<String, Value>,
}

impl Happened {
    /// Something that all users are told of.
    pub fn to_all(name: EventName) -> Happened {
        Happened { name, uid: None, switch: None, port: None, by: None, why: None, details: Map::new() }
    }

    /// Something that only one user is told of, besides root and the daemon's own user.
    pub fn to(name: EventName, uid: u32) -> Happened {
        Happened { uid: Some(uid), ..Happened::to_all(name) }
    }

    /// It is about that port, and its switch.
    #[must_use]
    pub fn at(self, full: &str) -> Happened {
        Happened { switch: SwitchName::of_port(full).map(str::to_owned), port: Some(full.to_owned()), ..self }
    }

    /// It is about that switch.
    #[must_use]
    pub fn on(self, switch: &str) -> Happened {
        Happened { switch: Some(switch.to_owned()), ..self }
    }

    /// That caller did it.
    #[must_use]
    pub fn by(self, caller: Caller) -> Happened {
        Happened { by: Some(caller), ..self }
    }

    /// The reason, which may repeat words of a caller's.
    #[must_use]
    pub fn why(self, why: &str) -> Happened {
        Happened { why: Some(printable(why).chars().take(LONGEST).collect()), ..self }
    }

    /// One of the fields that [`EventName::details`] lists.
    #[must_use]
    pub fn with(mut self, detail: &str, value: impl Serialize) -> Happened {
        debug_assert!(self.name.details().contains(&detail), "{detail} is no field of {:?}", self.name);
        // Numbers, names and maps can be written.
        self.details.insert(detail.to_owned(), serde_json::to_value(value).unwrap_or_default());
        self
    }

    /// Its name.
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

    /// The notification from behind its number, which each subscription has its own of.
    fn line(self) -> Arc<str> {
        #[derive(Serialize)]
        struct Rest {
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
        let Happened { name, switch, port, by, why, details, .. } = self;
        let by = by.map(|caller| Owner { uid: caller.uid, pid: caller.pid });
        let (time, name) = (wall_clock(), name.as_str());
        let rest = Rest { time, now_ns: now_ns(), name, switch, port, by, why, details };
        // Strings, numbers and maps can be written.
        let text = serde_json::to_string(&rest).unwrap_or_default();
        format!("{}}}\n", text.strip_prefix('{').unwrap_or_default()).into()
    }
}

/// Nanoseconds of the monotonic clock.
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The time of day in UTC, as in the log.
fn wall_clock() -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut text));
    text
}

/// A subscription, one of a connection.
struct Subscription {
    caller: Caller,
    params: SubscribeParams,
    /// Number of its last event.
    sequence: u64,
    waiting: VecDeque<(u64, Arc<str>)>,
    bytes: usize,
    /// How many events were dropped since the last one that waits.
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

    /// Tells of the events that were dropped: `last` is the number of the last one.
    fn tell_lost(&mut self, last: u64) {
        let lost = std::mem::take(&mut self.lost);
        self.add(last, Happened::to_all(EventName::EventsLost).with("lost", lost).line());
    }

    /// Moves notifications that wait to `into`, until that has `most` bytes or there are no more.
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
pub struct Events(BTreeMap<u64, Subscription>);

impl Events {
    /// Whether anybody is told anything.
    pub fn are_watched(&self) -> bool {
        !self.0.is_empty()
    }

    /// Number of subscriptions, and how many of them are that user's.
    pub fn counts(&self, uid: u32) -> (usize, usize) {
        (self.0.len(), self.0.values().filter(|one| one.caller.uid == uid).count())
    }

    /// Whether that connection has a subscription.
    pub fn has(&self, client: u64) -> bool {
        self.0.contains_key(&client)
    }

    /// Has a connection told of events from now on, after the one of that number: by these filters instead of those
    /// that it had. Returns the number of the last event.
    pub fn subscribe(&mut self, caller: Caller, params: SubscribeParams, sequence: u64) -> u64 {
        let new = || {
            let (waiting, params) = (VecDeque::new(), SubscribeParams::default());
            Subscription { caller, params, sequence, waiting, bytes: 0, lost: 0 }
        };
        let one = self.0.entry(caller.client).or_insert_with(new);
        one.params = SubscribeParams { snapshot: false, ..params };
        one.sequence
    }

    /// What a successor must know of a connection's subscription: its filters and the number of its last event.
    pub fn subscription(&self, client: u64) -> Option<(SubscribeParams, u64)> {
        self.0.get(&client).map(|one| (one.params.clone(), one.sequence))
    }

    /// Ends the subscription of a connection.
    pub fn forget(&mut self, client: u64) {
        self.0.remove(&client);
    }

    /// Tells those who want to know.
    pub fn tell(&mut self, what: Happened) {
        let mut wanting = self.0.values_mut().filter(|one| what.is_for(one.caller, &one.params)).peekable();
        if wanting.peek().is_none() {
            return;
        }
        let wanting: Vec<_> = wanting.collect();
        let line = what.line();
        wanting.into_iter().for_each(|one| one.push(&line));
    }

    /// Connections for which notifications wait.
    pub fn waiting(&self) -> Vec<u64> {
        self.0.iter().filter(|(_, one)| !one.waiting.is_empty()).map(|(client, _)| *client).collect()
    }

    /// Moves notifications that wait for a connection to `into`, until that has `most` bytes or there are no more.
    pub fn fill(&mut self, client: u64, into: &mut Vec<u8>, most: usize) {
        if let Some(one) = self.0.get_mut(&client) {
            one.fill(into, most);
        }
    }
}

#[cfg(test)]
mod tests;
