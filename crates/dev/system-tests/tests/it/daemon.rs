//! The subcommands that use the daemon, with a daemon whose answers are fixed.

use crate::common::fake;

use crate::common;

use std::process::Output;

use common::{netvale, stderr, stdout};
use fake::FakeDaemon;
use netvale_control::request::Request;
use netvale_control::types::PortOptions;
use serde_json::Value;

fn ask(daemon: &FakeDaemon, args: &[&str]) -> Output {
    netvale().arg("--run-dir").arg(daemon.dir()).args(args).output().expect("the binary starts")
}

fn json(daemon: &FakeDaemon, args: &[&str]) -> Value {
    let text = stdout(&ask(daemon, args));
    assert_eq!(text.lines().count(), 1, "one object on one line: {text}");
    serde_json::from_str(&text).expect("JSON")
}

/// Returns the exit code and the two lines of the error.
fn failure(output: &Output) -> (i32, Vec<String>) {
    assert!(output.stdout.is_empty());
    (output.status.code().expect("no signal"), stderr(output).lines().map(str::to_owned).collect())
}

/// Objective: switches and ports are listed, as a table and as JSON; an unknown switch is refused.
#[test]
fn list_shows_switches_and_ports() {
    let daemon = FakeDaemon::start();
    let text = stdout(&ask(&daemon, &["list"]));
    assert!(text.starts_with("SWITCH") && text.contains("\nvale0:a  local  open   1000  4242"), "{text}");
    let object = json(&daemon, &["list", "vale0", "--json"]);
    assert_eq!(object["switches"][0]["name"], "vale0");
    assert_eq!((&object["ports"][1]["name"], &object["ports"][1]["kind"]), (&"vale0:b".into(), &"local".into()));
    assert!(object["ports"][0]["counters"]["in_frames"].as_u64().is_some_and(|frames| frames > 0));
    // Evicted ports of the given switch are shown; without a switch, all evicted ports are shown.
    assert!(text.contains("vale0:c") && text.contains("vale1:c") && text.contains("its memory is gone"), "{text}");
    assert_eq!(
        (object["evicted"].as_array().map(Vec::len), &object["evicted"][0]["port"]),
        (Some(1), &"vale0:c".into())
    );
    assert_eq!(failure(&ask(&daemon, &["list", "vale9"])).0, 4);
}

/// Objective: a port's rings and drops are shown by name, as text and as JSON; an unknown port is refused with the
/// daemon's message.
#[test]
fn show_prints_the_rings_and_drops_of_a_port() {
    let daemon = FakeDaemon::start();
    let text = stdout(&ask(&daemon, &["show", "vale0:a"]));
    assert!(text.contains("bad-buffer  in 0       5") && text.contains("4.0 MiB"), "{text}");
    assert_eq!(json(&daemon, &["show", "vale0:a", "--json"])["rings"][0]["slots"], 1024);
    let (code, lines) = failure(&ask(&daemon, &["show", "vale0:x"]));
    assert_eq!((code, lines.len()), (4, 2), "{lines:?}");
    assert!(lines[0].contains("there is no such thing") && lines[1].contains("netvale list"), "{lines:?}");
}

/// Objective: the forwarding table is shown, as text and as JSON.
#[test]
fn table_prints_the_forwarding_table() {
    let daemon = FakeDaemon::start();
    assert!(stdout(&ask(&daemon, &["table", "vale0"])).contains("02:00:00:00:00:01  vale0:a      3"));
    assert_eq!(json(&daemon, &["table", "vale0", "--json"])["entries"][0]["age_seconds"], 3);
    assert_eq!(failure(&ask(&daemon, &["table", "vale9"])).0, 4);
}

/// Objective: every option of `attach` reaches the daemon; paths are made absolute.
#[test]
fn every_option_of_attach_reaches_the_daemon() {
    let daemon = FakeDaemon::start();
    let here = std::env::current_dir().expect("a folder");
    let replay = format!("pcap:in={}/a.pcap,out=/b", here.display());
    let cases = [
        (
            "attach vale0 a --name web --rings 4 --slots 512 --buf-size 4096 --extra-bufs 9 \
             --huge --lossless --vnet-hdr 12",
            "a",
            serde_json::json!({
                "name": "web", "rings": 4, "slots": 512, "buf_size": 4096, "extra_bufs": 9, "huge": true,
                "lossless": true, "vnet_hdr": 12,
            }),
        ),
        ("attach vale0 tap:nv0 --rings 2 --mtu 9000", "tap:nv0", with(&[("rings", 2.into()), ("mtu", 9000.into())])),
        (
            "attach vale0 pcap:in=a.pcap,out=/b --loop --speed 0",
            &replay,
            with(&[("loop", true.into()), ("speed", 0.0.into())]),
        ),
    ];
    for (line, _, _) in &cases {
        assert_eq!(stdout(&ask(&daemon, &line.split_whitespace().collect::<Vec<_>>())), "vale0:web attached\n");
    }
    let requests = daemon.requests();
    assert_eq!(requests.len(), cases.len());
    for (request, (line, port, options)) in requests.iter().zip(cases) {
        let Request::PortAttach(params) = request else { panic!("{request:?}") };
        assert_eq!((params.switch.as_str(), params.port.as_str()), ("vale0", port), "{line}");
        assert_eq!(serde_json::to_value(&params.options).expect("JSON"), options, "{line}");
    }
}

