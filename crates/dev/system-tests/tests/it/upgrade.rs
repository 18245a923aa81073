//! A daemon that is replaced while frames are in flight.

use crate::common;
use crate::common::sequence;
use crate::common::up;

use std::time::{Duration, Instant};

use common::stderr;
use netvale::Port;
use netvale_control::client::Client;
use netvale_control::types::{AttachParams, Latency, Policies, PortOptions};
use netvale_harness::Pretender;
use sequence::{Came, LIMIT, Reader, Sender, frame, open};
use up::Up;

/// Pause between two bursts of a sender, which leaves the machine time for other work.
const PAUSE: Duration = Duration::from_millis(1);

/// A daemon whose switch numbered frames cross to a lossless port.
struct Crossing {
    d: Up,
    to: Port,
    from: Sender,
    came: Came,
}

impl Crossing {
    fn start(pause: Duration) -> Crossing {
        let d = Up::start(&[]);
        d.must(&["attach", "vale0", "to", "--lossless", "--slots", "128"]);
        let to = open(d.dir(), "vale0:to");
        let from = Sender::start(d.dir().into(), "vale0:from", pause);
        Crossing { d, to, from, came: Came::default() }
    }
}

/// Objective: frames across a switch to a lossless port, and across a pipe, arrive once each and in order while the
/// daemon is replaced repeatedly; addresses, counters and options stay.
#[test]
fn nothing_is_lost() {
    let d = Up::start(&[]);
    d.must(&["attach", "vale0", "to", "--lossless", "--slots", "128"]);
    let mut to = open(d.dir(), "vale0:to");
    let mut end = open(d.dir(), "netmap:p{1");
    let from = Sender::start(d.dir().into(), "vale0:from", PAUSE);
    let other = Sender::start(d.dir().into(), "netmap:p}1", PAUSE);
    let mut came = Came::default();
    let mut through = Came::default();
    for _ in 0..5 {
        let more = came.next + 500;
        let others = through.next + 500;
        std::thread::scope(|scope| {
            let upgrade = scope.spawn(|| d.upgrade());
            came.read_up_to(&mut to, more);
            through.read_up_to(&mut end, others);
            while !upgrade.is_finished() {
                came.read(&mut to);
                through.read(&mut end);
            }
            upgrade.join().expect("it is replaced");
        });
    }
    let (sent, others) = std::thread::scope(|scope| {
        let from = scope.spawn(|| from.finish());
        let other = scope.spawn(|| other.finish());
        while !(from.is_finished() && other.is_finished()) {
            came.read(&mut to);
            through.read(&mut end);
        }
        (from.join().expect("it sends"), other.join().expect("it sends"))
    });
    came.read_up_to(&mut to, sent);
    through.read_up_to(&mut end, others);
    assert_eq!(came, Came { next: sent, ..Came::default() });
    assert_eq!(through, Came { next: others, ..Came::default() });
    let port = Client::connect(d.dir()).expect("it answers").show("vale0:to").expect("it is there");
    assert!(port.lossless);
    assert_eq!(port.rings.iter().map(|ring| ring.frames).max(), Some(sent), "counted across all of them");
}

/// Stops the sender while its frames are read, and asserts that all arrived once each and in order.
fn all_came(from: Sender, mut came: Came, to: &mut Port) {
    let sent = std::thread::scope(|scope| {
        let from = scope.spawn(|| from.finish());
        while !from.is_finished() {
            came.read(to);
        }
        from.join().expect("it sends")
    });
    came.read_up_to(to, sent);
    assert_eq!((came.again, came.missing), (0, 0), "of {sent}");
}

/// Objective: latency histograms stay, and further frames are added.
#[test]
fn histograms_survive_an_upgrade() {
    let d = Up::start(&["--latency-sampling", "1"]);
    let mut to = open(d.dir(), "vale0:to");
    let mut from = open(d.dir(), "vale0:from");
    let mut came = Came::default();
    let mut send = |numbers: std::ops::Range<u64>| {
        numbers.clone().for_each(|number| assert!(from.tx()[0].send(&frame(number))));
        from.sync();
        came.read_up_to(&mut to, numbers.end);
    };
    send(0..50);
    let before = timed(&d, "vale0:from", 50);
    d.upgrade();
    assert_eq!(timed(&d, "vale0:from", 50), before);
    send(50..60);
    assert!(timed(&d, "vale0:from", 60).sum_ns > before.sum_ns);
}

/// Returns the latency of a port's frames, once `frames` frames have been timed.
fn timed(d: &Up, port: &str, frames: u64) -> Latency {
    let mut client = Client::connect(d.dir()).expect("it answers");
    let until = Instant::now() + LIMIT;
    loop {
        let found = client.all_stats().expect("it answers").ports.into_iter().find(|one| one.name == port);
        match found.expect("it is there").latency {
            Some(latency) if latency.frames() == frames => return latency,
            other => assert!(Instant::now() < until, "{other:?}"),
        }
        std::thread::sleep(PAUSE);
    }
}

/// Objective: frames that wait for a lossless receiver when the daemon is replaced arrive afterwards, before later
/// frames.
#[test]
fn waiting_frames_survive_an_upgrade_in_order() {
    let Crossing { d, mut to, from, mut came } = Crossing::start(Duration::ZERO);
    for _ in 0..3 {
        // Wait until more frames were sent than the receiver's ring holds, so that the rest wait at the switch.
        let until = Instant::now() + LIMIT;
        while from.sent() <= came.next + 127 {
            assert!(Instant::now() < until, "the receiver is not full");
            std::thread::sleep(PAUSE);
        }
        std::thread::scope(|scope| {
            let upgrade = scope.spawn(|| d.upgrade());
            // The receiver reads a little, because the switch holds no sender back for a receiver that reads nothing.
            while !upgrade.is_finished() {
                (0..4).for_each(|_| came.read_one(&mut to));
                std::thread::sleep(PAUSE);
            }
            upgrade.join().expect("it is replaced");
        });
        let next = came.next;
        came.read_up_to(&mut to, next + 300);
    }
    all_came(from, came, &mut to);
}

