//! Configuration files applied over the control socket.

use crate::common;

use std::os::unix::fs::PermissionsExt;

use common::users::as_user;
use common::{Daemon, LIMIT, frame, passed, receive, send, stats};
use netvale::Interest;
use serde_json::{Value, json};

const ALICE: u32 = 70_001;

fn apply(d: &Daemon, text: &str, more: Value) -> Value {
    let mut params = json!({"text": text, "file": "f.toml"});
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    d.call("config.apply", params)
}

fn shown(d: &Daemon) -> Value {
    d.call("config.export", json!({}))["result"].clone()
}

/// Returns the daemon's settings in the tests; a file must contain them to leave them unchanged.
fn head(d: &Daemon) -> String {
    format!("run_dir = {:?}\nsandbox = false\n", d.dir())
}

/// Objective: a program keeps its port, counters and connection while other ports come and go; if the file contains a
/// port that a program has opened, that is a conflict, and the message names the port.
#[test]
fn programs_go_on() {
    let d = Daemon::start("[[port]]\nswitch = 'vale0'\nport = 'a'\n[[port]]\nswitch = 'vale0'\nport = 'gone'\n");
    let [mut a, mut b, mut gone] = d.opened(["vale0:a", "vale0:b", "vale0:gone"]);
    send(&mut a, &frame(255, 1, 7));
    assert_eq!((receive(&mut b)[14], receive(&mut gone)[14]), (7, 7));
    let text = head(&d) + "[switch]\nageing_s = 60\n[[port]]\nswitch = 'vale0'\nport = 'a'\n";
    let reply = apply(&d, &(text.clone() + "[[port]]\nswitch = 'vale0'\nport = 'null:new'\n"), json!({}));
    let actions: Vec<_> =
        reply["result"]["changes"].as_array().unwrap().iter().map(|c| c["action"].as_str().unwrap()).collect();
    assert_eq!((actions, &reply["result"]["unchanged"]), (vec!["set", "detach", "attach"], &json!(1)), "{reply}");
    send(&mut a, &frame(255, 1, 8));
    assert_eq!(receive(&mut b)[14], 8);
    let counted = stats(&d)["ports"][0].take();
    assert_eq!((&counted["name"], passed(&counted, "in")), (&json!("vale0:a"), 2));
    assert!(gone.wait(Interest::Rx, Some(LIMIT)).is_err(), "who has a port that goes is told");
    let taken = apply(&d, &(text + "[[port]]\nswitch = 'vale0'\nport = 'b'\n"), json!({"prune": true}));
    let message = taken["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("f.toml:10:8: port vale0:b was created by a program"), "{message}");
    assert_eq!(d.ports(), ["vale0:a", "vale0:b", "vale0:new"]);
    assert_eq!(shown(&d)["left_out"].as_array().unwrap().len(), 1);
}

/// Objective: ports of any kind that cannot be attached are skipped, and are attached when that is possible; if all
/// ports are required, the daemon does not start.
#[test]
fn ports_that_fail_are_skipped_and_attached_later() {
    let dir = tempfile::tempdir().unwrap();
    let later = dir.path().join("later");
    let sockets = ["vhost", "e1000", "ptnet"].map(|kind| format!("{kind}:{}/{kind}", later.display()));
    let mut failing = vec!["netmap:nosuch0".to_owned(), format!("pcap:{}/a.pcap", later.display())];
    failing.push("vxlan:7,local=203.0.113.9,remote=203.0.113.10".to_owned());
    let no_capture = dir.path().join("text.pcap");
    std::fs::write(&no_capture, "no capture").unwrap();
    failing.push(format!("pcap:{}", no_capture.display()));
    failing.extend(sockets.clone());
    let table = |(i, port): (usize, &String)| format!("[[port]]\nswitch = 'vale0'\nport = '{port}'\nname = 'p{i}'\n");
    let all: String = failing.iter().enumerate().map(table).collect();
    let text = format!("{all}[[port]]\nswitch = 'vale0'\nport = 'null:last'\n");
    let d = Daemon::start(&text);
    assert_eq!(d.ports(), ["vale0:last"]);
    std::fs::create_dir(&later).unwrap();
    let those: String = sockets.iter().enumerate().map(table).collect();
    let reply = apply(&d, &(head(&d) + &those), json!({}));
    assert_eq!(reply["result"]["changes"].as_array().map(Vec::len), Some(sockets.len() + 1), "{reply}");
    for port in failing.iter().filter(|port| !sockets.contains(port)) {
        let text = format!("require_ports = true\n[[port]]\nswitch = 'vale0'\nport = '{port}'\n");
        let refused = Daemon::refused(&text);
        assert!(refused.contains(&format!("port {port} of the configuration")), "{refused}");
    }
    let refused = Daemon::refused("[[port]]\nswitch = 'vale0'\nport = 'tap:t'\nnetns = '/run/netns/web'\n");
    assert!(refused.contains("does not enter network namespaces"), "{refused}");
}

/// Objective: a file that is longer than the requests of other users may be is accepted whole; it is exported
/// unchanged, and a daemon that starts with it has the same ports.
#[test]
fn a_large_file_is_accepted_whole() {
    let d = Daemon::start("");
    let ports: String = (0..200)
        .map(|n| format!("[[port]]\nswitch = 'vale{}'\nport = 'null:n{n}'\n# {}\n", n % 4, "x".repeat(500)))
        .collect();
    let text = head(&d) + &ports;
    assert!(text.len() > 100_000);
    assert_eq!(apply(&d, &text, json!({}))["result"]["changes"].as_array().unwrap().len(), 200);
    let written = shown(&d);
    let again = apply(&d, written["text"].as_str().unwrap(), json!({}));
    assert_eq!((&again["result"]["changes"], &again["result"]["unchanged"]), (&json!([]), &json!(200)));
    assert_eq!(written["config"]["port"].as_array().unwrap().len(), 200);
}

/// Objective: access to the sockets can be changed at run time, as far as the daemon has the right to do so.
#[test]
fn mode_of_the_sockets() {
    let d = Daemon::start("");
    let mode = || std::fs::metadata(d.path("attach.sock")).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(), 0o600);
    let reply = apply(&d, &(head(&d) + "[sockets]\nmode = '0640'\n"), json!({}));
    assert_eq!((&reply["result"]["changes"][0]["name"], mode()), (&json!("sockets.mode"), 0o640));
    let failing = head(&d) + "[sockets]\nmode = '0666'\n[[port]]\nswitch = 'vale0'\nport = 'x'\nslots = 4000000000\n";
    let message = apply(&d, &failing, json!({}))["error"]["message"].to_string();
    assert!(message.contains("vale0:x cannot be attached") && message.ends_with("nothing has changed\""), "{message}");
    assert_eq!(mode(), 0o640);
}

mod as_root {
    use super::*;

    /// Objective: untrusted users can neither apply nor export a configuration, nor list differences; nothing changes.
    #[test]
    fn untrusted_users_change_no_configuration() {
        if !common::is_root("playing another user takes root") {
            return;
        }
        let d = Daemon::start("[sockets]\nmode = '0666'\n[[port]]\nswitch = 'vale0'\nport = 'a'\n");
        std::fs::set_permissions(d.dir(), std::fs::Permissions::from_mode(0o755)).unwrap();
        for params in [json!({"text": ""}), json!({"text": "", "dry_run": true}), json!({"text": "wrong"})] {
            let reply = as_user(ALICE, || d.call("config.apply", params));
            assert_eq!(reply["error"]["code"], -32003, "{reply}");
        }
        assert_eq!(as_user(ALICE, || d.call("config.export", json!({})))["error"]["code"], -32003);
        assert_eq!(d.ports(), ["vale0:a"]);
    }
}
