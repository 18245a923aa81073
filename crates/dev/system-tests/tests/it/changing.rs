//! `netvale apply`, `netvale export` and SIGHUP with a daemon in its sandbox.

use crate::common;
use crate::common::up;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{stderr, stdout};
use netvale_harness::net::{self, NamespaceHost};
use netvale_harness::{ChildProcess, Launch};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use up::{LIMIT, Up};

/// A daemon with its own configuration file in its own folder. The daemon's log is stored.
struct Configured {
    daemon: Up,
    folder: tempfile::TempDir,
}

impl Configured {
    fn start(text: &str, more: &[&str]) -> Configured {
        let folder = tempfile::tempdir().expect("a folder");
        let own = folder.path().join("netvale");
        std::fs::create_dir(&own).expect("a folder");
        let file = own.join("netvale.toml");
        std::fs::write(&file, text).expect("room");
        let arguments = [&["--config", file.to_str().expect("text")], more].concat();
        let launch = Launch::up(&netvale_system_tests::netvale(), &arguments).log_to(folder.path().join("log"));
        Configured { daemon: Up::launch(launch), folder }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("netvale/netvale.toml")
    }

    /// Writes a further configuration file with this text. Returns the file's path.
    fn other(&self, text: &str) -> PathBuf {
        let file = self.folder.path().join("other.toml");
        std::fs::write(&file, text).expect("room");
        file
    }

    /// Replaces the daemon's configuration file by a new file, as editors do.
    fn replace(&self, text: &str) {
        let new = self.folder.path().join("netvale/netvale.toml.new");
        std::fs::write(&new, text).expect("room");
        std::fs::rename(new, self.file()).expect("the same folder");
    }

    fn command(&self, arguments: &[&str]) -> Command {
        self.daemon.command(arguments)
    }

    fn run(&self, arguments: &[&str]) -> std::process::Output {
        self.command(arguments).output().expect("the binary starts")
    }

    fn ports(&self) -> Vec<String> {
        let list: Value = serde_json::from_str(&stdout(&self.run(&["list", "--json"]))).expect("JSON");
        list["ports"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|port| port["name"].as_str().expect("text").into())
            .collect()
    }

    /// Sends SIGHUP, and waits until the log contains the text. Returns what was logged since the signal.
    fn hang_up(&self, says: &str) -> String {
        let before = self.log().len();
        let pid = Pid::from_raw(self.daemon.id().cast_signed()).expect("a process");
        kill_process(pid, Signal::HUP).expect("it runs");
        let since = || self.log()[before..].to_owned();
        up::until(says, || since().contains(says));
        since()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).expect("a log")
    }
}

fn apply(of: &Configured, file: &Path, more: &[&str]) -> std::process::Output {
    of.run(&[&["apply", file.to_str().expect("text")], more].concat())
}

fn nulls(range: std::ops::Range<u32>) -> String {
    range.fold(String::new(), |mut text, n| {
        let kind = if n % 2 == 0 { "null:" } else { "" };
        let _ = writeln!(text, "[[port]]\nswitch = 'vale{}'\nport = '{kind}p{n}'", n % 3);
        text
    })
}

