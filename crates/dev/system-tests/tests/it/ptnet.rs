//! Virtual machines on a switch through ptnet: netvale's driver in a stock QEMU.

use crate::common::guest;
use crate::common::ptnet as machines;
use crate::common::up;

use std::sync::MutexGuard;

use guest::{Guest, Nic, Qemu, WHOLE, begin, image};
use machines::{LOOP, STAND, no_complaints, port};
use up::{Up, until};

/// Script that fetches a file as soon as it is served.
const RECEIVE: &str = "
ip addr add 10.1.0.1/24 dev eth0; ip link set eth0 up
echo ready
for i in $(seq 200); do busybox wget -q -O /tmp/file http://10.1.0.2:5000/file 2>/dev/null && break; sleep 0.1; done
md5sum /tmp/file
";

/// Script that serves a file once it has reached the other guest.
const SEND: &str = "
ip addr add 10.1.0.2/24 dev eth0; ip link set eth0 up
for i in $(seq 50); do ping -c 1 -W 1 10.1.0.1 >/dev/null && break; done
ping -c 3 -i 0.1 10.1.0.1 || exit 1
dd if=/dev/urandom of=/tmp/file bs=64k count=64 2>/dev/null
md5sum /tmp/file
busybox httpd -p 5000 -h /tmp
read line </dev/ttyS0
";

/// Runs a ping and 4 MiB of TCP from one guest to another. Returns the sender's numbers of frames and bytes; `None` if
/// guests cannot run here.
fn ping_and_tcp(options: &str, qemu: Qemu) -> Option<(u64, u64)> {
    let (_one, image, up) = begin(&[])?;
    let one = port(&up, "one", options);
    let two = port(&up, "two", options);
    let nic = |socket| Nic { qemu, ptnet: 3, ..Nic::new(socket) };
    let mut receiver = Guest::start(image, RECEIVE, 1, &nic(&one));
    receiver.expect("ready");
    let sender = Guest::start(image, SEND, 2, &nic(&two));
    same_sum(sender, receiver);
    Some(up.moved("vale0:two", "in"))
}

/// Asserts that pings were answered, and the file arrived unchanged.
fn same_sum(mut sender: Guest, receiver: Guest) {
    let ours = receiver.end();
    sender.say("off");
    guest::same_sum(&ours, &sender.end());
}

/// Objective: with a virtio-net header, TCP segments cross whole.
#[test]
fn ping_and_tcp_with_header() {
    let Some((frames, bytes)) = ping_and_tcp("--vnet-hdr", Qemu::Newer) else { return };
    assert!(bytes > 4 << 20 && bytes / frames > WHOLE, "{bytes} bytes in {frames} frames");
}

/// Objective: under the QEMU of Debian 12, TCP segments with a virtio-net header cross whole.
#[test]
fn ping_and_tcp_under_an_old_qemu() {
    let Some((frames, bytes)) = ping_and_tcp("--vnet-hdr", Qemu::System) else { return };
    assert!(bytes > 4 << 20 && bytes / frames > WHOLE, "{bytes} bytes in {frames} frames");
}

/// Objective: two guests reach each other, with frames as on a wire.
#[test]
fn ping_and_tcp_without_header() {
    let Some((frames, bytes)) = ping_and_tcp("", Qemu::Newer) else { return };
    assert!(bytes > 4 << 20 && bytes / frames <= 1514, "{bytes} bytes in {frames} frames");
}

/// Script of a guest in which netvale uses the ptnet device; the network interface works before and after.
const NETMAP: &str = "
ip addr add 10.1.0.2/24 dev eth0; ip link set eth0 up
reach() {
    for i in $(seq 100); do ping -c 1 -W 1 10.1.0.1 >/dev/null && return; done
    echo unreachable; exit 1
}
reach
cat /sys/class/net/eth0/carrier
ping -i 0.01 10.1.0.1 >/dev/null & pinging=$!
for i in 1 2 3; do
    netvale pkt-gen -i netmap:eth0 -f tx -n 3000 -D 02:00:00:00:00:07 || exit 1
