//! Virtual machines through vfio-user whose daemon is restarted by a service manager. QEMU keeps its connection if the
//! daemon was ended by a signal, and loses it if the daemon was killed.

use crate::common::guest;
use crate::common::ptnet as machines;
use crate::common::published;
use crate::common::up;

use std::path::{Path, PathBuf};
use std::time::Duration;

use guest::{Guest, Image, Nic, alone, image};
use machines::{no_complaints, serving, talking};
use netvale_control::client::Client;
use published::{FIND, driver, echo};
use rustix::process::Signal;
use up::Up;
use up::until;

/// Number of times that the daemon is restarted before it is killed.
const TIMES: usize = 10;

fn client(d: &Up) -> Client {
    Client::connect(d.dir()).expect("it answers")
}

/// Returns roughly the number of frames that the port has carried since the daemon started.
fn frames(d: &Up, port: &str) -> u64 {
    client(d).show(port).expect("it is there").rings.iter().map(|ring| ring.frames).sum()
}

/// Kills the daemon while guests use these ports, and starts another daemon. QEMU has lost the devices; the notes of
/// the new daemon state the reason.
fn kill(d: &Up, ports: &[&str]) {
    d.restart(Signal::KILL);
    for port in ports {
        let notes = client(d).show(port).expect("it is there").notes;
        assert!(notes.iter().any(|note| note.contains("waits for a virtual machine")), "{notes:?}");
        assert!(notes.iter().any(|note| note.contains("the daemon was killed")), "{notes:?}");
    }
}

/// Starts two guests with an e1000 that exchange lines. Returns both guests, and the output of the first guest.
fn talkers(image: &Image, [one, two]: [&Path; 2]) -> (Guest, Guest, String) {
    let mut standing = Guest::start(image, &serving(256), 1, &Nic { function: true, ..Nic::new(one) });
    let before = standing.expect("ready");
    let mut talking = Guest::start(image, &talking(0), 2, &Nic { function: true, ..Nic::new(two) });
    talking.expect("begun");
    (standing, talking, before)
}

/// Sends a line to the other guest, and waits until it comes back.
fn ask(talking: &mut Guest, word: &str) {
    talking.say(word);
    talking.expect(&format!("back: {word}"));
}

/// Objective: two guests with an e1000, which is driven by its stock driver in one guest and by netvale's driver in the
/// other, keep two TCP connections, one of which carries a file, while the daemon is restarted repeatedly; each line
/// that one guest sends comes back before the next restart. If the daemon is killed, the guests lose their cards;
/// restarted virtual machines have new cards.
#[test]
fn e1000_guests_keep_connections_across_restarts() {
    let _one = alone();
    let Some(image) = image() else { return };
    let d = Up::managed(&[]);
    let sockets = ["one", "two"].map(|name| d.attach("e1000", name, ""));
    let paths = sockets.each_ref().map(PathBuf::as_path);
    let (mut standing, mut talking, before) = talkers(image, paths);
    for i in 0..TIMES {
        ask(&mut talking, &format!("word-{i}"));
        // Restarts happen during the file transfer, as long as that lasts.
        d.restart(Signal::TERM);
    }
    ask(&mut talking, "last");
    let fetched = talking.expect("fetched");
    talking.say("off");
    let after_that = talking.end();
    standing.say("off");
    let after = standing.end();
    guest::same_file(&before, &fetched);
    for shown in [&fetched, &after_that, &after] {
        no_complaints(shown);
        assert!(!shown.contains("Hang") && !shown.contains("Reset adapter"), "{shown}\n{}", d.log());
    }
    let (standing, mut talking, _) = talkers(image, paths);
    ask(&mut talking, "before");
    kill(&d, &["vale0:one", "vale0:two"]);
    drop((standing, talking));
    let (_standing, mut talking, _) = talkers(image, paths);
    ask(&mut talking, "after");
}

/// Script that runs the driver of the published devices repeatedly.
const DRIVE: &str = "
echo begun
for i in $(seq 10); do published sysfs $at $memory 12 || exit 1; echo round $i; done
";

/// Objective: in a guest with the devices that netmap published, the driver probes them, starts and stops their rings
/// and exchanges frames, while the daemon is restarted repeatedly at various points of this sequence. If the daemon is
/// killed, the guest loses the devices; a restarted virtual machine has new devices.
#[test]
fn a_published_ptnet_driver_works_across_restarts() {
    let _one = alone();
    let Some(image) = image() else { return };
    let d = Up::managed(&[]);
    let socket = d.attach("ptnet", "two", "--vfio-user --vnet-hdr 12 --slots 64");
    let _echo = echo(d.dir(), "vale0:echo");
    let program = driver(d.dir());
    let nic = Nic { vfio_user: true, ..Nic::new(&socket) };
    let start = || {
        let mut guest = Guest::start_with(image, &format!("{FIND}{DRIVE}"), 2, &nic, &[(&program, "/bin/published")]);
        guest.expect("begun");
        guest
    };
    let pass = |count: u64| {
        let enough = frames(&d, "vale0:two") + count;
        until("frames pass", || frames(&d, "vale0:two") >= enough);
    };
    let ends_well = |guest: Guest| {
        let shown = guest.end();
        no_complaints(&shown);
        assert_eq!(shown.matches("exchanged with a header of 12").count(), 10, "{shown}");
    };
    let guest = start();
    for i in 1..=TIMES {
        // The number of frames differs each time, so that the restart happens at another point of the driver's work.
        pass(37 * i as u64);
        d.restart(Signal::TERM);
    }
    ends_well(guest);
    let waits = || client(&d).show("vale0:two").expect("it is there").notes.iter().any(|note| note.contains("waits"));
    assert!(netvale_harness::until(up::LIMIT, Duration::from_millis(5), waits));
    let guest = start();
    pass(37);
    kill(&d, &["vale0:two"]);
    drop(guest);
    ends_well(start());
}
