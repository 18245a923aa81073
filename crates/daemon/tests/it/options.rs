//! Invalid options, which the daemon itself refuses, whichever client sends them.

use crate::common;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

use common::Daemon;
use netvale_control::options::kind::{self, KindType, SpecKind};
use netvale_control::options::{OPTIONS, OptionShape};
use serde_json::{Value, json};

/// Returns a specification of kind `kind` that names only nonexistent devices and folders.
fn port_of(kind: &SpecKind) -> String {
    kind.example.replace('/', "/nowhere/").replace("0000:", "ffff:").replace("eth0", "nowhere0")
}

fn value(shape: OptionShape) -> Value {
    match shape {
        OptionShape::Flag => json!(true),
        OptionShape::Number(_, most) => json!(most),
        OptionShape::OneOf(choices) => json!(choices.last()),
        OptionShape::Factor => json!(0.5),
        OptionShape::Address => json!("02:00:00:00:00:0a"),
        OptionShape::Mode => json!("0660"),
        OptionShape::Switch => json!(true),
        OptionShape::Written(syntax) => json!(syntax.example),
        OptionShape::List(_) => json!(["drop 1,6 0 0 1"]),
        _ => json!("web"),
    }
}

/// Objective: over the control socket, an option that does not apply to the port's kind is refused by name, and nothing
/// is attached; an option that applies to the kind is never the reason for a refusal.
#[test]
fn unfit_options_are_refused() {
    let d = Daemon::start("");
    for kind in SpecKind::ALL {
        let port = port_of(kind);
        for option in OPTIONS {
            let fits = option.is_for(kind);
            // A TAP with a valid option would actually be created.
            if fits && *kind == kind::Tap::KIND {
                continue;
            }
            let switch = if option.key == "backend" { "" } else { "vale0" };
            let params = json!({"switch": switch, "port": port, "options": {option.key: value(option.shape)}});
            let reply = d.call("port.attach", params);
            if let Some(name) = reply["result"]["name"].as_str() {
                assert!(fits, "{port} {}: {reply}", option.key);
                let (switch, port) = name.split_once(':').unwrap();
                assert!(d.call("port.detach", json!({"switch": switch, "port": port}))["error"].is_null());
                continue;
            }
            let error = reply["error"].clone();
            let why = error["message"].as_str().expect("a refusal");
            let unfit = format!("{} applies only to {}, not to {port}", option.key, option.takers());
            assert_eq!(why == unfit, !fits, "{port} {}: {error}", option.key);
            if !fits {
                assert_eq!((&error["code"], &error["data"]["errno"]), (&json!(-32602), &json!(22)), "{error}");
                assert_eq!(error["data"]["hint"], format!("omit {}", option.key));
            }
        }
    }
    assert!(d.ports().is_empty());
}

/// Objective: impossible names, mutually exclusive options, and unknown or repeated keys are refused, with the name at
/// fault and the position of that name.
#[test]
fn refusals_name_the_place() {
    let d = Daemon::start("");
    let refused = |params: Value| d.call("port.attach", params)["error"].to_string();
    let with = |options: Value| refused(json!({"switch": "vale0", "port": "a", "options": options}));
    for name in [json!("n".repeat(64)), json!("a/b"), json!("")] {
        assert!(with(json!({"name": name})).contains("invalid name"), "{name}");
    }
    assert!(refused(json!({"switch": "vale".repeat(30), "port": "a"})).contains("invalid switch"));
    assert!(refused(json!({"switch": "vale0", "port": "n".repeat(64)})).contains("invalid port"));
    assert!(with(json!({"velocity": 1})).contains("velocity"));
    assert!(with(json!({"rings": "two"})).contains("invalid rings \\\"two\\\": expected a number from 0"));
    let both = json!({"switch": "vale0", "port": "ptnet:/p", "options": {"backend": "netmap:p{1"}});
    assert!(refused(both).contains("passed through by backend"));
    let together = json!({"switch": "", "port": "ptnet:/p", "options": {"backend": "netmap:p{1", "gro": true}});
    assert!(refused(together).contains("backend and gro exclude each other"));

    let mut stream = UnixStream::connect(d.path("control.sock")).unwrap();
    let twice = concat!(
        r#"{"jsonrpc":"2.0","id":1,"method":"port.attach","#,
        r#""params":{"switch":"vale0","port":"a","options":{"rings":1,"rings":2}}}"#
    );
    writeln!(stream, "{twice}").unwrap();
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).unwrap();
    assert!(answer.contains("rings") && answer.contains("duplicate member") && answer.contains("-32600"), "{answer}");
    assert!(d.ports().is_empty());
}