done
kill $pinging
reach; echo reached
mkdir -p /run/netvale
netvale up --run-dir /run/netvale >/tmp/log 2>&1 &
for i in $(seq 100); do netvale --run-dir /run/netvale list >/dev/null 2>&1 && break; sleep 0.1; done
run() { netvale --run-dir /run/netvale $*; }
run pkt-gen -i netmap:eth0 -f tx -n 3000 -D 02:00:00:00:00:07 || { cat /tmp/log; exit 1; }
run pkt-gen -i netmap:eth0 -f rx -n 1000 & receiving=$!
for i in $(seq 100); do run list | grep -q eth0 && break; sleep 0.1; done
run show netmap:eth0; cat /sys/class/net/eth0/carrier
run pkt-gen -i netmap:eth0-0/R -f rx -n 1 -X 2>&1 | head -n 1
echo receive
wait $receiving || exit 1
reach; echo reached
cat /tmp/log; dmesg | grep -i 'nvptnet\\|WARN\\|BUG' | grep -v taint
";

/// Starts a guest that answers pings, and a guest that runs a script, each on a ptnet port (`one`, `two`) with two
/// rings in each direction. `None` if guests cannot run here.
fn beside_another(script: &str) -> Option<(MutexGuard<'static, ()>, Up, Guest, Guest)> {
    let (one_test, image, up) = begin(&[])?;
    let one = port(&up, "one", "--rings 2");
    let two = port(&up, "two", "--rings 2 --vnet-hdr");
    let nic = |socket| Nic { ptnet: 5, pairs: 2, ..Nic::new(socket) };
    let mut standing = Guest::start(image, STAND, 1, &nic(&one));
    standing.expect("ready");
    let guest = Guest::start_with_netvale(image, script, 2, &nic(&two));
    Some((one_test, up, standing, guest))
}

/// Objective: netmap programs take the rings from the interface and return them during traffic, with and without a
/// daemon in the guest.
#[test]
fn netmap_programs_take_the_rings_and_give_them_back() {
    let Some((_one, up, standing, mut guest)) = beside_another(NETMAP) else { return };
    let before = guest.expect("receive\r\n");
    assert_eq!(before.matches("Sent 3000 packets").count(), 4, "{before}");
    assert!(up.moved("vale0:two", "in").0 >= 12_000);
    let sender = up.stream();
    let after = guest.end();
    drop(sender);
    assert!(before.contains("reached") && after.contains("reached"), "{before}{after}");
    assert!(after.contains("Received 1"), "{after}");
    assert!(after.contains("opened interface=\"eth0\""), "{after}");
    no_complaints(&after);
    drop(standing);
}

/// Script that unbinds and binds the driver, and removes the device, while frames pass; then prints the interface's
/// settings.
const REBIND: &str = "
at=$(basename $(readlink /sys/class/net/eth0/device))
up() { ip addr add 10.1.0.2/24 dev eth0; ip link set eth0 up; }
reach() {
    for i in $(seq 100); do ping -c 1 -W 1 10.1.0.1 >/dev/null && return; done
    echo unreachable; dmesg | tail -n 20; exit 1
}
up; reach
for i in 1 2 3; do
    ping -i 0.002 10.1.0.1 >/dev/null & pinging=$!
    echo $at >/sys/bus/pci/drivers/nvptnet/unbind
    kill $pinging 2>/dev/null
    echo $at >/sys/bus/pci/drivers/nvptnet/bind
    up; reach