/// Returns the default options of `attach`, with these changes.
fn with(changes: &[(&str, Value)]) -> Value {
    let mut options = serde_json::to_value(PortOptions::default()).expect("JSON");
    for (name, value) in changes {
        options[name] = value.clone();
    }
    options
}

/// Objective: an option that does not apply to the port's kind is refused by name, and not ignored.
#[test]
fn an_unfit_option_is_refused_by_name() {
    let daemon = FakeDaemon::start();
    for line in [
        "tap:nv0 --slots 512",
        "tap:nv0 --vnet-hdr 12",
        "tap:nv0 --huge",
        "a --mtu 9000",
        "a --loop",
        "pcap:out=/b --speed 2",
        "pcap:a.pcap --rings 2",
        "pcap:a.pcap --buf-size 4096",
        "pcap:a.pcap --extra-bufs 1",
    ] {
        let args: Vec<_> = ["attach", "vale0"].into_iter().chain(line.split_whitespace()).collect();
        let (code, lines) = failure(&ask(&daemon, &args));
        let option = args[3];
        assert!(code == 2 && lines[0].contains(option) && lines[1].contains(option), "{line}: {code} {lines:?}");
    }
    assert!(daemon.requests().is_empty());
}

/// Objective: a name that cannot be a port is a usage error before the daemon is asked; a refusal by the daemon has
/// exit code 4.
#[test]
fn refused_attachments_have_their_exit_codes() {
    let daemon = FakeDaemon::start();
    for wrong in [["attach", "vale0", "tap:"], ["attach", "a switch", "a"]] {
        let (code, lines) = failure(&ask(&daemon, &wrong));
        assert_eq!((code, lines.len()), (2, 2), "{wrong:?}: {lines:?}");
    }
    assert!(daemon.requests().is_empty());
    let (code, lines) = failure(&ask(&daemon, &["attach", "vale0", "taken"]));
    assert_eq!(code, 4);
    assert!(lines[0].contains("taken already") && lines[1].contains("choose another name"), "{lines:?}");
}

/// Objective: a port can be detached by its short name and by the name that `list` shows.
#[test]
fn a_port_is_detached_by_either_name() {
    let daemon = FakeDaemon::start();
    for name in ["a", "vale0:a"] {
        assert_eq!(stdout(&ask(&daemon, &["detach", "vale0", name])), "vale0:a detached\n");
    }
    assert_eq!(failure(&ask(&daemon, &["detach", "vale0", "x"])).0, 4);
}

/// Objective: `top --batch` prints the requested number of readings, with rates over the daemon's time, not the
/// client's time.
#[test]
fn top_batch_prints_the_requested_readings() {
    let daemon = FakeDaemon::start();
    let text = stdout(&ask(&daemon, &["top", "--batch", "-n", "2", "--delay", "0.01"]));
    assert_eq!(text.matches("2 ports over 1.00 s  worker 0 25.0 % busy\n").count(), 2, "{text}");
    let line = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).expect("a line");
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(line("vale0:a"), ["vale0:a", "1.00M", "480.00M", "0", "0", "0", "0.0010"]);
    assert_eq!(line("vale0:b"), ["vale0:b", "0", "0", "750.00K", "360.00M", "250.00K", "0.0000"]);
}

/// Objective: `top --json` prints one object per line.
#[test]
fn top_json_prints_one_object_a_line() {
    let daemon = FakeDaemon::start();
    let text = stdout(&ask(&daemon, &["top", "--json", "-n", "3", "-d", "0.01", "--sort", "name"]));
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len(), 3);
    for line in lines {
        assert_eq!((&line["seconds"], &line["ports"][0]["in_pps"]), (&1.0.into(), &1e6.into()));
        assert_eq!((&line["ports"][1]["drops_ps"], &line["workers_busy"][0]), (&250e3.into(), &25.0.into()));
    }
}

/// Objective: the screen needs a terminal; for a pipe, the error has the option to use.
#[test]
fn top_without_a_terminal_says_what_to_do() {
    let daemon = FakeDaemon::start();
    let (code, lines) = failure(&ask(&daemon, &["top"]));
    assert!(code == 2 && lines[1].contains("--batch"), "{code} {lines:?}");
}

/// Objective: `stop` returns once the daemon has ended.
#[test]
fn stop_returns_once_the_daemon_has_ended() {
    let daemon = FakeDaemon::start();
    assert_eq!(stdout(&ask(&daemon, &["stop"])), "");
    assert_eq!(daemon.requests(), [Request::Shutdown]);
    assert_eq!(failure(&ask(&daemon, &["list"])).0, 3);
}

/// Objective: without a daemon, each subcommand that needs one ends with exit code 3, and the error has the command to
/// start one.
#[test]
fn an_unreachable_daemon_gives_exit_code_3() {
    let dir = tempfile::tempdir().expect("a folder");
    let commands: [&[&str]; 7] = [
        &["list"],
        &["show", "vale0:a"],
        &["table", "vale0"],
        &["attach", "vale0", "a"],
        &["detach", "vale0", "a"],
        &["top", "-b"],
        &["stop"],
    ];
    for args in commands {
        let output = netvale().env("NETVALE_RUN_DIR", dir.path()).args(args).output().expect("the binary starts");
        let (code, lines) = failure(&output);
        assert_eq!((code, lines.len()), (3, 2), "{args:?}: {lines:?}");
        assert!(lines[0].contains(&dir.path().display().to_string()), "{lines:?}");
        assert!(lines[1].contains("netvale up"), "{lines:?}");
    }
}
