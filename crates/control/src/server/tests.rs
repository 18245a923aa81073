//! Tests of the server side, including the examples of JSON-RPC 2.0 section 7.

use super::*;
use crate::types::{Confirmation, ListParams, PortInfo, Version};
use proptest::prelude::*;
use serde_json::json;

/// Answers `version` with a result, `port.show` with an error and other methods with `{}`; records the requests.
#[derive(Default)]
struct Fake(Vec<Request>);

impl RequestHandler for Fake {
    fn call(&mut self, request: Request) -> Result<Reply, RpcError> {
        self.0.push(request.clone());
        match request {
            Request::Version => Ok(Reply::Version(Version::current())),
            Request::PortShow(_) => Err(RpcError::from_errno(6, "the port does not exist", "netvale list shows them")),
            _ => Ok(Reply::Done(Confirmation {})),
        }
    }
}

fn feed(text: &str) -> ControlOutput {
    ControlConnection::default().feed(text.as_bytes(), &mut Fake::default())
}

/// Returns the answers to a line, parsed.
fn answers(line: &str) -> Vec<Value> {
    let out = feed(&format!("{line}\n"));
    assert!(!out.close);
    out.bytes.split(|&b| b == b'\n').filter(|l| !l.is_empty()).map(|l| serde_json::from_slice(l).unwrap()).collect()
}

fn code(line: &str) -> (Value, i64) {
    let all = answers(line);
    assert_eq!(all.len(), 1, "{line}");
    assert!(!all[0]["error"]["data"]["hint"].as_str().unwrap().is_empty(), "{line}");
    (all[0]["id"].clone(), all[0]["error"]["code"].as_i64().unwrap())
}

/// Objective: an answer has exactly the protocol's version, the result and the request's id.
#[test]
fn an_answer_has_version_result_and_id() {
    let expected = json!({"jsonrpc": "2.0", "result": Version::current(), "id": 7});
    assert_eq!(answers(r#"{"jsonrpc":"2.0","id":7,"method":"version"}"#), [expected]);
    let detach = r#"{"jsonrpc":"2.0","id":"x","method":"port.detach","params":{"switch":"vale0","port":"a"}}"#;
    assert_eq!(answers(detach), [json!({"jsonrpc": "2.0", "result": {}, "id": "x"})]);
    let show = r#"{"jsonrpc":"2.0","id":8,"method":"port.show","params":{"port":"vale0:x"}}"#;
    let data = json!({"hint": "netvale list shows them", "errno": 6});
    let error = json!({"code": -32001, "message": "the port does not exist", "data": data});
    assert_eq!(answers(show), [json!({"jsonrpc": "2.0", "error": error, "id": 8})]);
}

/// Objective: every legal id is returned unchanged; other ids are refused (section 4).
#[test]
fn legal_ids_return_unchanged_and_others_are_refused() {
    for id in ["1", "-5", "18446744073709551615", "0.5", r#""""#, r#""a\"b""#, "null"] {
        let id: Value = serde_json::from_str(id).unwrap();
        let request = json!({"jsonrpc": "2.0", "id": id, "method": "version"}).to_string();
        assert_eq!(answers(&request)[0]["id"], id);
    }
    for id in ["true", "[1]", "{}"] {
        let request = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"version"}}"#);
        assert_eq!(code(&request), (Value::Null, -32600), "{id}");
    }
}

