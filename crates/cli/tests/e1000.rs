//! Virtual machines on a switch through the e1000: the guest's own driver, nothing of ours in it.

mod common;
#[path = "common/guest.rs"]
mod guest;
#[path = "common/ptnet.rs"]
mod machines;
#[path = "common/up.rs"]
mod up;

use std::path::PathBuf;
use std::sync::Mutex;

use guest::{Guest, Nic, image};
use machines::no_complaints;
use up::{Up, until};

/// Emulated guests take all the processor there is: one test at a time.
static ONE: Mutex<()> = Mutex::new(());

/// An e1000 port. Returns its socket.
fn port(up: &Up, name: &str, options: &str) -> PathBuf {
    let socket = up.file(&format!("{name}.sock"));
    common::stdout(&up.run(&format!("attach vale0 e1000:{} --name {name} {options}", socket.display())));
    socket
}

/// Has a file, once somebody wants it.
const STAND: &str = "
ip addr add 10.1.0.1/24 dev eth0; ip link set eth0 up
dd if=/dev/urandom of=/tmp/file bs=64k count=32 2>/dev/null
md5sum /tmp/file
busybox httpd -p 5000 -h /tmp
echo ready
read line </dev/ttyS0
dmesg | grep -i e1000
";

/// Pings, then fetches it.
const FETCH: &str = "
ip addr add 10.1.0.2/24 dev eth0; ip link set eth0 up
for i in $(seq 100); do ping -c 1 -W 1 10.1.0.1 >/dev/null && break; done
ping -c 3 -i 0.1 10.1.0.1 || exit 1
busybox wget -q -O /tmp/file http://10.1.0.1:5000/file || exit 1
md5sum /tmp/file
dmesg | grep -i e1000; grep eth0 /proc/interrupts
";

/// Objective: two guests with nothing but their stock driver reach each other across the switch, and TCP arrives as it was sent.
#[test]
fn two_stock_guests() {
    let _one = ONE.lock();
    let Some(image) = image() else { return };
    let up = Up::start(&[]);
    let (one, two) = (port(&up, "one", ""), port(&up, "two", ""));
    let nic = |socket| Nic { function: true, ..Nic::new(socket) };
    let mut standing = Guest::start(image, STAND, 1, &nic(&one));
    let before = standing.expect("ready");
    let fetched = Guest::start(image, FETCH, 2, &nic(&two)).end();
    standing.say("off");
    let after = standing.end();
    assert!(fetched.contains("0% packet loss"), "{fetched}");
    let sum = |text: &str| text.lines().find(|l| l.contains("/tmp/file")).map(|l| l[..32].to_owned());
    assert!(sum(&fetched).is_some() && sum(&fetched) == sum(&before), "{before}{fetched}");
    for shown in [&fetched, &after] {
        no_complaints(shown);
    }
    until("the ports are free", || up.show("vale0:two")["notes"].to_string().contains("waits for a virtual machine"));
}