/// Objective: monitors of a port and of a pipe receive further copies after each of several upgrades, and no copy
/// twice.
#[test]
fn monitors_survive_an_upgrade() {
    let d = Up::start(&[]);
    let reader = Reader::start(open(d.dir(), "vale0:to"));
    let through = Reader::start(open(d.dir(), "netmap:p{1"));
    let from = Sender::start(d.dir().into(), "vale0:from", PAUSE);
    let other = Sender::start(d.dir().into(), "netmap:p}1", PAUSE);
    let copies = ["vale0:to/r", "netmap:p{1/r"].map(|name| Reader::start(open(d.dir(), name)));
    for _ in 0..3 {
        copies.iter().for_each(|copy| copy.wait_for(copy.next() + 100));
        d.upgrade();
        copies.iter().for_each(|copy| copy.wait_for(copy.next() + 100));
    }
    for copy in copies {
        let came = copy.finish(0);
        assert_eq!(came.again, 0, "{came:?}");
    }
    let sent = from.finish();
    let others = other.finish();
    for (reader, number) in [(reader, sent), (through, others)] {
        reader.finish(number);
    }
}

/// Objective: a daemon whose successor receives everything and then fails, disconnects or stays silent continues;
/// others notice only a delay, and another successor can take over.
#[test]
fn a_daemon_goes_on_when_its_successor_fails() {
    let Crossing { d, mut to, from, mut came } = Crossing::start(Duration::ZERO);
    let pid = d.pid();
    let refused = Pretender::connect(d.dir()).and_then(|pretender| pretender.hello(1000)).expect("it answers");
    assert!(refused.status != 0 && refused.text.contains("the successor expects 1000"), "{}", refused.text);
    for fails in [true, false, true, false] {
        came.read(&mut to);
        let pretender = Pretender::admitted(d.dir()).expect("it answers");
        let taken = pretender.take(usize::MAX).expect("it hands over");
        assert!(taken > 3, "the process, a region, a switch, a port");
        if fails {
            pretender.say(b"port vale0:to: something is wrong with it").expect("it listens");
        }
        drop(pretender);
        let next = came.next;
        came.read_up_to(&mut to, next + 300);
        assert_eq!(d.pid(), pid);
    }
    d.upgrade();
    all_came(from, came, &mut to);
}

/// Objective: a successor that dies after any part of the hand-over leaves the daemon, and frames in flight, unchanged.
#[test]
fn successors_that_die_on_the_way() {
    let Crossing { d, mut to, from, mut came } = Crossing::start(PAUSE);
    let pid = d.pid();
    let mut most = 0;
    while Pretender::admitted(d.dir()).and_then(|pretender| pretender.take(most)).expect("it hands over") == most {
        let next = came.next;
        came.read_up_to(&mut to, next + 50);
        assert_eq!(d.pid(), pid);
        most += 1;
    }
    assert!(most > 3, "the process, a region, a switch, a port");
    d.upgrade();
    all_came(from, came, &mut to);
}

/// Objective: connections to both sockets during upgrades are all answered, and leave nothing behind.
#[test]
fn connections_that_come_and_go() {
    const EACH: usize = 5000;
    let Crossing { d, mut to, from, mut came } = Crossing::start(PAUSE);
    let descriptors = || std::fs::read_dir(format!("/proc/{}/fd", d.pid())).expect("it runs").count();
    d.upgrade();
    let before = descriptors();
    let mut upgrades = 0;
    std::thread::scope(|scope| {
        let attach = scope.spawn(|| (0..EACH).for_each(|_| drop(Pretender::admitted(d.dir()).expect("it answers"))));
        let control = scope.spawn(|| {
            (0..EACH).for_each(|_| drop(Client::connect(d.dir()).expect("it listens").version().expect("it answers")));
        });
        while !(attach.is_finished() && control.is_finished()) {
            let next = came.next;
            came.read_up_to(&mut to, next + 50);
            d.upgrade();
            upgrades += 1;
        }
        attach.join().expect("all are answered");
        control.join().expect("all are answered");
    });
    assert!(upgrades > 2, "{upgrades} upgrades");
    up::until("no descriptor is left", || descriptors() <= before);
    all_came(from, came, &mut to);
}

/// Objective: a daemon with very many ports can be replaced, however much its successor logs about them.
#[test]
fn a_daemon_with_very_many_ports_is_replaced() {
    let d = Up::start(&[]);
    let mut client = Client::connect(d.dir()).expect("it answers");
    let policies = Policies { access: Some(7), ..Policies::default() };
    let options = PortOptions { policies, ..PortOptions::default() };
    for number in 0..1200 {
        let switch = format!("vale{}", number / 240);
        let port = format!("null:n{number}");
        let params = AttachParams { switch, port, options: options.clone() };
        client.attach(params).expect("there is room");
    }
    d.upgrade();
    assert_eq!(Client::connect(d.dir()).expect("it answers").ports(None).expect("it is there").len(), 1200);
}

/// Objective: a program that is not a daemon is reported as such, and the running daemon continues.
#[test]
fn a_program_that_is_none() {
    let d = Up::start(&[]);
    let pid = d.pid();
    let output = d.command(["upgrade", "--exec", "/bin/false"]).output().expect("it runs");
    assert!(!output.status.success() && stderr(&output).contains("the running one continues"), "{}", stderr(&output));
    assert_eq!(d.pid(), pid);
}