/// Objective: the answer to each kind of fault has the fault's code, and the request's id if known (section 5.1).
#[test]
fn each_kind_of_fault_has_its_code() {
    let null = Value::Null;
    assert_eq!(code(r#"{"jsonrpc": "2.0", "method": "foobar, "params": "bar", "baz]"#), (null.clone(), -32700));
    assert_eq!(code(r#"{"jsonrpc": "2.0", "method": 1, "params": "bar"}"#), (null.clone(), -32600));
    assert_eq!(code(r#"{"jsonrpc": "2.0", "method": "foobar", "id": "1"}"#), (json!("1"), -32601));
    assert_eq!(code(r#"{"jsonrpc":"2.0","id":1,"method":"stats.all","params":{"x":1}}"#), (json!(1), -32602));
    for bad in [
        r#"{"id":1,"method":"version"}"#,
        r#"{"jsonrpc":"1.0","id":1,"method":"version"}"#,
        r#"{"jsonrpc":"2.0","id":1}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"version","params":null}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"version","parmas":{}}"#,
    ] {
        assert_eq!(code(bad), (json!(1), -32600), "{bad}");
    }
    assert_eq!(code("7"), (null.clone(), -32600));
    assert_eq!(code(&"[".repeat(5000)), (null, -32700));
}

/// Objective: bytes that are not UTF-8 are a parse error, and the connection stays open.
#[test]
fn bytes_that_are_not_utf8_are_a_parse_error() {
    let mut connection = ControlConnection::default();
    let mut fake = Fake::default();
    let out = connection.feed(b"{\"jsonrpc\":\"2.0\",\"id\":\"\xff\",\"method\":\"version\"}\n", &mut fake);
    assert!(!out.close && String::from_utf8(out.bytes).unwrap().contains("-32700"));
    let out = connection.feed(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"version\"}\r\n", &mut fake);
    assert!(!out.close && String::from_utf8(out.bytes).unwrap().contains("\"result\""));
}

/// Objective: a notification is executed and never answered, even if it fails (section 4.1).
#[test]
fn a_notification_is_executed_and_never_answered() {
    let mut fake = Fake::default();
    let lines = "{\"jsonrpc\":\"2.0\",\"method\":\"port.list\"}\n\n \n{\"jsonrpc\":\"2.0\",\"method\":\"nothing\"}\n\
                 {\"jsonrpc\":\"2.0\",\"method\":\"port.show\",\"params\":[\"vale0:x\"]}\n";
    assert_eq!(ControlConnection::default().feed(lines.as_bytes(), &mut fake), ControlOutput::default());
    assert_eq!(fake.0.len(), 2);
    assert_eq!(fake.0.first(), Some(&Request::PortList(ListParams::default())));
}

/// Objective: a batch is answered by an array in one line, which omits the notifications; each request succeeds or
/// fails on its own (section 6).
#[test]
fn a_batch_is_answered_by_one_array() {
    let version = json!({"jsonrpc": "2.0", "id": 1, "method": "version"});
    let notification = json!({"jsonrpc": "2.0", "method": "shutdown"});
    let got = answers(&json!([version, notification, 1]).to_string());
    let list = got[0].as_array().unwrap();
    assert_eq!(list.len(), 2);
    assert_eq!((&list[0]["id"], &list[1]["error"]["code"]), (&json!(1), &json!(-32600)));
    assert!(answers(&json!([notification]).to_string()).is_empty());
    assert_eq!(code("[]"), (Value::Null, -32600));
    assert_eq!(code(&json!(vec![1; MAX_BATCH + 1]).to_string()), (Value::Null, -32600));
    assert_eq!(answers(&json!(vec![1; MAX_BATCH]).to_string())[0].as_array().unwrap().len(), MAX_BATCH);
}

/// Objective: a line that is too long is answered by an error and ends the connection; earlier requests are executed.
#[test]
fn a_line_too_long_ends_the_connection() {
    let mut connection = ControlConnection::default();
    let mut fake = Fake::default();
    let mut bytes = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"version\"}\n".to_vec();
    bytes.resize(bytes.len() + MAX_REQUEST_LINE + 1, b' ');
    let out = connection.feed(&bytes, &mut fake);
    let text = String::from_utf8(out.bytes).unwrap();
    assert!(out.close && text.lines().count() == 2 && text.contains("65536 bytes"), "{text}");
    let again = connection.feed(b"\n{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"version\"}\n", &mut fake);
    assert_eq!(again, ControlOutput { bytes: Vec::new(), close: true });
}

/// Answers each request with 1 MiB of text.
struct Big;

impl RequestHandler for Big {
    fn call(&mut self, _: Request) -> Result<Reply, RpcError> {
        let notes = vec!["x".repeat(1 << 20)];
        Ok(Reply::Port(Box::new(PortInfo { notes, ..PortInfo::default() })))
    }
}

/// Objective: requests that arrive together cannot make the daemon hold an unbounded amount of answers.
#[test]
fn many_requests_leave_the_output_bounded() {
    let line = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"stats.all\"}\n";
    let out = ControlConnection::default().feed(line.repeat(100).as_bytes(), &mut Big);
    assert!(out.close && out.bytes.len() < MAX_OUTPUT + (2 << 20), "{}", out.bytes.len());
    let last = out.bytes.trim_ascii().rsplit(|&b| b == b'\n').next().unwrap();
    assert!(String::from_utf8_lossy(last).contains("read the answers"));
    assert!(!ControlConnection::default().feed(line.repeat(4).as_bytes(), &mut Big).close);
}

/// Generates bytes that resemble requests often enough to pass the first checks.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(br#"{"jsonrpc":"2.0","id":1,"method":"version"}"#.to_vec()),
        Just(br#"[{"jsonrpc":"2.0","id":"a","method":"port.show","params":["vale0:a"]},1]"#.to_vec()),
        Just(br#"{"jsonrpc":"2.0","method":"shutdown"}"#.to_vec()),
        Just(b"\n".to_vec()),
        proptest::collection::vec(any::<u8>(), 0..12),
    ];
    proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    /// Objective: no bytes cause a panic, every answer is a line of JSON, and the answers do not depend on how the
    /// bytes are cut into pieces.
    #[test]
    fn no_bytes_make_the_server_panic(bytes in bytes(), size in 1..50usize) {
        let mut whole = ControlConnection::default();
        let mut cut = ControlConnection::default();
        let mut asked = Fake::default();
        let mut asked_cut = Fake::default();
        let out = whole.feed(&bytes, &mut asked);
        let mut pieces = Vec::new();
        for chunk in bytes.chunks(size) {
            pieces.extend(cut.feed(chunk, &mut asked_cut).bytes);
        }
        prop_assert_eq!(&pieces, &out.bytes);
        prop_assert_eq!(asked.0, asked_cut.0);
        for line in out.bytes.split_inclusive(|&b| b == b'\n') {
            let value: Value = serde_json::from_slice(line).unwrap();
            prop_assert!(line.ends_with(b"\n") && (value.is_object() || value.is_array()));
        }
    }
}