/// Objective: as in the guide, the difference is shown without a change; applying it prints each change; applying the
/// exported file changes nothing, and a daemon started with it is the same as the first.
#[test]
fn shown_done_and_written_down() {
    let first = "[[port]]\nswitch = 'vale0'\nport = 'web'\n";
    let d = Configured::start(first, &["--spin-us", "7"]);
    let file = d.other(
        "[switch]\nageing_s = 60\n\
         [[port]]\nswitch = 'vale0'\nport = 'web'\nrings = 4\n\
         [[port]]\nswitch = 'vale0'\nport = 'null:sink'\n",
    );
    let lines =
        "~ switch.ageing_s: 300 → 60\n* vale0:web: web → web, rings 4 (attached again)\n+ vale0:sink: null:sink\n";
    let dry = stdout(&apply(&d, &file, &["--diff"]));
    assert_eq!(
        dry,
        lines.to_owned() + "1 attached, 1 attached again, 1 changed; 0 ports not touched; nothing was changed\n"
    );
    assert_eq!(d.ports(), ["vale0:web"]);
    assert_eq!(
        stdout(&apply(&d, &file, &[])),
        lines.to_owned() + "1 attached, 1 attached again, 1 changed; 0 ports not touched\n"
    );
    assert_eq!(stdout(&apply(&d, &file, &[])), "nothing to change\n");
    let exported = stdout(&d.run(&["export"]));
    let copy = d.other(&exported);
    assert_eq!(stdout(&apply(&d, &copy, &[])), "nothing to change\n");
    let json: Value = serde_json::from_str(&stdout(&d.run(&["export", "--json"]))).expect("JSON");
    assert_eq!((&json["spin_us"], &json["port"][1]["rings"]), (&7.into(), &4.into()), "{json}");
    let again = Configured::start(&exported, &[]);
    let told: Value = serde_json::from_str(&stdout(&again.run(&["export", "--json"]))).expect("JSON");
    assert_eq!((&told["port"], &told["switch"], &told["spin_us"]), (&json["port"], &json["switch"], &json["spin_us"]));
    assert!(stdout(&d.run(&["apply", "--schema"])) == stdout(&d.run(&["up", "--schema"])));
}

/// Objective: mistakes are reported with the file's name, line and column, whether the command or the daemon finds
/// them; nothing changes, and the exit status shows the failure.
#[test]
fn mistakes_are_told_with_line_and_column() {
    let d = Configured::start("[[port]]\nswitch = 'vale0'\nport = 'web'\n", &[]);
    for (text, code, place, word) in [
        ("workers = 1\nwrokers = 2\n", 1, ":2:1: ", "wrokers"),
        ("[switch]\nageing_s = 0\n", 1, ":2:12: ", "ageing_s is 0"),
        ("[[port]]\nswitch = 'vale0'\nport = 'netmap:nowhere0'\n", 4, ":3:8: ", "interface nowhere0 does not exist"),
        ("[[port]]\nswitch = 'vale0'\nport = 'pcap:out=/elsewhere/x'\n", 4, ":3:8: ", "sandbox"),
        ("[[port]]\nswitch = 'vale0'\nport = 'x'\nslots = 4000000000\n", 4, ":3:8: ", "vale0:web"),
    ] {
        let output = apply(&d, &d.other(text), &[]);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{said}");
        let start = format!("netvale: {}{place}", d.folder.path().join("other.toml").display());
        assert!(said.starts_with(&start) && said.contains(word) && said.lines().count() == 2, "{said}");
        assert_eq!(d.ports(), ["vale0:web"]);
    }
    assert_eq!(d.run(&["apply", "/nowhere/x.toml"]).status.code(), Some(1));
}

/// Objective: SIGHUP applies the daemon's own file from inside the sandbox, even if the file was replaced; a wrong or
/// missing file changes nothing, and the log has the location of the mistake.
#[test]
fn sighup_applies_the_daemons_own_file() {
    let web = "[[port]]\nswitch = 'vale0'\nport = 'web'\n";
    let d = Configured::start(web, &[]);
    d.replace(&(web.to_owned() + "[[port]]\nswitch = 'vale0'\nport = 'null:sink'\n"));
    let log = d.hang_up("1 changes, 1 ports not touched");
    assert!(log.contains("netvale.toml: + vale0:sink"), "{log}");
    assert_eq!(d.ports(), ["vale0:sink", "vale0:web"]);
    d.replace("[[port]]\nswitch = 'vale0'\nport = 'web'\nsolts = 3\n");
    let log = d.hang_up("netvale.toml:4:1: ");
    assert!(log.contains("solts") && log.contains("nothing has changed"), "{log}");
    std::fs::remove_file(d.file()).expect("it is there");
    let log = d.hang_up("cannot read");
    assert!(log.contains("nothing has changed"), "{log}");
    assert_eq!(d.ports(), ["vale0:sink", "vale0:web"]);
}

