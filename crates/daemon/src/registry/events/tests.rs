use netvale_control::types::Event;
use serde_json::json;

use super::*;

const ALL: usize = usize::MAX;

fn caller(client: u64, uid: u32) -> Caller {
    Caller { client, uid, pid: 9 }
}

fn only(only: &[&str], names: &[&str]) -> SubscribeParams {
    let owned = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
    SubscribeParams { only: owned(only), names: owned(names), snapshot: false }
}

/// Returns the queued events of a connection.
fn got(events: &mut Subscriptions, client: u64) -> Vec<Event> {
    let mut bytes = Vec::new();
    events.fill(client, &mut bytes, ALL);
    let lines = std::str::from_utf8(&bytes).unwrap().lines();
    let read = |line: &str| {
        let mut notification: Value = serde_json::from_str(line).unwrap();
        assert_eq!((&notification["jsonrpc"], &notification["method"]), (&json!("2.0"), &json!("event")));
        assert!(notification.get("id").is_none());
        serde_json::from_value(notification["params"].take()).unwrap()
    };
    lines.map(read).collect()
}

fn attached(full: &str, uid: u32) -> NewEvent {
    NewEvent::to(EventName::PortAttached, uid).at(full).by(caller(0, uid)).with("kind", "local")
}

fn sequences(events: &[Event]) -> Vec<u64> {
    events.iter().map(|event| event.sequence).collect()
}

/// Objective: an event on the wire has all of its fields; text from a peer cannot start a new line, and the length of
/// such text is limited.
#[test]
fn an_event_has_all_of_its_fields() {
    let mut events = Subscriptions::default();
    assert_eq!(events.subscribe(caller(1, 70_001), SubscribeParams::default(), 0), 0);
    let why = format!("a\n\u{1b}[31mb{}", "x".repeat(1000));
    events.tell(attached("vale0:a", 70_001).why(&why));
    events.tell(NewEvent::to(EventName::PortIdle, 70_001).at("netmap:p{1"));
    let all = got(&mut events, 1);
    let [first, second] = all.as_slice() else { panic!("{all:?}") };
    assert_eq!((first.sequence, first.name.as_str(), first.switch.as_deref()), (1, "port.attached", Some("vale0")));
    assert_eq!((first.port.as_deref(), first.by), (Some("vale0:a"), Some(Owner { uid: 70_001, pid: 9 })));
    assert_eq!(Value::from(first.details.clone()), json!({"kind": "local"}));
    let why = first.why.as_deref().unwrap();
    assert!(why.len() < 400 && !why.contains(char::is_control), "{why}");
    assert_eq!((second.switch.as_deref(), second.port.as_deref()), (None, Some("netmap:p{1")));
    let is_time = first.time.len() == "2026-01-01T00:00:00.000000Z".len() && first.time.ends_with('Z');
    assert!(is_time && first.now_ns > 0 && second.now_ns >= first.now_ns, "{first:?}");
}

/// Objective: users receive events of their own ports and events for all users; root receives every event. If a
/// connection subscribes again, only the new filters apply.
#[test]
fn who_is_told_what() {
    let mut events = Subscriptions::default();
    let all = SubscribeParams::default();
    let none = SubscribeParams::default();
    for (client, uid, params) in [
        (1, 70_001, all),
        (2, 70_002, none),
        (3, 0, only(&["vale0", "vale1:b"], &[])),
        (4, 0, only(&[], &["port.detached", "switch"])),
        (5, 70_001, only(&["vale1"], &["switch"])),
    ] {
        events.subscribe(caller(client, uid), params, 0);
    }
    events.tell(attached("vale0:a", 70_001));
    events.tell(attached("vale1:a", 70_001));
    events.tell(attached("vale1:b", 70_001));
    events.tell(NewEvent::to(EventName::SwitchMade, 70_001).on("vale1"));
    events.tell(NewEvent::to_all(EventName::DaemonStalled).with("stalls", 1));
    let numbers = [5, 1, 2, 1, 1];
    for (client, number) in (1..).zip(numbers) {
        assert_eq!(got(&mut events, client).len(), number, "{client}");
    }
    assert_eq!(events.subscribe(caller(5, 70_001), only(&["vale0"], &[]), 0), 1, "numbers go on");
    events.tell(attached("vale0:c", 70_001));
    assert_eq!(sequences(&got(&mut events, 5)), [2]);
    events.forget(5);
    events.tell(attached("vale0:d", 70_001));
    assert!(got(&mut events, 5).is_empty() && events.counts(70_001) == (4, 1));
}

/// Objective: the queue of a stalled client is bounded, both in events and in bytes. One notification replaces the
/// dropped events and reports their number; sequence numbers skip these events. Other clients lose nothing.
#[test]
fn the_queue_of_a_stalled_client_is_bounded() {
    let mut events = Subscriptions::default();
    events.subscribe(caller(1, 0), SubscribeParams::default(), 0);
    events.subscribe(caller(2, 0), SubscribeParams::default(), 0);
    let (most, _) = MOST_WAITING;
    for i in 0..most + 10 {
        events.tell(attached("vale0:a", 0));
        assert_eq!(sequences(&got(&mut events, 2)), [i as u64 + 1]);
    }
    let mut bytes = Vec::new();
    // Makes room for one event: the next event is queued, and the following event is dropped.
    events.fill(1, &mut bytes, 1);
    events.tell(attached("vale0:b", 0));
    events.tell(attached("vale0:c", 0));
    let all = got(&mut events, 1);
    let most = most as u64;
    let names: Vec<_> =
        all.iter().skip(most as usize - 1).map(|e| (e.sequence, e.name.as_str(), e.details.get("lost"))).collect();
    let ten = json!(10);
    let one = json!(1);
    let lost = "events.lost";
    assert_eq!(
        names,
        [(most + 10, lost, Some(&ten)), (most + 11, "port.attached", None), (most + 12, lost, Some(&one))]
    );
    assert_eq!(sequences(&all[..most as usize - 1]), (2..=most).collect::<Vec<_>>());
    assert!(got(&mut events, 1).is_empty());
    let large = || NewEvent::to(EventName::PortPolicies, 0).at("vale0:a").with("set", "x".repeat(MOST_WAITING.1 / 3));
    (0..4).for_each(|_| events.tell(large()));
    let all = got(&mut events, 1);
    assert_eq!((all.len(), all.last().map(|event| event.details["lost"].clone())), (3, Some(json!(2))));
}

/// Objective: notifications are moved to the caller's buffer whole, until the limit is reached.
#[test]
fn notifications_are_moved_whole_up_to_the_limit() {
    let mut events = Subscriptions::default();
    events.subscribe(caller(1, 0), SubscribeParams::default(), 41);
    (0..10).for_each(|_| events.tell(attached("vale0:a", 0)));
    assert_eq!(events.waiting(), [1]);
    let mut found = 0;
    while !events.waiting().is_empty() {
        let mut bytes = Vec::new();
        events.fill(1, &mut bytes, 300);
        assert!(bytes.ends_with(b"}}\n") && bytes.len() < 700);
        found += bytes.iter().filter(|byte| **byte == b'\n').count();
    }
    assert_eq!((found, events.subscription(1)), (10, Some((SubscribeParams::default(), 51))));
}
