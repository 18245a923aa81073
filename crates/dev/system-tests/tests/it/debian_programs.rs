//! Unmodified programs from Debian on netvale's ports, under `netvale run`.

use crate::common;
use crate::common::libs;
use crate::common::responder;
use crate::common::traffic;
use crate::common::up;

use std::path::PathBuf;
use std::process::{Command, Output};

use common::{stderr, stdout};
use responder::PortThread;
use traffic::{Peer, datagram, write_pcap};
use up::{Guarded, Up};

/// Starts a daemon; `None` if the program is not installed.
fn up_for(program: &str) -> Option<Up> {
    common::has(&[program]).then(|| Up::start(&[]))
}

/// Returns the command `netvale run -- LINE`, from blank-separated words.
fn under_run(up: &Up, line: &str) -> Command {
    let mut command = up.preload();
    command.args(line.split(' '));
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    command.env("PATH", path);
    command
}

fn start(up: &Up, line: &str) -> Guarded {
    Guarded::start(&mut under_run(up, line))
}

/// Runs a sniffer on vale0:cap, sends `frames` to it, and waits until the sniffer ends.
fn sniff(up: &Up, line: &str, frames: &[Vec<u8>]) -> Output {
    let sniffer = start(up, line);
    up.wait_for_port("vale0:cap");
    // Some sniffers open the port several times before they receive, so the frames are sent until the sniffer ends.
    let sender = Peer::open(up, "vale0:sender");
    sender.repeat_until_ended(sniffer, frames)
}

fn numbered(count: u32, to_port: u16) -> Vec<Vec<u8>> {
    (0..count).map(|n| datagram(to_port, format!("datagram {n} needle").as_bytes())).collect()
}

fn mixed() -> Vec<Vec<u8>> {
    numbered(20, 49001).into_iter().zip(numbered(20, 49002)).flat_map(|(a, b)| [a, b]).collect()
}

/// Returns the frames of a capture file, as the system's tcpdump prints them.
fn read_back(file: &PathBuf) -> String {
    let output = Command::new("tcpdump").args(["-ntr"]).arg(file).output().expect("tcpdump runs");
    stdout(&output)
}

/// Objective: tcpdump captures on a port, its filter applies to each frame, and the file has whole frames.
#[test]
fn tcpdump_captures_whole_frames() {
    let Some(up) = up_for("tcpdump") else { return };
    let file = up.path("out.pcap");
    let line = format!("tcpdump -Z root -ni vale0:cap -c 20 -w {} udp port 49002", file.display());
    let output = sniff(&up, &line, &mixed());
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("20 packets captured"), "{}", stderr(&output));
    let text = read_back(&file);
    assert_eq!(text.lines().count(), 20, "{text}");
    assert!(text.lines().all(|l| l.contains("10.9.0.2.49002: UDP, length")), "{text}");
}

/// Objective: tcpdump prints the frames that it receives, with nanoseconds and a short snapshot length.
#[test]
fn tcpdump_prints_what_it_hears() {
    let Some(up) = up_for("tcpdump") else { return };
    let line = "tcpdump -nli vale0:cap --nano -s 60 -c 5 udp port 49001";
    let text = stdout(&sniff(&up, line, &mixed()));
    assert_eq!(text.lines().count(), 5, "{text}");
    // A time with nine digits after the decimal point.
    assert!(text.lines().all(|l| l.split([' ', '.']).nth(1).is_some_and(|ns| ns.len() == 9)), "{text}");
}

/// Objective: a monitor, opened like an interface, shows the frames of a port that another program uses.
#[test]
fn tcpdump_watches_the_port_of_another_program() {
    let Some(up) = up_for("tcpdump") else { return };
    let watched = Peer::open(&up, "vale0:watched");
    let sniffer = start(&up, "tcpdump -nli vale0:watched/z -c 3");
    up::until("the monitor is there", || stdout(&up.run("list")).contains("monitor"));
    let text = stdout(&watched.repeat_until_ended(sniffer, &numbered(3, 49003)));
    assert_eq!(text.matches("10.9.0.2.49003").count(), 3, "{text}");
}

/// Objective: the list of interfaces has the system's interfaces and the daemon's ports, under names that can be
/// opened.
#[test]
fn tcpdump_lists_the_systems_and_our_interfaces() {
    let Some(up) = up_for("tcpdump") else { return };
    let _port = Peer::open(&up, "vale0:listed");
    let ours = stdout(&libs::finish(under_run(&up, "tcpdump -D")));
    for name in [".vale0:listed/z ", ".nv:vale0 ", ".lo "] {
        assert!(ours.contains(name), "{name} is not in {ours}");
    }
    let plain = Command::new("tcpdump").arg("-D").output().expect("tcpdump runs");
    assert!(!stdout(&plain).contains("vale0"));
}

/// Objective: a name that is not the name of a port is left to the system: the error and the frames are the same as
/// without netvale.
#[test]
fn other_interfaces_are_left_to_the_system() {
    let Some(up) = up_for("tcpdump") else { return };
    let bad = ["-ni", "no-such-interface", "-c", "1"];
    let with = libs::finish(under_run(&up, &format!("tcpdump {}", bad.join(" "))));
    let without = Command::new("tcpdump").args(bad).output().expect("tcpdump runs");
    assert_eq!((with.status.code(), stderr(&with)), (without.status.code(), stderr(&without)));
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let port = socket.local_addr().expect("its address").port();
    let sniffer = start(&up, &format!("tcpdump -nli lo -c 1 udp port {port}"));
    let output = traffic::until_ended(sniffer, || drop(socket.send_to(b"hello", ("127.0.0.1", port))));
    assert!(stdout(&output).contains(&format!("127.0.0.1.{port}")), "{}", stderr(&output));
}