/// Objective: SIGHUP accepts an exported file whose rules are in words, because they equal the rules of the daemon's
/// ports; new rules are refused, with the command that compiles them.
#[test]
fn rules_are_read_again() {
    let d = Configured::start("[[port]]\nswitch = 'vale0'\nport = 'web'\n", &[]);
    stdout(&d.run(&["filter", "vale0:web", "in", "drop", "not", "arp"]));
    let exported = stdout(&d.run(&["export"]));
    assert!(exported.contains(r#"filter_in = ["drop not arp"]"#), "{exported}");
    d.replace(&exported);
    d.hang_up("0 changes, 1 ports not touched");
    d.replace(&exported.replace("not arp", "not ip"));
    let log = d.hang_up("'netvale apply' compile expressions");
    assert!(log.contains("nothing has changed"), "{log}");
    let rules = stdout(&d.run(&["filter", "vale0:web"]));
    assert!(rules.contains("not arp"), "{rules}");
}

/// Runs a program in a host's namespace until it ends.
fn on(host: &NamespaceHost, program: &str, arguments: &[&str]) -> std::process::Output {
    host.command(program, arguments).output().expect("it starts")
}

/// Moves a TAP port of the daemon into a namespace, and brings it up with an address. The stack sends no multicasts of
/// its own.
fn settle(host: &NamespaceHost, tap: &str, address: &str) {
    let quiet = "for of in all default; do echo 1 > /proc/sys/net/ipv6/conf/$of/disable_ipv6; done";
    assert!(on(host, "sh", &["-c", quiet]).status.success());
    net::ip(&format!("link set {tap} netns {}", host.pid())).expect("moved");
    for line in [format!("addr add {address}/24 dev {tap}"), format!("link set {tap} up")] {
        assert!(on(host, "ip", &line.split(' ').collect::<Vec<_>>()).status.success(), "ip {line}");
    }
}

/// Packet counters of an interface.
struct Counted {
    sent: u64,
    received: u64,
    dropped: u64,
}

fn counted(host: &NamespaceHost, interface: &str) -> Counted {
    let said = stdout(&on(host, "ip", &["-s", "-j", "link", "show", interface]));
    let links: Value = serde_json::from_str(&said).expect("JSON");
    let of = |way: &str, what: &str| links[0]["stats64"][way][what].as_u64().expect("a number");
    let dropped = ["dropped", "errors"].iter().map(|what| of("rx", what) + of("tx", what)).sum();
    Counted { sent: of("tx", "packets"), received: of("rx", "packets"), dropped }
}

/// Objective: while fifty ports are attached and detached repeatedly, on the same switch and others, two hosts whose
/// ports stay lose no packet: neither a flood of pings nor a TCP connection is affected.
#[test]
fn nothing_is_lost_beside() {
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/net/tun").exists() {
        return netvale_harness::skip("TAPs and namespaces need root and /dev/net/tun");
    }
    if !net::inside(&["--net", "--mount"]).expect("inside") {
        return;
    }
    let taps = "[[port]]\nswitch = 'vale0'\nport = 'tap:chga'\nmtu = 1400\n\
                [[port]]\nswitch = 'vale0'\nport = 'tap:chgb'\nmtu = 1400\n";
    let d = Configured::start(taps, &["--workers", "1"]);
    let a = NamespaceHost::new().expect("a namespace");
    let b = NamespaceHost::new().expect("a namespace");
    settle(&a, "chga", "10.77.0.1");
    settle(&b, "chgb", "10.77.0.2");
    up::until("they answer", || on(&a, "ping", &["-c1", "-W1", "10.77.0.2"]).status.success());
    let mut server = b.command("iperf3", &["-s", "-1", "--forceflush"]);
    let mut server = ChildProcess::start(server.stdout(Stdio::piped())).expect("iperf3 starts");
    let mut lines = server.lines().expect("its output");
    let mut line = String::new();
    while !line.contains("listening") {
        line.clear();
        assert!(std::io::BufRead::read_line(&mut lines, &mut line).expect("a line") > 0, "iperf3 listens");
    }
    let drops = || {
        ["vale0:chga", "vale0:chgb"].map(|port| {
            let shown: Value = serde_json::from_str(&stdout(&d.run(&["show", port, "--json"]))).expect("JSON");
            shown["drops"].clone()
        })
    };
    // A ping every 2 ms; on a busy machine, an answer may take long.
    let mut ping = a.command("ping", &["-q", "-i", "0.002", "-c", "2000", "-W", "30", "10.77.0.2"]);
    let mut tcp = a.command("iperf3", &["-c", "10.77.0.2", "-t", "6", "-b", "20M", "-J"]);
    let mut ping = ChildProcess::start(ping.stdout(Stdio::piped())).expect("ping starts");
    let tcp = ChildProcess::start(tcp.stdout(Stdio::piped())).expect("iperf3 starts");
    let files = [taps.to_owned() + &nulls(0..50), taps.to_owned(), taps.to_owned() + &nulls(25..75)];
    let mut rounds = 0;
    while ping.child().try_wait().expect("a child").is_none() {
        let applied = stdout(&apply(&d, &d.other(&files[rounds % files.len()]), &[]));
        assert!(applied.ends_with("2 ports not touched\n") || applied.contains("27 ports not touched\n"), "{applied}");
        rounds += 1;
    }
    let said = stdout(&ping.output(Some(LIMIT)).expect("it ends"));
    assert!(
        rounds >= 3 && said.contains("2000 packets transmitted, 2000 received, 0% packet loss"),
        "{rounds}: {said}"
    );
    let report: Value = serde_json::from_str(&stdout(&tcp.output(Some(LIMIT)).expect("it ends"))).expect("JSON");
    // TCP may retransmit if an acknowledgement is late, which is not a loss.
    assert!(report["error"].is_null() && report["end"]["sum_received"]["bytes"].as_u64() > Some(1 << 20), "{report}");
    let count = || [counted(&a, "chga"), counted(&b, "chgb")];
    up::until("what one host has sent, the other has", || {
        let [one, other] = count();
        (one.sent, other.sent) == (other.received, one.received)
    });
    assert_eq!(count().map(|host| host.dropped), [0, 0]);
    assert!(drops().iter().all(|drops| drops.as_object().is_none_or(serde_json::Map::is_empty)));
}

/// Objective: a TAP's MTU changes while the interface stays; if a step fails, everything is restored, including the
/// MTU.
#[test]
fn the_mtu_of_a_tap_changes_in_place() {
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/net/tun").exists() {
        return netvale_harness::skip("TAPs need root and /dev/net/tun");
    }
    if !net::inside(&["--net", "--mount"]).expect("inside") {
        return;
    }
    // Only a new mount of /sys shows the interfaces of this namespace.
    assert!(Command::new("mount").args(["-t", "sysfs", "none", "/sys"]).status().expect("mount").success());
    let tap = |mtu: u32| format!("[[port]]\nswitch = 'vale0'\nport = 'tap:inpl'\nmtu = {mtu}\n");
    let of = |what: &str| std::fs::read_to_string(format!("/sys/class/net/inpl/{what}")).expect("it is there");
    let d = Configured::start(&tap(1500), &[]);
    let index = of("ifindex");
    let said = stdout(&apply(&d, &d.other(&tap(9000)), &[]));
    assert!(said.starts_with("~ vale0:inpl: tap:inpl, mtu 1500 → tap:inpl, mtu 9000 (in place)"), "{said}");
    assert_eq!((of("mtu").trim(), of("ifindex")), ("9000", index.clone()));
    // The device is removed and made again, on this switch and on another.
    for _ in 0..5 {
        for (old, new, sign) in [
            ("mtu = 9000", "rings = 2", "* vale0:inpl"),
            ("'vale0'", "'vale1'", "+ vale1:inpl"),
            ("", "", "+ vale0:inpl"),
        ] {
            let said = stdout(&apply(&d, &d.other(&tap(9000).replace(old, new)), &[]));
            assert!(said.contains(sign), "{said}");
        }
    }
    let index = of("ifindex");
    let failing = tap(1400) + "[[port]]\nswitch = 'vale0'\nport = 'x'\nslots = 4000000000\n";
    assert_eq!(apply(&d, &d.other(&failing), &[]).status.code(), Some(4));
    assert_eq!((of("mtu").trim(), of("ifindex")), ("9000", index));
}
