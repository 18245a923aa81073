//! A daemon that is killed, or ended by a signal, and restarted by a service manager.

use crate::common;
use crate::common::sequence;
use crate::common::up;

use std::path::Path;
use std::time::Duration;

use netvale::{Options, Port};
use netvale_control::client::Client;
use netvale_pcapport::PcapReader;
use rustix::process::Signal;
use sequence::{Came, Reader as Arrivals, Sender, open};
use up::{LIMIT, Up};

/// Pause between two bursts of a sender, which leaves the machine time for other work.
const PAUSE: Duration = Duration::from_millis(1);

/// Sends frames across a switch to a lossless port while the daemon is ended by `signal` repeatedly. Returns the
/// receiver's counts, and the number of frames sent.
fn under_traffic(signal: Signal) -> (Came, u64) {
    let d = Up::managed(&[]);
    d.must(&["attach", "vale0", "to", "--lossless", "--slots", "128"]);
    // A sender does not wait for a port among several to which frames are flooded; this port is therefore on another
    // switch.
    d.must(&["attach", "vale1", "null:none"]);
    let reader = Arrivals::start(open(d.dir(), "vale0:to"));
    let from = Sender::start(d.dir().into(), "vale0:from", PAUSE);
    for _ in 0..5 {
        reader.wait_for(reader.next() + 200);
        d.restart(signal);
        reader.wait_for(reader.next() + 200);
    }
    let sent = from.finish();
    let came = reader.finish(sent);
    let mut client = Client::connect(d.dir()).expect("it answers");
    assert!(client.show("vale0:to").expect("it is there").lossless);
    client.show("vale1:none").expect("what is not continued is attached anew");
    (came, sent)
}

/// Objective: after a daemon is killed while frames are in flight, the next daemon continues: no frame is lost or
/// overtaken, and at most a batch is duplicated each time.
#[test]
fn a_killed_daemon_is_continued_without_loss() {
    let (came, sent) = under_traffic(Signal::KILL);
    assert_eq!((came.next, came.missing), (sent, 0));
    assert!(came.again <= 5 * 127, "{came:?}");
}

/// Objective: a daemon that a signal ends leaves a consistent state: no frame is duplicated.
#[test]
fn a_daemon_ended_by_a_signal_doubles_no_frame() {
    let (came, sent) = under_traffic(Signal::TERM);
    assert_eq!(came, Came { next: sent, ..Came::default() });
}

/// Returns the number of each frame in a capture, up to the first incomplete frame.
fn captured(path: &Path) -> Vec<u64> {
    let mut reader = PcapReader::open(path).expect("a capture");
    let mut all = Vec::new();
    while let Ok(Some(frame)) = reader.next_frame() {
        let (_, number) = frame.bytes.split_last_chunk::<8>().expect("a number");
        all.push(u64::from_be_bytes(*number));
    }
    all
}

/// Objective: a capture continues in the same file after its daemon is killed under traffic, even repeatedly: earlier
/// frames stay, and the file is complete.
#[test]
fn a_capture_goes_on_in_the_same_file() {
    let d = Up::managed(&[]);
    let file = d.dir().join("all.pcapng");
    d.must(&["attach", "vale0", &format!("pcap:out={}", file.display()), "--name", "file"]);
    // This port discards frames; it gives the sender's frames a second destination.
    d.must(&["attach", "vale0", "null:none"]);
    let from = Sender::start(d.dir().into(), "vale0:from", PAUSE);
    let mut before = Vec::new();
    for _ in 0..3 {
        let more = before.len() + 200;
        assert!(netvale_harness::until(LIMIT, PAUSE, || captured(&file).len() >= more));
        let now = captured(&file);
        assert!(now.starts_with(&before), "what was captured is gone");
        before = now;
        d.restart(Signal::KILL);
    }
    let sent = from.finish();
    assert!(netvale_harness::until(LIMIT, PAUSE, || captured(&file).last() == Some(&(sent - 1))));
    d.must(&["detach", "vale0:file"]);
    let all = captured(&file);
    let mut whole = PcapReader::open(&file).expect("a capture");
    assert!(all.starts_with(&before));
    for _ in &all {
        assert!(whole.next_frame().expect("a whole file").is_some());
    }
    assert!(whole.next_frame().expect("a whole file").is_none());
}

