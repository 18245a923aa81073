//! Virtual machines with Debian's kernel and stock QEMU on a switch, through vhost-user.

use crate::common;
use crate::common::guest;
use crate::common::ptnet as machines;
use crate::common::up;

use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::json;

use guest::{Guest, Nic, Qemu, RECEIVE, WHOLE, alone, begin, image};
use machines::{LOOP, STAND};
use up::{Up, until};

/// Options of QEMU for a virtio-net device without offloads.
const NO_OFFLOADS: &str =
    ",csum=off,gso=off,guest_csum=off,guest_tso4=off,guest_tso6=off,host_tso4=off,host_tso6=off,mrg_rxbuf=off";

fn attach(up: &Up, line: &str) {
    common::stdout(&up.run(&format!("attach vale0 {line}")));
}

/// Attaches two vhost ports. Returns their sockets.
fn two_ports(up: &Up) -> (PathBuf, PathBuf) {
    ["one", "two"].map(|name| up.attach("vhost", name, "")).into()
}

/// Script that sends a file in large pieces, because nc by itself writes 1 KiB at a time, which a slow guest sends as
/// segments of that size. When dd has ended, data that is not acknowledged is still in flight.
const SEND: &str = "
ip addr add 10.1.0.2/24 dev eth0; ip link set eth0 up
for i in $(seq 50); do ping -c 1 -W 1 10.1.0.1 >/dev/null && break; done
ping -c 3 -i 0.1 10.1.0.1 || exit 1
dd if=/dev/urandom of=/tmp/file bs=64k count=64 2>/dev/null
md5sum /tmp/file
nc 10.1.0.1 5000 -e dd if=/tmp/file bs=64k status=none
while netstat -tn | grep -q FIN_WAIT1; do sleep 0.1; done
";

/// Runs a ping and 4 MiB of TCP from one guest to another. Returns the sender's numbers of frames and bytes; `None` if
/// guests cannot run here.
fn ping_and_tcp(device: &str, qemu: Qemu) -> Option<(u64, u64)> {
    let (_one, image, up) = begin(&[])?;
    let (one, two) = two_ports(&up);
    let mut receiver = Guest::start(image, RECEIVE, 1, &Nic { device, qemu, ..Nic::new(&one) });
    receiver.expect("ready");
    let sender = Guest::start(image, SEND, 2, &Nic { device, qemu, ..Nic::new(&two) });
    both_succeed(sender, receiver);
    Some(up.moved("vale0:two", "in"))
}

/// Asserts that a guest that runs [`SEND`] and a guest that runs [`RECEIVE`] compute the same checksum.
fn both_succeed(sender: Guest, receiver: Guest) {
    let theirs = sender.end();
    guest::same_sum(&receiver.end(), &theirs);
}

/// Objective: two guests under User-Mode Linux, which has its own vhost-user implementation, reach each other; the
/// offloads that User-Mode Linux negotiates let TCP segments cross whole.
#[test]
fn ping_and_tcp_of_user_mode_linux() {
    let Some((_one, image, up)) = begin(&[]) else { return };
    let (one, two) = two_ports(&up);
    let mut receiver = Guest::start_uml(image, RECEIVE, &one);
    receiver.expect("ready");
    let notes = up.notes("vale0:one");
    assert!(notes.contains("packed ring") && notes.contains("takes TCP segments whole"), "{notes}");
    let sender = Guest::start_uml(image, SEND, &two);
    both_succeed(sender, receiver);
    assert!(up.moved("vale0:two", "in").1 > 4 << 20);
}

/// Objective: two guests reach each other, and with offloads, TCP segments cross whole.
#[test]
fn ping_and_tcp_with_offloads() {
    let Some((frames, bytes)) = ping_and_tcp("", Qemu::Newer) else { return };
    assert!(bytes > 4 << 20, "{bytes} bytes");
    assert!(bytes / frames > WHOLE, "{bytes} bytes in {frames} frames: segments do not cross whole");
}

/// Objective: under the QEMU of Debian 12, two guests reach each other, and TCP segments cross whole.
#[test]
fn ping_and_tcp_under_an_old_qemu() {
    let Some((frames, bytes)) = ping_and_tcp("", Qemu::System) else { return };
    assert!(bytes / frames > WHOLE, "{bytes} bytes in {frames} frames: segments do not cross whole");
}

