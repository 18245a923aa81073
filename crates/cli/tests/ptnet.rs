//! Virtual machines on a switch through ptnet: our driver in a stock QEMU.

mod common;
#[path = "common/guest.rs"]
mod guest;
#[path = "common/up.rs"]
mod up;

use std::path::PathBuf;
use std::sync::Mutex;

use guest::{Guest, Nic, Qemu, image};
use up::Up;

/// Emulated guests take all the processor there is: one test at a time.
static ONE: Mutex<()> = Mutex::new(());

/// A ptnet port. Returns its socket.
fn port(up: &Up, name: &str, options: &str) -> PathBuf {
    let socket = up.file(&format!("{name}.sock"));
    common::stdout(&up.run(&format!("attach vale0 ptnet:{} --name {name} {options}", socket.display())));
    socket
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
nc 10.1.0.1 5000 -e dd if=/tmp/file bs=64k
cat /proc/net/dev; grep ptnet /proc/interrupts
";

/// A ping and 4 MiB of TCP from one guest to another. Returns the frames the sender sent and their bytes.
fn ping_and_tcp(options: &str, qemu: Qemu) -> Option<(u64, u64)> {
    let image = image()?;
    let up = Up::start(&[]);
    let (one, two) = (port(&up, "one", options), port(&up, "two", options));
    let nic = |socket| Nic { qemu, ptnet: 3, ..Nic::new(socket) };
    let mut receiver = Guest::start(image, RECEIVE, 1, &nic(&one));
    receiver.expect("ready");
    let sender = Guest::start(image, SEND, 2, &nic(&two));
    let (theirs, ours) = (sender.end(), receiver.end());
    assert!(theirs.contains("0% packet loss"), "{theirs}");
    let sum = |text: &str| text.lines().find(|l| l.contains("/tmp/file")).map(|l| l[..32].to_owned());
    assert!(sum(&ours).is_some() && sum(&ours) == sum(&theirs), "{ours}\n{theirs}");
    let shown = up.show("vale0:two");
    let rings = shown["rings"].as_array().cloned().unwrap_or_default();
    let of = |what: &str| rings.iter().filter(|r| r["dir"] == "in").filter_map(|r| r[what].as_u64()).sum();
    println!("{theirs}\n{shown}");
    Some((of("frames"), of("bytes")))
}

/// Objective: with a header, TCP's segments cross whole.
#[test]
fn ping_and_tcp_with_header() {
    let _one = ONE.lock();
    let Some((frames, bytes)) = ping_and_tcp("--vnet-hdr", Qemu::Newer) else { return };
    assert!(bytes > 4 << 20 && bytes / frames > 3000, "{bytes} bytes in {frames} frames");
}

/// Objective: the same with the QEMU of Debian 12.
#[test]
fn ping_and_tcp_under_an_old_qemu() {
    let _one = ONE.lock();
    let Some((frames, bytes)) = ping_and_tcp("--vnet-hdr", Qemu::System) else { return };
    assert!(bytes > 4 << 20 && bytes / frames > 3000, "{bytes} bytes in {frames} frames");
}

/// Objective: two guests reach each other, frames as they go over a wire.
#[test]
fn ping_and_tcp_without_header() {
    let _one = ONE.lock();
    let Some((frames, bytes)) = ping_and_tcp("", Qemu::Newer) else { return };
    assert!(bytes > 4 << 20 && bytes / frames <= 1514, "{bytes} bytes in {frames} frames");
}
