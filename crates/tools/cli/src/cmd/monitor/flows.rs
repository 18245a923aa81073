//! The flow events of `netvale monitor`: a [`GatewayWatch`] follows the records of all gateways in the run directory.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use netvale_control::types::Event;
use netvale_gateway::control::message::ControlRequest;
use netvale_gateway::control::survey::{self, GatewayPeer};
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

/// Name of the group of flow events in `--events`.
pub const GROUP: &str = "flow";
/// The events with their meanings. `docs/reference/events.md` lists them.
pub const NAMES: [(&str, &str); 4] = [
    ("flow.opened", "a guest's flow through a gateway began"),
    ("flow.refused", "a gateway refused a flow, or it could not be opened"),
    ("flow.closed", "a flow ended"),
    ("flow.lost", "`lost` flow events were left out: there were too many a second"),
];
/// The fields of a gateway's record that are copied to the event, with their names in the event. No name in the event
/// equals an event's own field. Otherwise a gateway, or a guest that chooses a DNS name, could forge that field.
const FIELDS: [(&str, &str); 13] = [
    ("direction", "direction"),
    ("dropped", "dropped"),
    ("guest", "guest"),
    ("lines", "lost"),
    ("name", "remote_name"),
    ("port", "guest_port"),
    ("reason", "reason"),
    ("received", "received"),
    ("remote", "remote"),
    ("seconds", "seconds"),
    ("sent", "sent"),
    ("transport", "transport"),
    ("waited", "waited"),
];
/// Two limits on the number of events per gateway and second. The first is the default; the second applies if a program
/// reads the events or the user named flow events in `--events`.
const LIMITS: [u64; 2] = [20, 1000];
/// Maximum length in bytes of a line in a gateway's record. Most lines have about 200 bytes, lines with the longest
/// names about 500.
const MAX_RECORD: usize = 16 << 10;
/// Maximum time to wait for the gateways' answers before the first event is printed.
const BEGIN: Duration = Duration::from_millis(250);
/// Interval between two searches for new gateways. The limits in `LIMITS` apply to a period of the same length.
const LOOK: Duration = Duration::from_secs(1);

/// The flow events that the user selected.
#[derive(Clone, Debug, Default)]
pub struct FlowChoice {
    /// Switches, ports and guests' private ports whose events are selected; if empty, all are.
    pub only: Vec<String>,
    /// Names of the selected events and groups; if empty, all are selected.
    pub names: Vec<String>,
    /// Whether the higher limit on the number of events applies: a program reads the events, or the user named them.
    pub asked: bool,
}

impl FlowChoice {
    fn takes(&self, event: &Event) -> bool {
        let is_named = |name: &String| name == &event.name || name == GROUP;
        let guest = event.details.get("guest_port").and_then(Value::as_str).unwrap_or_default();
        let switch = event.switch.as_deref().unwrap_or_default();
        let is_meant =
            |only: &String| only == switch || Some(only) == event.port.as_ref() || *only == format!("{switch}:{guest}");
        // A loss is reported even if other names are selected, so that the user learns that events are missing.
        let is_loss = event.name == "flow.lost";
        (self.names.is_empty() || is_loss || self.names.iter().any(is_named))
            && (self.only.is_empty() || self.only.iter().any(is_meant))
    }
}

/// Returns whether a name in `--events` is the name of a flow event or of the group of flow events.
pub fn is_flow(name: &str) -> bool {
    name == GROUP || NAMES.iter().any(|(known, _)| *known == name)
}

/// The gateways whose records are followed.
pub struct GatewayWatch {
    folders: Vec<PathBuf>,
    choice: FlowChoice,
    gateways: BTreeMap<String, FollowedGateway>,
    looked: Option<Instant>,
}

struct FollowedGateway {
    peer: GatewayPeer,
    /// Whether the gateway has answered the request to follow its record.
    follows: bool,
    has_ended: bool,
    allowance: FlowAllowance,
}

