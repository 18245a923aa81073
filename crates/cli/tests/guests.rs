//! Virtual machines with Debian's kernel and stock QEMU on a switch, through vhost-user.

mod common;
#[path = "common/guest.rs"]
mod guest;
#[path = "common/up.rs"]
mod up;

use std::sync::Mutex;

use guest::{Guest, Nic, image};
use up::{Up, until};

/// Emulated guests take all the processor there is: one test at a time.
static ONE: Mutex<()> = Mutex::new(());

fn attach(up: &Up, line: &str) {
    common::stdout(&up.run(&format!("attach vale0 {line}")));
}

/// Frames and bytes that a port sent into the switch.
fn sent(up: &Up, port: &str) -> (u64, u64) {
    let shown = up.show(port);
    let rings = shown["rings"].as_array().cloned().unwrap_or_default();
    let of = |what: &str| rings.iter().filter(|r| r["dir"] == "in").filter_map(|r| r[what].as_u64()).sum();
    (of("frames"), of("bytes"))
}

const RECEIVE: &str = "
ip addr add 10.1.0.1/24 dev eth0; ip link set eth0 up
echo ready
nc -l -p 5000 >/tmp/file
md5sum /tmp/file
";

const SEND: &str = "
ip addr add 10.1.0.2/24 dev eth0; ip link set eth0 up
for i in $(seq 50); do ping -c 1 -W 1 10.1.0.1 >/dev/null && break; done
ping -c 3 -i 0.1 10.1.0.1 || exit 1
dd if=/dev/urandom of=/tmp/file bs=64k count=64 2>/dev/null
md5sum /tmp/file
nc 10.1.0.1 5000 </tmp/file
";

/// A ping and 4 MiB of TCP from one guest to another. Returns the frames the sender took and their bytes.
fn ping_and_tcp(device: &str) -> Option<(u64, u64)> {
    let image = image()?;
    let up = Up::start(&[]);
    let (one, two) = (up.file("one.sock"), up.file("two.sock"));
    attach(&up, &format!("vhost:{}", one.display()));
    attach(&up, &format!("vhost:{}", two.display()));
    let mut receiver = Guest::start(image, RECEIVE, 1, &Nic { device, ..Nic::new(&one) });
    receiver.expect("ready");
    let sender = Guest::start(image, SEND, 2, &Nic { device, ..Nic::new(&two) });
    let (theirs, ours) = (sender.end(), receiver.end());
    assert!(theirs.contains("0% packet loss"), "{theirs}");
    let sum = |text: &str| text.lines().find(|l| l.contains("/tmp/file")).map(|l| l[..32].to_owned());
    assert!(sum(&ours).is_some() && sum(&ours) == sum(&theirs), "{ours}\n{theirs}");
    Some(sent(&up, "vale0:two"))
}

/// Objective: two guests reach each other, and with offloads TCP's segments cross whole.
#[test]
fn ping_and_tcp_with_offloads() {
    let _one = ONE.lock();
    let Some((frames, bytes)) = ping_and_tcp("") else { return };
    assert!(bytes > 4 << 20, "{bytes} bytes");
    assert!(bytes / frames > 3000, "{bytes} bytes in {frames} frames: segments do not cross whole");
}

/// Objective: the same without offloads and with one buffer a frame: frames on the switch are no longer than the MTU.
#[test]
fn ping_and_tcp_without_offloads() {
    let _one = ONE.lock();
    let off =
        ",csum=off,gso=off,guest_csum=off,guest_tso4=off,guest_tso6=off,host_tso4=off,host_tso6=off,mrg_rxbuf=off";
    let Some((frames, bytes)) = ping_and_tcp(off) else { return };
    assert!(bytes / frames <= 1514, "{bytes} bytes in {frames} frames");
}

/// Objective: the packed layout with a stock driver.
#[test]
fn packed_ring() {
    let _one = ONE.lock();
    let Some((frames, bytes)) = ping_and_tcp(",packed=on") else { return };
    assert!(bytes / frames > 3000, "{bytes} bytes in {frames} frames");
}

/// Waits for a line on the console, and answers it with pings from then on.
const LOOP: &str = "
ip addr add 10.1.0.2/24 dev eth0; ip link set eth0 up
while true; do
    for i in $(seq 100); do ping -c 1 -W 1 10.1.0.1 >/dev/null && break; done
    ping -c 2 -i 0.1 10.1.0.1 >/dev/null && echo reached
    read line </dev/ttyS0
    echo \"line: $line\"
    case $line in
        reboot*) reboot -f ;;
        off*) exit 0 ;;
    esac
done
";

const STAND: &str = "
ip addr add 10.1.0.1/24 dev eth0; ip link set eth0 up
read line </dev/ttyS0
";

/// Objective: a guest that reboots finds its device again, with nothing done about it.
#[test]
fn reboot() {
    let _one = ONE.lock();
    let Some(image) = image() else { return };
    let up = Up::start(&[]);
    let (one, two) = (up.file("one.sock"), up.file("two.sock"));
    attach(&up, &format!("vhost:{}", one.display()));
    attach(&up, &format!("vhost:{}", two.display()));
    let mut standing = Guest::start(image, STAND, 1, &Nic::new(&one));
    let mut rebooted = Guest::start(image, LOOP, 2, &Nic::new(&two));
    rebooted.expect("reached");
    rebooted.say("reboot");
    rebooted.expect("guest: up");
    rebooted.expect("reached");
    rebooted.say("off");
    rebooted.end();
    standing.say("off");
    standing.end();
}

/// Objective: a daemon that ends and comes back serves the same guests again: they only see a pause.
#[test]
fn daemon_restarts() {
    let _one = ONE.lock();
    let Some(image) = image() else { return };
    let dir = tempfile::tempdir().expect("a folder");
    let (one, two) = (dir.path().join("one.sock"), dir.path().join("two.sock"));
    let start = || {
        let up = Up::start(&["--allow-dir", dir.path().to_str().expect("text")]);
        attach(&up, &format!("vhost:{}", one.display()));
        attach(&up, &format!("vhost:{}", two.display()));
        up
    };
    let up = start();
    let chardev = ",reconnect=1";
    let mut standing = Guest::start(image, STAND, 1, &Nic { chardev, ..Nic::new(&one) });
    let mut other = Guest::start(image, LOOP, 2, &Nic { chardev, ..Nic::new(&two) });
    other.expect("reached");
    drop(up);
    let up = start();
    other.say("again");
    other.expect("reached");
    assert!(sent(&up, "vale0:two").0 > 0);
    other.say("off");
    other.end();
    standing.say("off");
    standing.end();
}

/// Objective: a guest with two processors uses two queue pairs, and QEMU being killed leaves the port ready for the next one.
#[test]
fn two_queues_and_a_killed_guest() {
    let _one = ONE.lock();
    let Some(image) = image() else { return };
    let up = Up::start(&[]);
    let socket = up.file("two.sock");
    attach(&up, &format!("vhost:{} --rings 2", socket.display()));
    let script = "ip link set eth0 up; ls /sys/class/net/eth0/queues; echo listed; read line </dev/ttyS0";
    for _ in 0..2 {
        let mut guest = Guest::start(image, script, 1, &Nic { pairs: 2, ..Nic::new(&socket) });
        let text = guest.expect("listed");
        assert!(text.contains("rx-1") && text.contains("tx-1"), "{text}");
        until("four queues run", || up.show("vale0:two")["notes"].to_string().contains("4 queues running"));
        drop(guest);
        until("the port is free", || up.show("vale0:two")["notes"].to_string().contains("waits for a front end"));
    }
}