/// Objective: dumpcap, which opens ports in a process with fewer privileges, writes the frames that it receives.
#[test]
fn dumpcap_captures_what_it_hears() {
    let Some(up) = up_for("dumpcap") else { return };
    let file = up.path("out.pcapng");
    let line = format!("dumpcap -q -i vale0:cap -c 20 -w {}", file.display());
    let output = sniff(&up, &line, &mixed());
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(read_back(&file).lines().count(), 20);
}

/// Objective: tshark, which runs dumpcap, dissects the frames of a port.
#[test]
fn tshark_dissects_what_a_port_hears() {
    let Some(up) = up_for("tshark") else { return };
    let line = "tshark -l -n -i vale0:cap -c 10 -T fields -e udp.dstport -f udp";
    let output = sniff(&up, line, &mixed());
    let text = stdout(&output);
    assert_eq!(text.lines().filter(|l| matches!(*l, "49001" | "49002")).count(), 10, "{text} {}", stderr(&output));
}

/// Objective: ngrep finds its pattern in payloads.
#[test]
fn ngrep_finds_its_pattern_in_payloads() {
    let Some(up) = up_for("ngrep") else { return };
    let text = stdout(&sniff(&up, "ngrep -d vale0:cap -q -n 2 needle udp port 49002", &mixed()));
    assert_eq!(text.matches(" needle ").count(), 2, "{text}");
}

/// Objective: tcpreplay sends all frames of a file into a switch, in order and at full speed, even if it ends right
/// after sending.
#[test]
fn tcpreplay_sends_all_frames_of_a_file() {
    let Some(up) = up_for("tcpreplay") else { return };
    let mut receiver = Peer::open(&up, "vale0:receiver");
    let frames = numbered(400, 49001);
    let file = up.path("in.pcap");
    write_pcap(&file, &frames);
    for _ in 0..3 {
        let output = libs::finish(under_run(&up, &format!("tcpreplay -t -i nv:vale0 {}", file.display())));
        let text = stdout(&output);
        assert!(text.contains("Successful packets:        400"), "{text} {}", stderr(&output));
        assert_eq!(receiver.take(frames.len()), frames);
    }
}

/// Objective: arping gets an answer: it sends on a packet socket, after dropping its privileges, and receives through
/// libpcap.
#[test]
fn arping_is_answered() {
    let Some(up) = up_for("arping") else { return };
    let _responder = PortThread::host(&up, "vale0:host");
    let line = "arping -I vale0:x -S 10.9.0.9 -s 02:00:00:00:00:09 -C 2 -W 0.1 -w 30 10.9.0.1";
    let output = libs::finish(under_run(&up, line));
    let text = stdout(&output);
    // On a busy machine, another request may be sent before the second answer arrives.
    assert!(text.contains(" 2 packets received"), "{text} {}", stderr(&output));
    assert_eq!(text.matches("02:00:00:0a:09:01").count(), 2, "{text}");
}

/// Objective: arp-scan finds the only host.
#[test]
fn arp_scan_finds_the_one_host() {
    let Some(up) = up_for("arp-scan") else { return };
    let _responder = PortThread::host(&up, "vale0:host");
    let line = "arp-scan --interface=vale0:x --arpspa=10.9.0.9 --quiet 10.9.0.0-10.9.0.7";
    let output = libs::finish(under_run(&up, line));
    let text = stdout(&output);
    assert!(text.contains("10.9.0.1\t02:00:00:0a:09:01"), "{text} {}", stderr(&output));
    assert!(text.contains("1 responded"), "{text}");
}

/// Objective: scapy sends and receives through libpcap, which ctypes finds at run time.
#[test]
fn scapy_sends_and_receives_through_libpcap() {
    const SCRIPT: &str = r#"
from scapy.all import conf, Ether, ARP
conf.use_pcap = True
s = conf.L2socket(iface="vale0:x")
s.send(Ether(src="02:00:00:00:00:09", dst="ff:ff:ff:ff:ff:ff")/ARP(psrc="10.9.0.9", pdst="10.9.0.1"))
for _ in range(1000):
    p = s.recv()
    if p is not None and ARP in p and p[ARP].op == 2:
        print(p[ARP].hwsrc)
        break
"#;
    let python = Command::new("/usr/bin/python3").args(["-c", "import scapy"]).output();
    if !python.is_ok_and(|o| o.status.success()) {
        netvale_harness::skip("scapy is not installed");
        return;
    }
    let up = Up::start(&[]);
    let _responder = PortThread::host(&up, "vale0:host");
    let script = up.path("talk.py");
    std::fs::write(&script, SCRIPT).expect("written");
    let output = libs::finish(under_run(&up, &format!("/usr/bin/python3 {}", script.display())));
    assert_eq!(stdout(&output).trim(), "02:00:00:0a:09:01", "{}", stderr(&output));
}