impl GatewayWatch {
    /// Requests the records of the running gateways. `next` finds gateways that start later.
    pub fn new(folders: Vec<PathBuf>, choice: FlowChoice) -> Self {
        let mut watch = GatewayWatch { folders, choice, gateways: BTreeMap::new(), looked: None };
        watch.look(Instant::now());
        watch
    }

    /// Waits until all gateways have answered the request, at most for `BEGIN`. Returns the events that arrived during
    /// the wait.
    pub fn begin(&mut self) -> Vec<Event> {
        let until = Instant::now() + BEGIN;
        let mut events = Vec::new();
        while let Some(left) = until.checked_duration_since(Instant::now())
            && self.gateways.values().any(|gateway| !gateway.follows)
        {
            events.extend(self.next(left));
        }
        events
    }

    /// Waits for events, at most for `limit` or until the next search for new gateways. Returns the events that
    /// arrived; the list may be empty.
    pub fn next(&mut self, limit: Duration) -> Vec<Event> {
        survey::wait(self.gateways.values().map(|gateway| gateway.peer.as_fd()), limit.min(LOOK));
        let now = Instant::now();
        let mut events = Vec::new();
        for (port, gateway) in &mut self.gateways {
            gateway.read(port, &self.choice, now, &mut events);
        }
        self.gateways.retain(|_, gateway| !gateway.has_ended);
        if self.looked.is_none_or(|looked| now.duration_since(looked) >= LOOK) {
            self.look(now);
        }
        events
    }

    fn look(&mut self, now: Instant) {
        self.looked = Some(now);
        for socket in survey::sockets(&self.folders) {
            if self.gateways.len() >= survey::MAX_GATEWAYS {
                break;
            }
            if self.gateways.contains_key(&socket.port) {
                continue;
            }
            // The socket is stale, or belongs to another user's gateway. The next search tries it again.
            let Ok(peer) = GatewayPeer::ask(&socket, &ControlRequest::Follow, MAX_RECORD) else { continue };
            let allowance = FlowAllowance::new(LIMITS[usize::from(self.choice.asked)]);
            self.gateways.insert(socket.port, FollowedGateway { peer, follows: false, has_ended: false, allowance });
        }
    }
}

impl FollowedGateway {
    fn read(&mut self, port: &str, choice: &FlowChoice, now: Instant, events: &mut Vec<Event>) {
        self.has_ended = self.peer.read().is_break();
        while let Some(line) = self.peer.next_line() {
            if !self.follows {
                self.follows = true;
                self.has_ended |= survey::answer::<IgnoredAny>(line).is_none();
                continue;
            }
            let Some(event) = event(port, line).filter(|event| choice.takes(event)) else { continue };
            events.extend(self.allowance.take(event, now));
        }
        if let Some(lost) = self.allowance.end_second(now, self.has_ended) {
            events.push(lost_event(port, lost));
        }
    }
}

/// Limits the number of a gateway's events that are reported per second, and counts the omitted events.
struct FlowAllowance {
    most: u64,
    second: Option<Instant>,
    used: u64,
    lost: u64,
}

impl FlowAllowance {
    fn new(most: u64) -> Self {
        FlowAllowance { most, second: None, used: 0, lost: 0 }
    }

    /// Returns the event if it may be reported; otherwise counts it as lost, and returns `None`. For a `flow.lost`
    /// event, the number of events that the gateway itself lost is added to the count.
    fn take(&mut self, event: Event, now: Instant) -> Option<Event> {
        if event.name == "flow.lost" {
            let lost = event.details.get("lost").and_then(Value::as_u64).unwrap_or(1);
            self.lost = self.lost.saturating_add(lost);
            self.second.get_or_insert(now);
            return None;
        }
        self.second.get_or_insert(now);
        self.used += 1;
        let is_left_out = self.used > self.most;
        self.lost = self.lost.saturating_add(is_left_out.into());
        (!is_left_out).then_some(event)
    }

