//! Compares docs/reference/control-protocol.md with the types: examples copied from the page must work.

use netvale_control::request::methods;
use netvale_control::types::{
    AllStats, ApplyResult, Confirmation, Event, EventName, EvictionInfo, ExportReply, GroupsInfo, NOTIFICATION,
    PortInfo, SubscribeReply, SwitchInfo, TableEntry, TraceBeginReply, TraceRead, Version, VxlanLocal,
};
use netvale_control::{ErrorCode, Request, RpcError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

const DOC: &str = include_str!("../../../../docs/reference/control-protocol.md");

/// Returns the name and the text of each method's section.
fn sections() -> impl Iterator<Item = (&'static str, &'static str)> {
    let methods = DOC.split("\n## Errors").next().unwrap_or_default();
    methods.split("\n### `").skip(1).map(|section| section.split_once('`').expect("a heading ends with '`'"))
}

/// Returns the JSON code blocks in `text` that open with the line `fence`.
fn blocks(text: &str, fence: &str) -> Vec<Value> {
    let parts = text.split(fence).skip(1).map(|rest| rest.split("\n```").next().unwrap_or_default());
    parts.map(|json| serde_json::from_str(json).unwrap_or_else(|error| panic!("{error} in {json}"))).collect()
}

/// Returns the example request and the example reply of a section.
fn examples(text: &str) -> (Value, Value) {
    match blocks(text, "\n```json\n").as_slice() {
        [request, reply] => (request.clone(), reply.clone()),
        other => panic!("a request and a reply are expected, not {other:?}"),
    }
}

/// Asserts that a value read as `T` and written again stays the same.
fn same<T: Serialize + DeserializeOwned>(result: &Value) {
    let read: T = serde_json::from_value(result.clone()).unwrap_or_else(|error| panic!("{error} in {result}"));
    assert_eq!(&serde_json::to_value(read).expect("written"), result);
}

/// Appends the names of all members in `value` to `into`.
fn names(value: &Value, into: &mut Vec<String>) {
    match value {
        Value::Object(members) => members.iter().for_each(|(name, value)| {
            into.push(name.clone());
            // The members of `…drops` are named after drop reasons, which another page explains.
            if !name.ends_with("drops") {
                names(value, into);
            }
        }),
        Value::Array(values) => values.iter().for_each(|value| names(value, into)),
        _ => {}
    }
}

/// Objective: the page describes exactly the existing methods.
#[test]
fn methods_are_all_there() {
    let mut described: Vec<_> = sections().map(|(name, _)| name).collect();
    let mut methods: Vec<_> = methods().collect();
    described.sort_unstable();
    methods.sort_unstable();
    assert_eq!(described, methods);
}

/// Objective: each example request parses, as the method that its section describes.
#[test]
fn requests_are_requests() {
    for (name, text) in sections() {
        let (request, reply) = examples(text);
        assert_eq!(request["method"], name);
        assert_eq!(request["id"], reply["id"], "{name}");
        Request::parse(name, request.get("params").cloned()).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

/// Objective: each reply parses as its method's result type, and is unchanged when written again.
#[test]
fn replies_are_replies() {
    for (name, text) in sections() {
        let result = &examples(text).1["result"];
        match name {
            "version" => same::<Version>(result),
            "switch.list" => same::<Vec<SwitchInfo>>(result),
            "switch.table" => same::<Vec<TableEntry>>(result),
            "switch.groups" => same::<GroupsInfo>(result),
            "port.attach" | "port.set" | "port.show" => same::<PortInfo>(result),
            "port.list" => same::<Vec<PortInfo>>(result),
            "port.evicted" => same::<Vec<EvictionInfo>>(result),
            "stats.all" => same::<AllStats>(result),
            "config.apply" => same::<ApplyResult>(result),
            "config.export" => same::<ExportReply>(result),
            "vxlan.local" => same::<VxlanLocal>(result),
            "subscribe" => same::<SubscribeReply>(result),
            "trace.begin" => same::<TraceBeginReply>(result),
            "trace.read" => same::<TraceRead>(result),
            "port.detach" | "unsubscribe" | "vxlan.set" | "vde.set" | "shutdown" => same::<Confirmation>(result),
            other => panic!("{other} is not checked"),
        }
    }
}

/// Objective: each member of an example is explained, in the example's section or in the section of `port.show`.
#[test]
fn members_are_explained() {
    let show = sections().find(|(name, _)| *name == "port.show").map(|(_, text)| text).unwrap_or_default();
    for (method, text) in sections() {
        let (request, reply) = examples(text);
        let mut all = Vec::new();
        names(&request["params"], &mut all);
        names(&reply["result"], &mut all);
        for name in all {
            let word = format!("`{name}`");
            assert!(text.contains(&word) || show.contains(&word), "{method}: {name} is not explained");
        }
    }
}

/// Objective: the table that the section of `port.attach` links to has every option.
#[test]
fn options_are_explained() {
    use netvale_control::options::OPTIONS;
    const PAGE: &str = include_str!("../../../../docs/reference/attach-options.md");
    let text = sections().find(|(name, _)| *name == "port.attach").map(|(_, text)| text).unwrap_or_default();
    assert!(text.contains("(attach-options.md)"));
    for option in OPTIONS {
        assert!(PAGE.contains(&format!("\n| `{}` |", option.key)), "{}", option.key);
    }
}

/// Objective: the error example is an error, and the table has every code.
#[test]
fn errors_are_errors() {
    let examples = blocks(DOC, "\n```json error\n");
    assert!(!examples.is_empty());
    for error in examples {
        same::<RpcError>(&error["error"]);
    }
    use ErrorCode::*;
    for code in [
        ParseError,
        InvalidRequest,
        MethodNotFound,
        InvalidParams,
        InternalError,
        NotFound,
        Exists,
        NotPermitted,
        Busy,
        NoRoom,
        NotSupported,
        Failed,
    ] {
        // The page has the typographic minus sign (U+2212).
        let row = format!("\n| −{} |", -(code as i32));
        assert!(DOC.contains(&row), "{row}");
    }
}

/// Objective: the page states the code's limits.
#[test]
fn limits_are_the_codes() {
    use netvale_control::{framing, server};
    assert!(DOC.contains(&format!("| {} | error", framing::MAX_REQUEST_LINE)));
    assert!(DOC.contains(&format!("| {} MiB | error", framing::MAX_TRUSTED_LINE >> 20)));
    assert!(DOC.contains(&format!("| {} | error", server::MAX_BATCH)));
    assert!(DOC.contains(&format!("| {} MiB | error", server::MAX_OUTPUT >> 20)));
}

/// Objective: the page's table has exactly the code's events, with their fields and meanings; the page's examples are
/// events.
#[test]
fn events_are_all_there() {
    const PAGE: &str = include_str!("../../../../docs/reference/events.md");
    let row = |name: &EventName| {
        let details: Vec<_> = name.details().iter().map(|detail| format!("`{detail}`")).collect();
        format!("| `{}` | {} | {} |", name.as_str(), details.join(", "), name.meaning())
    };
    let expected: Vec<_> = EventName::ALL.iter().map(row).collect();
    let group = |line: &str| EventName::ALL.iter().any(|name| line.starts_with(&format!("| `{}.", name.group())));
    let found: Vec<_> = PAGE.lines().filter(|line| group(line)).collect();
    assert_eq!(found.join("\n"), expected.join("\n"));
    for notification in blocks(PAGE, "\n```json\n") {
        assert_eq!(notification["method"], NOTIFICATION);
        same::<Event>(&notification["params"]);
        let mut all = Vec::new();
        names(&notification["params"], &mut all);
        all.retain(|name| !PAGE.contains(&format!("`{name}`")));
        assert_eq!(all, [""; 0], "are not explained");
    }
}