done
netvale pkt-gen -i netmap:eth0 -f rx >/tmp/rx 2>&1 & program=$!
while [ $(cat /sys/class/net/eth0/carrier) = 1 ]; do sleep 0.1; done
echo 1 >/sys/bus/pci/devices/$at/remove
echo removed
kill $program; wait $program
echo 1 >/sys/bus/pci/rescan
up; reach
ip link set eth0 mtu 9000 && echo 9000 accepted
ip link set eth0 mtu 1500
ls /sys/class/net/eth0/queues
ip link set eth0 down; ip link set eth0 up; reach
ethtool -i eth0; ethtool -l eth0; ethtool -g eth0; ethtool -k eth0
ethtool -C eth0 rx-usecs 200 && ethtool -c eth0
reach; ethtool -S eth0
echo reached; dmesg
";

/// Objective: the interface works after its driver was unbound and bound again, and after the device was removed under
/// a running program and found again.
#[test]
fn drivers_and_devices_come_and_go() {
    let Some((_one, _up, standing, guest)) = beside_another(REBIND) else { return };
    let shown = guest.end();
    for part in ["removed", "9000 accepted", "tx-1", "reached", "driver: nvptnet"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let lines: Vec<String> = shown.lines().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for line in ["TX: 2", "RX: 512", "tcp-segmentation-offload: on", "tx-checksum-ip-generic: on", "rx-usecs: 200"] {
        assert!(lines.iter().any(|l| l == line), "{line}: {shown}");
    }
    let count = |name: &str| lines.iter().find_map(|l| l.strip_prefix(name)?.parse::<u64>().ok());
    let sum = |dir: &str, what: &str| (0..2).filter_map(|i| count(&format!("{dir}{i}_{what}: "))).sum::<u64>();
    assert!(sum("rx", "packets") > 0 && sum("tx", "packets") > 0 && sum("tx", "errors") == 0, "{shown}");
    no_complaints(&shown);
    drop(standing);
}

/// Objective: a guest that reboots finds its device again; after a guest's QEMU is killed, the port is ready for the
/// next QEMU, with fresh memory.
#[test]
fn a_guest_that_reboots_finds_its_device() {
    let Some((_one, up, standing, mut guest)) = beside_another(LOOP) else { return };
    guest.expect("reached");
    guest.say("reboot");
    guest.expect("guest: up");
    guest.expect("reached");
    assert!(up.notes("vale0:two").contains("rings run, frames with virtio-net header"));
    drop(guest);
    until("the port is free", || up.notes("vale0:two").contains("waits for a virtual machine"));
    let socket = up.path("two.sock");
    let mut guest = Guest::start(image().expect("an image"), LOOP, 2, &Nic { ptnet: 5, ..Nic::new(&socket) });
    guest.expect("reached");
    guest.say("off");
    guest.end();
    drop(standing);
}

/// Objective: a guest on ptnet and a guest on virtio-net reach each other, with whole segments in both directions,
/// because both guests have offloads.
#[test]
fn ptnet_and_virtio_guests_reach_each_other() {
    let Some((_one, image, up)) = begin(&[]) else { return };
    let ptnet = port(&up, "two", "--vnet-hdr");
    let virtio = up.attach("vhost", "one", "");
    let both = |ptnet_sends: bool| {
        let p = Nic { ptnet: 3, ..Nic::new(&ptnet) };
        let v = Nic::new(&virtio);
        let (from, to) = if ptnet_sends { (&p, &v) } else { (&v, &p) };
        let mut receiver = Guest::start(image, RECEIVE, 1, to);
        receiver.expect("ready");
        same_sum(Guest::start(image, SEND, 2, from), receiver);
    };
    both(true);
    let (frames, bytes) = up.moved("vale0:two", "in");
    assert!(bytes > 4 << 20 && bytes / frames > WHOLE, "{bytes} bytes in {frames} frames");
    both(false);
    let (frames, bytes) = up.moved("vale0:one", "in");
    assert!(bytes > 4 << 20 && bytes / frames > WHOLE, "{bytes} bytes in {frames} frames");
}

/// Script that uses the device without netvale's driver: polled through sysfs, then with interrupts through vfio.
const BARE: &str = "
at=$(basename $(readlink /sys/class/net/eth0/device))
pci=/sys/bus/pci/devices/$at
netvale pkt-gen -i ptnet-pci:$at -f tx -n 10 2>&1 | grep 'has a kernel driver' || exit 1
echo $at >$pci/driver/unbind
netvale pkt-gen -i ptnet-pci:$at -f tx -n 3000 -D 02:00:00:00:00:07 || exit 1
echo polling
netvale pkt-gen -i ptnet-pci:$at -f rx -n 500 || exit 1
echo vfio-pci >$pci/driver_override
echo $at >/sys/bus/pci/drivers_probe
netvale pkt-gen -i ptnet-pci:$at -f tx -n 3000 -D 02:00:00:00:00:07 || exit 1
echo interrupted
netvale pkt-gen -i ptnet-pci:$at -f rx -n 500 || exit 1
echo >$pci/driver_override
echo $at >$pci/driver/unbind
echo $at >/sys/bus/pci/drivers/nvptnet/bind
ip link set eth0 up; cat /sys/class/net/eth0/carrier
";

/// Objective: a program in the guest drives the device without netvale's kernel driver: it polls through sysfs or, with
/// an IOMMU, is woken by interrupts through vfio.
#[test]
fn a_program_drives_the_device_without_a_driver() {
    let Some((_one, image, up)) = begin(&[]) else { return };
    let socket = port(&up, "two", "");
    let more = ["-device", "intel-iommu,intremap=on"].map(String::from);
    let machine = ",kernel-irqchip=split";
    let kernel = " intel_iommu=on";
    let mut guest =
        Guest::start_with_netvale(image, BARE, 2, &Nic { ptnet: 3, more: &more, machine, kernel, ..Nic::new(&socket) });
    let mut shown = guest.expect("polling\r\n");
    assert!(shown.contains("Sent 3000 packets"), "{shown}");
    let sender = up.stream();
    shown += &guest.end();
    drop(sender);
    assert_eq!(shown.matches("Sent 3000 packets").count(), 2, "{shown}");
    assert!(shown.matches("Received ").count() == 2 && up.moved("vale0:two", "in").0 >= 6000, "{shown}");
    no_complaints(&shown);
}

/// Script in which a program drives the devices that netmap published.
const PUBLISHED: &str = "
for pci in /sys/bus/pci/devices/*; do
    [ $(cat $pci/vendor)$(cat $pci/device) = 0x1b360x000d ] && at=$(basename $pci)
done
netvale pkt-gen -i ptnet-pci:$at -f tx -n 10 -H 10 && exit 1
for i in 1 2; do
    netvale pkt-gen -i ptnet-pci:$at -f tx -n 3000 -D 02:00:00:00:00:07 || exit 1
done
echo sent
netvale pkt-gen -i ptnet-pci:$at -f rx -n 500 || exit 1
";

/// Objective: through vfio-user, a guest finds the published devices, maps netmap's memory from one device, and starts
/// rings with the other device, whose status blocks are in the guest's own memory.
#[test]
fn a_guest_finds_the_published_devices() {
    let Some((_one, image, up)) = begin(&[]) else { return };
    let socket = port(&up, "two", "--vfio-user --rings 2");
    let nic = Nic { vfio_user: true, ..Nic::new(&socket) };
    let mut guest = Guest::start_with_netvale(image, PUBLISHED, 2, &nic);
    let before = guest.expect("sent\r\n");
    assert!(before.matches("Sent 3000 packets").count() == 2 && up.moved("vale0:two", "in").0 >= 6000, "{before}");
    until("rings run", || up.notes("vale0:two").contains("rings run"));
    let sender = up.stream();
    let after = guest.end();
    drop(sender);
    assert!(after.contains("Received "), "{after}");
    no_complaints(&after);
    until("the port is free", || up.notes("vale0:two").contains("waits for a virtual machine"));
}