    /// Ends the current second if it has passed, or if `is_last` is set because there will be no further event. Returns
    /// the number of events that were omitted; `None` if none were.
    fn end_second(&mut self, now: Instant, is_last: bool) -> Option<u64> {
        if self.second.is_none_or(|second| now.duration_since(second) < LOOK) && !is_last {
            return None;
        }
        self.second = None;
        self.used = 0;
        Some(std::mem::take(&mut self.lost)).filter(|lost| *lost > 0)
    }
}

/// Converts a line of a gateway's record to an event; `None` if the line is invalid or of an unknown kind.
fn event(port: &str, line: &[u8]) -> Option<Event> {
    let Value::Object(fields) = serde_json::from_slice(line).ok()? else { return None };
    let word = fields.get("event")?.as_str()?;
    let is_named = |name: &&str| name.strip_prefix(GROUP).and_then(|rest| rest.strip_prefix('.')) == Some(word);
    let name = NAMES.iter().map(|(known, _)| *known).find(is_named)?;
    let seconds = fields.get("time")?.as_f64()?;
    let known = FIELDS.iter().filter_map(|(theirs, ours)| Some((*ours, fields.get(*theirs)?)));
    let scalars = known.filter(|(_, value)| value.is_string() || value.is_number());
    let details = scalars.map(|(field, value)| (field.to_owned(), value.clone())).collect();
    Some(made(port, name, Timestamp::from_millisecond((seconds * 1000.0) as i64).ok()?, details))
}

fn lost_event(port: &str, lost: u64) -> Event {
    made(port, "flow.lost", Timestamp::now(), Map::from_iter([("lost".to_owned(), lost.into())]))
}

