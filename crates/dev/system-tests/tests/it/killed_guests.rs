//! Virtual machines through vfio-user whose daemon is restarted by a service manager. QEMU keeps its connection if the
//! daemon was ended by a signal, and loses it if the daemon was killed.

use crate::common::guest;
use crate::common::ptnet as machines;
use crate::common::published;
use crate::common::up;

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use guest::{Guest, Image, Nic, image};
use machines::no_complaints;
use netvale_control::client::Client;
use published::{driver, echo};
use rustix::process::Signal;
use up::Up;
use up::until;

/// Emulated guests use all CPUs: one test runs at a time.
static ONE: Mutex<()> = Mutex::new(());

/// Number of times that the daemon is restarted before it is killed.
const TIMES: usize = 10;

/// Script that serves a file, and returns each line that it receives.
const STAND: &str = "
ip addr add 10.1.0.1/24 dev eth0; ip link set eth0 up
dd if=/dev/urandom of=/tmp/file bs=64k count=256 2>/dev/null
md5sum /tmp/file
busybox httpd -p 5000 -h /tmp
mkfifo /tmp/words
(exec 3<>/tmp/words; while true; do nc -l -p 5001 <&3 >&3; done) &
echo ready
read line </dev/ttyS0
dmesg | grep -i e1000
true
";

/// Script that fetches the file, and gets each line of its console back, all over two connections.
const TALK: &str = "
ip addr add 10.1.0.2/24 dev eth0; ip link set eth0 up
for i in $(seq 100); do ping -c 1 -W 1 10.1.0.1 >/dev/null && break; done
(busybox wget -q -O /tmp/file http://10.1.0.1:5000/file; md5sum /tmp/file; echo fetched) &
echo begun
while read line; do [ \"$line\" = off ] && break; echo \"$line\"; done </dev/ttyS0 \
    | nc 10.1.0.1 5001 | while read line; do echo \"back: $line\"; done
wait
dmesg | grep -i e1000
true
";

fn attach(d: &Up, kind: &str, name: &str, options: &[&str]) -> PathBuf {
    let socket = d.dir().join(format!("{name}.sock"));
    let port = format!("{kind}:{}", socket.display());
    d.must(&[&["attach", "vale0", &port, "--name", name], options].concat());
    socket
}

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
    let mut standing = Guest::start(image, STAND, 1, &Nic { function: true, ..Nic::new(one) });
    let before = standing.expect("ready");
    let mut talking = Guest::start(image, TALK, 2, &Nic { function: true, ..Nic::new(two) });
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
    let _one = ONE.lock();
    let Some(image) = image() else { return };
    let d = Up::managed(&[]);
    let sockets = ["one", "two"].map(|name| attach(&d, "e1000", name, &[]));
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
    let sum = |text: &str| text.lines().find(|l| l.contains("  /tmp/file")).map(|l| l[..32].to_owned());
    assert!(sum(&fetched).is_some() && sum(&fetched) == sum(&before), "{before}{fetched}");
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
for pci in /sys/bus/pci/devices/*; do
    case $(cat $pci/vendor)$(cat $pci/device) in
        0x1b360x000d) at=$(basename $pci) ;;
        0x1b360x000c) memory=$(basename $pci) ;;
    esac
done
echo begun
for i in $(seq 10); do published sysfs $at $memory 12 || exit 1; echo round $i; done
";

/// Objective: in a guest with the devices that netmap published, the driver probes them, starts and stops their rings
/// and exchanges frames, while the daemon is restarted repeatedly at various points of this sequence. If the daemon is
/// killed, the guest loses the devices; a restarted virtual machine has new devices.
#[test]
fn a_published_ptnet_driver_works_across_restarts() {
    let _one = ONE.lock();
    let Some(image) = image() else { return };
    let d = Up::managed(&[]);
    let socket = attach(&d, "ptnet", "two", &["--vfio-user", "--vnet-hdr", "12", "--slots", "64"]);
    let _echo = echo(d.dir(), "vale0:echo");
    let program = driver(d.dir());
    let nic = Nic { vfio_user: true, ..Nic::new(&socket) };
    let start = || {
        let mut guest = Guest::start_with(image, DRIVE, 2, &nic, &[(&program, "/bin/published")]);
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