/// Objective: an interface on a switch, and the interface at the other end of the veth pair, which a program has open,
/// continue after the daemon is killed under traffic.
#[test]
fn interfaces_survive_a_killed_daemon() {
    if !common::is_root("needs root") {
        return;
    }
    if !netvale_harness::net::inside(&["--net"]).expect("a namespace") {
        return;
    }
    netvale_harness::net::cable("nva", "nvb", 1).expect("a cable");
    let d = Up::managed(&[]);
    d.must(&["attach", "vale0", "netmap:nva"]);
    // Room for frames that arrive while the machine does other work.
    let options = Options { run_dir: Some(d.dir().into()), slots: 4096, ..Options::default() };
    let reader = Arrivals::start(Port::open_with("netmap:nvb", &options).expect("it opens"));
    let from = Sender::start(d.dir().into(), "vale0:from", 5 * PAUSE);
    for _ in 0..3 {
        reader.wait_for(reader.next() + 200);
        d.restart(Signal::KILL);
        reader.wait_for(reader.next() + 200);
    }
    let sent = from.finish();
    let came = reader.finish(sent);
    assert_eq!((came.next, came.missing), (sent, 0));
    assert!(came.again <= 3 * (127 + 1024), "{came:?}");
}

/// Objective: after a daemon is killed, the next daemon has its counters and addresses as they were a moment before.
#[test]
fn counters_and_addresses_survive_a_killed_daemon() {
    let d = Up::managed(&[]);
    d.must(&["attach", "vale0", "to"]);
    let reader = Arrivals::start(open(d.dir(), "vale0:to"));
    let from = Sender::start(d.dir().into(), "vale0:from", PAUSE);
    reader.wait_for(100);
    // The state must be stored twice, because the first time may have begun before the frames arrived.
    for _ in 0..2 {
        let before = d.manager().names();
        assert!(netvale_harness::until(LIMIT, PAUSE, || d.manager().names() != before));
    }
    d.restart(Signal::KILL);
    let mut client = Client::connect(d.dir()).expect("it answers");
    let port = client.show("vale0:to").expect("it is there");
    assert!(port.rings.iter().any(|ring| ring.frames >= 100), "{:?}", port.rings);
    assert!(!client.table("vale0").expect("it is there").is_empty());
    let sent = from.finish();
    reader.finish(sent);
}

/// Objective: after a restart, ports that ended while no daemon ran are gone, and attached ports are still there; a
/// daemon that is stopped by request leaves nothing with the service manager.
#[test]
fn only_attached_ports_are_left_afterwards() {
    let d = Up::managed(&[]);
    d.must(&["attach", "vale0", "stays"]);
    let gone = open(d.dir(), "vale0:gone");
    let mut pipe = open(d.dir(), "netmap:p{1");
    let kept = |d: &Up| d.manager().names().len();
    // The manager stores nine descriptors: the regions of two ports and of a pipe, a switch, two ports, a pipe, and two
    // connections.
    netvale_harness::until(LIMIT, PAUSE, || kept(&d) == 9);
    assert_eq!(kept(&d), 9);
    d.end(Signal::KILL).expect("it ends");
    drop(gone);
    d.start_again().expect("another one starts");
    let names = |d: &Up| -> Vec<String> {
        let ports = Client::connect(d.dir()).expect("it answers").ports(None).expect("it lists them");
        ports.into_iter().map(|port| port.name).collect()
    };
    assert!(netvale_harness::until(LIMIT, PAUSE, || names(&d) == ["vale0:stays", "netmap:p{1"]), "{:?}", names(&d));
    pipe.sync();
    let mut other = open(d.dir(), "netmap:p}1");
    assert!(other.tx()[0].send(&[7; 60]));
    other.sync();
    assert!(netvale_harness::until(LIMIT, PAUSE, || {
        pipe.sync();
        pipe.rx()[0].space() == 1
    }));
    d.must(&["stop"]);
    assert!(netvale_harness::until(LIMIT, PAUSE, || kept(&d) == 0), "{:?}", d.manager().names());
}