/// Returns what `netvale vm` prints without KVM: the arguments, and its notes.
fn printed_without_kvm(up: &Up, port: &str) -> (Vec<String>, String) {
    let script = "mount -t tmpfs none /dev; mknod -m 666 /dev/null c 1 3; exec \"$0\" \"$@\" --memory 256M";
    let mut command = std::process::Command::new("unshare");
    command.args(["-m", "sh", "-ec", script]).arg(netvale_system_tests::netvale());
    let output = command.arg("--run-dir").arg(up.dir()).args(["vm", port]).output().expect("unshare starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    (String::from_utf8_lossy(&output.stdout).split_whitespace().map(String::from).collect(), said)
}

/// Objective: without KVM, the QEMU of Debian 12 runs a guest with the arguments that `netvale vm` prints, whose notes
/// explain the differences; QEMU prints no warning.
#[test]
fn an_old_qemu_with_what_is_printed() {
    let Some((_one, image, up)) = begin(&[]) else { return };
    let (one, _) = two_ports(&up);
    let (printed, said) = printed_without_kvm(&up, "vale0:one");
    assert!(said.contains("without KVM"), "{said}");
    let script = "ip link set eth0 up; cat /sys/class/net/eth0/address";
    let nic = Nic { qemu: Qemu::System, printed: &printed, ..Nic::new(&one) };
    let text = Guest::start(image, script, 1, &nic).end();
    let mac = up.show("vale0:one")["vhost"]["mac"].as_str().map(String::from).expect("an address");
    assert!(text.contains(&mac) && !text.contains("F_CONFIG"), "{text}");
}

/// Objective: without offloads and with one buffer per frame, two guests reach each other, and frames on the switch are
/// not longer than the MTU.
#[test]
fn ping_and_tcp_without_offloads() {
    let Some((frames, bytes)) = ping_and_tcp(NO_OFFLOADS, Qemu::Newer) else { return };
    assert!(bytes / frames <= 1514, "{bytes} bytes in {frames} frames");
}

/// Objective: the packed layout works with a stock driver.
#[test]
fn a_stock_driver_works_with_a_packed_ring() {
    let Some((frames, bytes)) = ping_and_tcp(",packed=on", Qemu::Newer) else { return };
    assert!(bytes / frames > WHOLE, "{bytes} bytes in {frames} frames");
}

/// Objective: a guest that reboots finds its device again, without any action on the host.
#[test]
fn a_guest_that_reboots_finds_its_device() {
    let Some((_one, image, up)) = begin(&[]) else { return };
    let (one, two) = two_ports(&up);
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

/// Objective: a daemon that ends and is restarted serves the same guests again: they only notice a pause.
#[test]
fn guests_survive_a_restart_of_the_daemon() {
    let _one = alone();
    let Some(image) = image() else { return };
    let dir = tempfile::tempdir().expect("a folder");
    let one = dir.path().join("one.sock");
    let two = dir.path().join("two.sock");
    let start = || {
        let up = Up::start(&["--allow-dir", dir.path().to_str().expect("text")]);
        attach(&up, &format!("vhost:{}", one.display()));
        attach(&up, &format!("vhost:{}", two.display()));
        up
    };
    let up = start();
    let chardev = ",reconnect-ms=200";
    let mut standing = Guest::start(image, STAND, 1, &Nic { chardev, ..Nic::new(&one) });
    let mut other = Guest::start(image, LOOP, 2, &Nic { chardev, ..Nic::new(&two) });
    other.expect("reached");
    drop(up);
    let up = start();
    other.say("again");
    other.expect("reached");
    assert!(up.moved("vale0:two", "in").0 > 0);
    other.say("off");
    other.end();
    standing.say("off");
    standing.end();
}

/// Objective: a guest with two processors uses two queue pairs, and after QEMU is killed, the port is ready for the
/// next QEMU.
#[test]
fn two_queues_and_a_killed_guest() {
    let Some((_one, image, up)) = begin(&[]) else { return };
    let socket = up.attach("vhost", "two", "--rings 2");
    let script = "ip link set eth0 up; ls /sys/class/net/eth0/queues; echo listed; read line </dev/ttyS0";
    for _ in 0..2 {
        let mut guest = Guest::start(image, script, 1, &Nic { pairs: 2, ..Nic::new(&socket) });
        let text = guest.expect("listed");
        assert!(text.contains("rx-1") && text.contains("tx-1"), "{text}");
        until("four queues run", || up.notes("vale0:two").contains("4 queues running"));
        drop(guest);
        until("the port is free", || up.notes("vale0:two").contains("waits for a front end"));
    }
}

/// Script that leaves received data in the buffers that the device wrote, until a line on the console tells it to read.
/// nc must not read from the console, hence its empty input. The guest is never idle, so that memory keeps changing.
const MOVING: &str = "
ip addr add 10.1.0.1/24 dev eth0; ip link set eth0 up
dd if=/dev/urandom of=/tmp/noise bs=1M count=8 2>/dev/null
while true; do dd if=/tmp/noise of=/tmp/busy bs=1M conv=notrunc 2>/dev/null; done &
mkfifo /tmp/mute
echo ready
nc -l -p 5000 0<>/tmp/mute | (read line </dev/ttyS0; md5sum)
";

/// Script that sends 4 MiB on request.
const STREAM: &str = "
ip addr add 10.1.0.2/24 dev eth0; ip link set eth0 up
for i in $(seq 50); do ping -c 1 -W 1 10.1.0.1 >/dev/null && break; done
dd if=/dev/urandom of=/tmp/file bs=64k count=64 2>/dev/null
md5sum /tmp/file
echo listed
read line </dev/ttyS0
nc 10.1.0.1 5000 </tmp/file
";

/// Objective: a guest moves from one QEMU to another during a TCP connection. Data that it receives during the move,
/// into memory that was already copied, arrives, which is the purpose of the dirty log; the connection continues after
/// the move.
#[test]
fn a_live_migration_keeps_a_tcp_connection() {
    let Some((_one, image, up)) = begin(&[]) else { return };
    let [here, there, sender] = &["here", "there", "sender"].map(|name| up.attach("vhost", name, ""));
    let control = up.path("qmp");
    let channel = format!("unix:{}", up.path("channel").display());
    let more = ["-qmp".to_owned(), format!("unix:{},server=on,wait=off", control.display())];
    let mut source = Guest::start(image, MOVING, 1, &Nic { more: &more, ..Nic::new(here) });
    source.expect("ready");
    let mut stream = Guest::start(image, STREAM, 2, &Nic::new(sender));
    let sum = stream.expect("listed");
    let more = ["-incoming".to_owned(), channel.clone()];
    let mut target = Guest::start(image, MOVING, 1, &Nic { more: &more, ..Nic::new(there) });
    until("somewhere to go", || common::up::listens(&up.path("channel")));
    let mut qmp = guest::Qmp::connect(&control);
    // With these limits, the migration copies changes more slowly than the guest makes them, even on a busy machine,
    // and does not stop the guest before everything is copied.
    qmp.run("migrate-set-parameters", &json!({ "downtime-limit": 0, "max-bandwidth": 8 << 20 }));
    qmp.run("migrate", &json!({ "uri": channel }));
    until("all memory has been copied once", || {
        qmp.run("query-migrate", &json!({}))["ram"]["dirty-sync-count"].as_u64() > Some(1)
    });
    let before = up.moved("vale0:sender", "in").1;
    stream.say("send");
    until("the stream flows", || up.moved("vale0:sender", "in").1 > before + (48 << 10));
    assert_eq!(qmp.run("query-migrate", &json!({}))["status"], "active");
    qmp.run("migrate-set-parameters", &json!({ "downtime-limit": 1000, "max-bandwidth": 1u64 << 32 }));
    until("the guest has moved", || qmp.run("query-migrate", &json!({}))["status"] == "completed");
    assert!(up.moved("vale0:sender", "in").1 < before + (3 << 20), "there is nothing left to send");
    let last = up.moved("vale0:here", "in").0;
    target.say("read");
    let text = target.end();
    stream.end();
    let word = |text: &str| text.split_whitespace().find(|w| w.len() == 32).map(str::to_owned);
    assert!(word(&sum).is_some() && word(&sum) == word(&text), "{sum}\n{text}");
    assert!(up.moved("vale0:there", "in").0 > 0);
    assert_eq!(up.moved("vale0:here", "in").0, last, "the guest that moved away still sends");
}

/// Script of a guest whose virtio-net device netvale drives, with the guest's own stack behind a TAP on the same
/// switch.
const PASSED: &str = "
set -e
address=$(basename $(readlink -f /sys/class/net/eth0/device/..))
pci=/sys/bus/pci/devices/$address
netvale up --run-dir /run/netvale >/tmp/log 2>&1 &
for i in $(seq 100); do netvale --run-dir /run/netvale list >/dev/null 2>&1 && break; sleep 0.1; done
run() { netvale --run-dir /run/netvale $*; }
run attach vale0 virtio-pci:$address >/tmp/no 2>&1 || cat /tmp/no
grep -q 'found the driver virtio-pci' /tmp/no
echo vfio-pci >$pci/driver_override
echo $address >$pci/driver/unbind
echo $address >/sys/bus/pci/drivers_probe
run attach vale0 virtio-pci:$address --name nic OPTIONS
run attach vale0 tap:stack0
ip addr add 10.1.0.2/24 dev stack0; ip link set stack0 up
for i in $(seq 50); do ping -c 1 -W 1 10.1.0.1 >/dev/null && break; done
ping -c 3 -i 0.1 10.1.0.1
run show vale0:nic
dd if=/dev/urandom of=/tmp/file bs=64k count=64 2>/dev/null
md5sum /tmp/file
nc 10.1.0.1 5000 </tmp/file
# Until all of it is acknowledged.
for i in $(seq 200); do grep -q ':1388 0[14] ' /proc/net/tcp || break; sleep 0.1; done
echo $address >/sys/bus/pci/devices/$address/driver/unbind
for i in $(seq 50); do run show vale0:nic | grep 'no device' && break; sleep 0.1; done
run show vale0:nic | grep -q 'no device'
";

/// Runs a guest in which netvale drives the virtio-net device, through which a file reaches the stack of a network
/// namespace. Returns the console's output; `None` if guests cannot run here.
fn passed_through(device: &str, pairs: u32, options: &str) -> Option<String> {
    let _one = alone();
    let image = image()?;
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("file");
    let device = format!(",disable-legacy=on,iommu_platform=on{device}");
    let more = ["-device", "intel-iommu,intremap=on"].map(String::from);
    let nic = Nic {
        device: &device,
        pairs,
        more: &more,
        machine: ",kernel-irqchip=split",
        kernel: " intel_iommu=on",
        tap: Some(&file),
        ..Nic::new(Path::new(""))
    };
    let shown = Guest::start_with_netvale(image, &PASSED.replace("OPTIONS", options), 2, &nic).end();
    let sum = std::process::Command::new("md5sum").arg(&file).output().expect("md5sum runs");
    let sum = String::from_utf8_lossy(&sum.stdout)[..32].to_owned();
    assert!(shown.contains(&format!("{sum}  /tmp/file")), "{sum}, {:?}: {shown}", std::fs::metadata(&file));
    Some(shown)
}

/// Objective: in a guest, netvale drives the virtio-net device on the PCI bus, and gives the device back to the kernel
/// on request.
#[test]
fn netvale_drives_virtio_pci_in_a_guest() {
    let Some(shown) = passed_through("", 1, "") else { return };
    assert!(shown.contains("split, mergeable"), "{shown}");
}

/// Objective: in a guest, netvale drives a virtio-net device with two pairs of packed queues, which need a command on
/// the control queue.
#[test]
fn virtio_pci_packed_with_two_pairs() {
    let Some(shown) = passed_through(",packed=on", 2, "--packed --rings 2") else { return };
    assert!(shown.contains("2 queue pairs") && shown.contains("packed, mergeable"), "{shown}");
}

/// A shell in a network namespace of its own. The namespace ends with the shell.
struct Stack {
    shell: std::process::Child,
    dir: tempfile::TempDir,
}

impl Stack {
    /// Moves the daemon's TAP `tap` into the namespace, with the address 10.1.0.2. The file `in` has four megabytes.
    fn new(tap: &str) -> Stack {
        let dir = tempfile::tempdir().expect("a folder");
        let bytes: Vec<u8> = (0..4_000_000u32).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect();
        std::fs::write(dir.path().join("in"), bytes).expect("written");
        let mut command = std::process::Command::new("unshare");
        command.args(["-n", "sh", "-e"]).current_dir(dir.path()).stdin(std::process::Stdio::piped());
        let stack = Stack { shell: command.spawn().expect("unshare runs"), dir };
        stack.run("touch began");
        until("a network", || stack.dir.path().join("began").exists());
        let pid = stack.shell.id().to_string();
        let moved = std::process::Command::new("ip").args(["link", "set", tap, "netns", &pid]).status();
        assert!(moved.expect("ip runs").success());
        stack.run(&format!("ip addr add 10.1.0.2/24 dev {tap}; ip link set {tap} up"));
        stack
    }

    fn run(&self, line: &str) {
        writeln!(self.shell.stdin.as_ref().expect("a pipe"), "{line}").expect("the shell runs");
    }

    fn file(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.dir.path().join(name)).unwrap_or_default()
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

/// Script that receives a file and sends it back.
const RETURN: &str = "
ip addr add 10.1.0.1/24 dev eth0; ip link set eth0 up
echo ready
nc -l -p 5000 -e dd of=/tmp/file 2>/dev/null
for i in $(seq 200); do [ $(wc -c </tmp/file) = 4000000 ] && break; sleep 0.1; done
echo got
read line
nc 10.1.0.2 5001 -e dd if=/tmp/file bs=64k 2>/dev/null
# Until all of it is acknowledged.
for i in $(seq 200); do grep -q ':1389 0[14] ' /proc/net/tcp || break; sleep 0.1; done
";

/// Runs a guest that receives a file from a stack behind a TAP, and sends it back. Returns the numbers of frames and
/// bytes that left the TAP, and the numbers of frames and bytes that arrived at it; `None` if guests cannot run here.
fn there_and_back() -> Option<[(u64, u64); 2]> {
    let (_one, image, up) = begin(&[])?;
    let socket = up.attach("vhost", "one", "");
    let tap = format!("nv{}", std::process::id());
    attach(&up, &format!("tap:{tap} --name stack"));
    let stack = Stack::new(&tap);
    let mut guest = Guest::start(image, RETURN, 1, &Nic::new(&socket));
    guest.expect("ready");
    stack.run(
        "until timeout 60 busybox nc 10.1.0.1 5000 -e dd if=in bs=64k status=none; do sleep 0.1; done & \
         timeout 60 busybox nc -l -p 5001 -e dd of=out status=none &",
    );
    guest.expect("got");
    let there = up.moved("vale0:stack", "in");
    let before = up.moved("vale0:stack", "out");
    guest.say("");
    guest.end();
    until("the file", || stack.file("out").len() == stack.file("in").len());
    assert!(stack.file("out") == stack.file("in"));
    let after = up.moved("vale0:stack", "out");
    Some([there, (after.0 - before.0, after.1 - before.1)])
}

/// Objective: segments cross whole from a stack behind a TAP to a guest, and from the guest to the stack.
#[test]
fn segments_cross_whole_between_tap_and_guest() {
    let Some(ways) = there_and_back() else { return };
    for (frames, bytes) in ways {
        assert!(bytes > 4_000_000 && bytes / frames > WHOLE, "{bytes} bytes in {frames} frames");
    }
}

/// Script of a guest in which netvale uses the interface.
const INTERFACE: &str = "
set -e
netvale up --run-dir /run/netvale >/tmp/log 2>&1 &
for i in $(seq 100); do netvale --run-dir /run/netvale list >/dev/null 2>&1 && break; sleep 0.1; done
run() { netvale --run-dir /run/netvale $*; }
ip link set eth0 up
run attach vale0 netmap:eth0
run attach vale0 tap:stack0
ip addr add 10.1.0.2/24 dev stack0; ip link set stack0 up
for i in $(seq 50); do ping -c 1 -W 1 10.1.0.1 >/dev/null && break; done
ping -c 3 -i 0.1 10.1.0.1
run show vale0:eth0
run detach vale0 eth0
run pkt-gen -i netmap:eth0 -f tx -n 1000 -l 60
run attach vale0 netmap:eth0 --host >/tmp/no 2>&1 || cat /tmp/no
grep -q 'Linux 6.6' /tmp/no
";

/// Objective: in a guest with Debian 12's kernel and the stock virtio-net driver, netvale uses the interface through
/// AF_XDP, and refuses by name what that kernel lacks.
#[test]
fn interface_in_a_guest() {
    let Some((_one, image, up)) = begin(&[]) else { return };
    let (one, two) = two_ports(&up);
    let answering = "ip addr add 10.1.0.1/24 dev eth0; ip link set eth0 up; echo ready; read line";
    let mut receiver = Guest::start(image, answering, 1, &Nic::new(&one));
    receiver.expect("ready");
    check_interface(&Guest::start_with_netvale(image, INTERFACE, 2, &Nic::new(&two)).end());
    receiver.say("");
    receiver.end();
}

/// Objective: in a guest with an e1000, whose driver has no XDP, netvale uses the interface through the stack.
#[test]
fn e1000_in_a_guest() {
    let _one = alone();
    let Some(image) = image() else { return };
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("file");
    let nic = Nic { e1000: true, tap: Some(&file), ..Nic::new(Path::new("")) };
    let shown = Guest::start_with_netvale(image, INTERFACE, 2, &nic).end();
    check_interface(&shown);
    assert!(shown.contains("in the stack"), "{shown}");
}

fn check_interface(shown: &str) {
    assert!(shown.contains(" 0% packet loss") && shown.contains("interface eth0, AF_XDP"), "{shown}");
    assert!(shown.contains("Sent 1000 packets"), "{shown}");
}