fn made(port: &str, name: &str, time: Timestamp, details: Map<String, Value>) -> Event {
    Event {
        time: time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string(),
        name: name.to_owned(),
        switch: port.split(':').next().map(str::to_owned),
        port: Some(port.to_owned()),
        details,
        ..Event::default()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;

    use serde_json::json;

    use super::*;

    const OPENED: &str = r#"{"time":1.5,"event":"opened","transport":"tcp","port":"vm7","guest":"10.0.0.9:4000"}"#;

    #[test]
    fn a_line_of_the_record_becomes_an_event() {
        let event = event("vale0:gateway", OPENED.as_bytes()).unwrap();
        assert_eq!((event.name.as_str(), event.time.as_str()), ("flow.opened", "1970-01-01T00:00:01.500000Z"));
        assert_eq!((event.switch.as_deref(), event.port.as_deref()), (Some("vale0"), Some("vale0:gateway")));
        assert_eq!((&event.details["guest_port"], &event.details["transport"]), (&"vm7".into(), &"tcp".into()));
        for line in ["", "[]", "{}", r#"{"time":1.0,"event":"danced"}"#, r#"{"event":"opened"}"#] {
            assert!(super::event("vale0:gateway", line.as_bytes()).is_none(), "{line}");
        }
    }

    /// Objective: the DNS name of a flow, which the guest chooses, has a field of its own, and no field in a gateway's
    /// record replaces an event's own field, even if a gateway forges its record.
    #[test]
    fn a_record_cannot_pass_for_another_event() {
        let forged = json!({
            "time": 1.5, "event": "opened", "name": "port.detached", "switch": "vale9", "sequence": 9, "now_ns": 9,
            "by": {"uid": 0, "pid": 1}, "why": "asked for", "details": 1, "guest_port": "forged",
            "remote_name": "forged", "lost": 9, "guest": ["10.0.0.9"], "remote": {"a": 1}, "reason": null,
            "sent": 7, "kind": "x\u{1b}",
        });
        let event = json!(event("vale0:gateway", forged.to_string().as_bytes()).unwrap());
        let expected = json!({
            "sequence": 0, "now_ns": 0, "time": "1970-01-01T00:00:01.500000Z", "name": "flow.opened", "switch": "vale0",
            "port": "vale0:gateway", "remote_name": "port.detached", "sent": 7,
        });
        assert_eq!(event, expected);
        let by = netvale_control::types::Owner { uid: 1, pid: 1 };
        let full =
            Event { by: Some(by), why: Some("why".into()), ..made("vale0:a", "n", Timestamp::now(), Map::new()) };
        let own = json!(full);
        assert!(FIELDS.iter().all(|(_, ours)| own.get(*ours).is_none()), "{own}");
    }

    #[test]
    fn counts_of_lost_events_do_not_overflow() {
        let mut allowance = FlowAllowance::new(1);
        let line = format!(r#"{{"time":1.0,"event":"lost","lines":{}}}"#, u64::MAX);
        let lost = event("vale0:gateway", line.as_bytes()).unwrap();
        assert!(allowance.take(lost.clone(), Instant::now()).is_none());
        assert!(allowance.take(lost, Instant::now()).is_none());
        assert_eq!(allowance.end_second(Instant::now(), true), Some(u64::MAX));
    }

    #[test]
    fn events_are_chosen_by_switch_port_guest_and_name() {
        let event = event("vale0:gateway", OPENED.as_bytes()).unwrap();
        let takes = |only: &[&str], names: &[&str]| {
            let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
            FlowChoice { only: owned(only), names: owned(names), asked: false }.takes(&event)
        };
        for only in [&[][..], &["vale0"], &["vale0:gateway"], &["vale0:vm7"], &["vale9", "vale0"]] {
            assert!(takes(only, &[]), "{only:?}");
        }
        assert!(!takes(&["vale1"], &[]) && !takes(&["vale0:vm8"], &[]));
        assert!(takes(&[], &["flow"]) && takes(&[], &["flow.opened"]) && !takes(&[], &["flow.closed"]));
    }

    /// Objective: events in excess of the limit per second, and events that the gateway has lost, are counted; the
    /// count is reported at the end of the second, or when the gateway ends.
    #[test]
    fn what_is_left_out_is_counted() {
        let begin = Instant::now();
        let mut allowance = FlowAllowance::new(2);
        let lost = r#"{"time":1.0,"event":"lost","lines":7}"#;
        let taken = [OPENED, OPENED, OPENED, lost, OPENED].map(|line| event("vale0:gateway", line.as_bytes()).unwrap());
        assert_eq!(taken.into_iter().filter_map(|event| allowance.take(event, begin)).count(), 2);
        assert_eq!(allowance.end_second(begin + LOOK / 2, false), None);
        assert_eq!(allowance.end_second(begin + LOOK, false), Some(9));
        assert_eq!(allowance.end_second(begin + 2 * LOOK, false), None);
        let next = event("vale0:gateway", OPENED.as_bytes()).unwrap();
        assert!(allowance.take(next, begin + 2 * LOOK).is_some());
        allowance.lost = 3;
        assert_eq!(allowance.end_second(begin + 2 * LOOK, true), Some(3));
    }

    #[test]
    fn gateways_are_followed_and_one_that_hangs_delays_the_begin_by_its_limit_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = |port| netvale_gateway::control::path_in(folder.path(), port);
        let listener = UnixListener::bind(path("vale0:gateway")).unwrap();
        let hangs = UnixListener::bind(path("vale1:gateway")).unwrap();
        let gateway = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = String::new();
            BufReader::new(stream.try_clone().unwrap()).read_line(&mut request).unwrap();
            write!(stream, "{{\"ok\":{{}}}}\n{OPENED}\n").unwrap();
            request
        });
        let mut watch = GatewayWatch::new(vec![folder.path().to_owned()], FlowChoice::default());
        let mut events = watch.begin();
        while events.is_empty() {
            events = watch.next(LOOK);
        }
        assert_eq!(events[0].name, "flow.opened");
        assert_eq!(gateway.join().unwrap(), "{\"do\":\"follow\"}\n");
        while watch.gateways.contains_key("vale0:gateway") {
            watch.next(LOOK);
        }
        drop(hangs);
    }
}
