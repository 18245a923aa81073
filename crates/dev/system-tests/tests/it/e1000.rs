//! Virtual machines on a switch through e1000 ports: with the stock driver, with netvale's driver, and with netvale
//! itself in the guest.

use crate::common;
use crate::common::guest;
use crate::common::ptnet as machines;
use crate::common::up;

use std::path::{Path, PathBuf};

use guest::{Guest, Nic, begin};
use machines::{IPERF, no_complaints};
use up::{Up, until};

/// Attaches an e1000 port. Returns its socket.
fn port(up: &Up, name: &str, options: &str) -> PathBuf {
    up.attach("e1000", name, options)
}

/// Script that serves a file.
const STAND: &str = "
ip addr add 10.1.0.1/24 dev eth0; ip link set eth0 up
dd if=/dev/urandom of=/tmp/file bs=64k count=32 2>/dev/null
md5sum /tmp/file
busybox httpd -p 5000 -h /tmp
echo ready
read line </dev/ttyS0
dmesg | grep -i e1000
";

/// Script that pings, then fetches the file.
const FETCH: &str = "
ip addr add 10.1.0.2/24 dev eth0; ip link set eth0 up
for i in $(seq 100); do ping -c 1 -W 1 10.1.0.1 >/dev/null && break; done
ping -c 3 -i 0.1 10.1.0.1 || exit 1
busybox wget -q -O /tmp/file http://10.1.0.1:5000/file || exit 1
md5sum /tmp/file
dmesg | grep -i e1000; grep eth0 /proc/interrupts
";

/// Objective: two guests with only their stock driver reach each other across the switch, and a file arrives unchanged
/// over TCP.
#[test]
fn two_stock_guests_reach_each_other() {
    let Some((_one, image, up)) = begin(&[]) else { return };
    let [one, two] = ["one", "two"].map(|name| port(&up, name, ""));
    let nic = |socket| Nic { function: true, ..Nic::new(socket) };
    let mut standing = Guest::start(image, STAND, 1, &nic(&one));
    let before = standing.expect("ready");
    let fetched = Guest::start(image, FETCH, 2, &nic(&two)).end();
    standing.say("off");
    let after = standing.end();
    assert!(fetched.contains(" 0% packet loss"), "{fetched}");
    guest::same_file(&before, &fetched);
    for shown in [&fetched, &after] {
        no_complaints(shown);
    }
    until("the ports are free", || up.notes("vale0:two").contains("waits for a virtual machine"));
}

/// Script that serves iperf3 to any client.
const SERVER: &str = "
ip addr add 10.1.0.1/24 dev eth0; ip link set eth0 up; ip link set lo up
serve
echo ready
read line </dev/ttyS0
";

/// Script that loads netvale's driver in each of its modes.
const MODES: &str = "
driver=e1000
traffic() {
    for i in $(seq 100); do ping -c 1 -W 1 10.1.0.1 >/dev/null && break; done
    ping -c 3 -i 0.1 -s 1400 10.1.0.1 >/dev/null || return 1
    measure -n 8M && measure -n 8M -R && measure -u -l 64 -b 4M -n 128K
}
for mode in 'sc=0 csb=0' 'sc=1 csb=0' 'csb=1' 'csb=1 itr'; do
    busybox rmmod $driver || exit 1
    driver=nve1000
    insmod /lib/nve1000.ko ${mode% itr} || exit 1
    ip addr add 10.1.0.2/24 dev eth0
    case $mode in *itr) ethtool -C eth0 rx-usecs 200 ;; esac
    ip link set eth0 up
    traffic || exit 1
    ethtool -S eth0
    echo \"passed: $mode\"
done
dmesg | grep -v taint | grep nve1000
";

/// Objective: netvale's driver carries TCP and datagrams in each of its modes, and a status block saves register
/// accesses: nearly all of these accesses while the daemon polls, which it always does here, because how often it
/// sleeps depends on the machine.
#[test]
fn our_driver_in_all_modes() {
    let Some((_one, image, up)) = begin(&["--poll-always"]) else { return };
    let [one, two] = ["one", "two"].map(|name| port(&up, name, ""));
    let nic = |socket| Nic { function: true, ..Nic::new(socket) };
    let programs: &[(&Path, &str)] = &[(Path::new("/usr/bin/iperf3"), "/bin/iperf3")];
    let mut server = Guest::start_with(image, &format!("{IPERF}{SERVER}"), 1, &nic(&one), programs);
    server.expect("ready");
    let client = Guest::start_with(image, &format!("{IPERF}{MODES}"), 2, &nic(&two), programs).end();
    server.say("off");
    let server = server.end();
    assert_eq!(client.matches("passed: ").count(), 4, "{client}");
    for shown in [&client, &server] {
        no_complaints(shown);
    }
    // Numbers of accesses to the tail registers, one for each mode.
    let writes: Vec<u64> =
        client.lines().filter_map(|l| l.trim().strip_prefix("tail_writes: ")?.parse().ok()).collect();
    eprintln!("accesses of the tail registers: {writes:?}");
    assert!(writes.len() == 4 && writes[2] * 10 < writes[0] && writes[3] * 10 < writes[0], "{client}");
}

/// Script in which netvale in the guest takes the card from the kernel.
const TAKEN: &str = "
set -e
address=$(basename $(readlink -f /sys/class/net/eth0/device))
pci=/sys/bus/pci/devices/$address
netvale up --run-dir /run/netvale >/tmp/log 2>&1 &
for i in $(seq 100); do netvale --run-dir /run/netvale list >/dev/null 2>&1 && break; sleep 0.1; done
run() { NETVALE_RUN_DIR=/run/netvale netvale --run-dir /run/netvale $*; }
run attach vale0 e1000-pci:$address >/tmp/no 2>&1 || cat /tmp/no
grep -q 'found the driver e1000' /tmp/no
echo vfio-pci >$pci/driver_override
echo $address >$pci/driver/unbind
echo $address >/sys/bus/pci/drivers_probe
run attach vale0 e1000-pci:$address --name nic --slots 256
for i in $(seq 100); do run show vale0:nic | grep 'link up' && break; sleep 0.1; done
run pkt-gen -i vale0:gen -f tx -n 2000 -R 2000 -D 02:00:00:00:00:07
run show vale0:nic --json
echo sent
run pkt-gen -i vale0:sink -f rx -n 500
run show vale0:nic
echo $address >/sys/bus/pci/devices/$address/driver/unbind
for i in $(seq 50); do run show vale0:nic | grep 'no card' && break; sleep 0.1; done
run show vale0:nic | grep -q 'no card'
";

/// Returns the number of frames that found no room at the card: a guest that gets no CPU for 128 ms runs out of slots.
fn without_room(console: &str) -> u64 {
    let shown = console.lines().find(|line| line.starts_with('{')).expect("what show says");
    let shown: serde_json::Value = serde_json::from_str(shown).expect("JSON");
    shown["drops"]["no-room"].as_u64().unwrap_or(0)
}

/// Objective: netvale in a guest drives the card with the status block behind an IOMMU, frames pass in both directions
/// (all frames that the card took arrive), and the kernel gets the card back on request.
#[test]
fn netvale_in_the_guest() {
    let Some((_one, image, up)) = begin(&[]) else { return };
    let socket = port(&up, "two", "");
    let more = ["-device", "intel-iommu,intremap=on,caching-mode=on"].map(String::from);
    let machine = ",kernel-irqchip=split";
    let kernel = " intel_iommu=on";
    let nic = Nic { function: true, more: &more, machine, kernel, ..Nic::new(&socket) };
    let mut guest = Guest::start_with_netvale(image, TAKEN, 2, &nic);
    let before = guest.expect("sent\r\n");
    let taken = 2000 - without_room(&before);
    assert!(taken > 0, "{before}");
    until("all are there", || up.show("vale0:two")["rings"][0]["frames"].as_u64().is_some_and(|n| n >= taken));
    let sender = up.stream();
    let shown = before + &guest.end();
    drop(sender);
    assert!(shown.contains("runs with a status block, link up"), "{shown}");
    assert!(shown.contains("Received "), "{shown}");
    no_complaints(&shown);
}

/// Script of the guest at the other end of [`FEATURES`]: long frames, a VLAN, iperf3.
const PEER: &str = "
ip link set eth0 mtu 9000; ip addr add 10.1.0.1/24 dev eth0; ip link set eth0 up; ip link set lo up
ip link add link eth0 name eth0.5 type vlan id 5
ip addr add 10.5.0.1/24 dev eth0.5; ip link set eth0.5 up
serve
echo ready
read line </dev/ttyS0
";

/// Script that tries the stock driver's features one by one, then waits for commands on the console.
const FEATURES: &str = "
reach() {
    for i in $(seq 100); do ping -c 1 -W 1 $1 >/dev/null && return; done
    return 1
}
seen() { cat /sys/class/net/eth0/statistics/rx_packets; }
echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6
ip addr add 10.1.0.2/24 dev eth0; ip link set eth0 up
reach 10.1.0.1 || exit 1
echo up
read line </dev/ttyS0
case $line in off*) exit 0 ;; esac
ip link set eth0 mtu 9000
reach 10.1.0.1 && ping -c 3 -i 0.1 -s 8900 10.1.0.1 || exit 1
echo passed: jumbo
ip link add link eth0 name eth0.5 type vlan id 5
ip addr add 10.5.0.2/24 dev eth0.5; ip link set eth0.5 up
reach 10.5.0.1 && ping -c 3 -i 0.1 -s 1400 10.5.0.1 || exit 1
ethtool -k eth0 | grep -E 'vlan-(offload|filter)'
echo passed: vlan
ethtool -k eth0 | grep 'tcp-segmentation-offload: on' && measure -n 8M || exit 1
ethtool -S eth0 | grep -E 'tcp_seg_good|errors: [1-9]'
echo passed: tso
for how in off on; do
    ip link set eth0 promisc $how
    before=$(seen); echo listening
    read line </dev/ttyS0
    echo strangers $how $(($(seen) - before))
done
# The driver reports 14 if its frames came back more than one tick later: the guest had lost its processor.
for try in 1 2 3 4 5; do
    result=$(ethtool -t eth0 offline)
    case $result in *'(offline) 14'*) ;; *) break ;; esac
done
echo \"$result\"
reach 10.1.0.1 || exit 1
echo passed: self-test
ip link set eth0 down; ip link set eth0 up
reach 10.1.0.1 || exit 1
echo passed: reset
reboot -f
";

/// Objective: long frames, insertion and removal of VLAN tags, segmentation, promiscuous mode, the stock driver's
/// self-test of registers, EEPROM, interrupts and loopback, a reset and a reboot all work with Debian's driver.
#[test]
fn all_features_of_the_stock_driver_work() {
    let Some((_one, image, up)) = begin(&[]) else { return };
    let [one, two] = ["one", "two"].map(|name| port(&up, name, ""));
    let nic = |socket| Nic { function: true, ..Nic::new(socket) };
    let programs: &[(&Path, &str)] = &[(Path::new("/usr/bin/iperf3"), "/bin/iperf3")];
    let mut peer = Guest::start_with(image, &format!("{IPERF}{PEER}"), 1, &nic(&one), programs);
    peer.expect("ready");
    let mut guest = Guest::start_with(image, &format!("{IPERF}{FEATURES}"), 2, &nic(&two), programs);
    let mut shown = guest.expect("up\r\n");
    guest.say("go on");
    for _ in 0..2 {
        shown += &guest.expect("listening\r\n");
        common::stdout(&up.run("pkt-gen -i vale0:gen -f tx -n 200 -R 2000 -D 02:00:00:00:00:77"));
        guest.say("done");
    }
    shown += &guest.expect("passed: reset\r\n");
    shown += &guest.expect("up\r\n");
    guest.say("off");
    shown += &guest.end();
    for what in ["jumbo", "vlan", "tso", "self-test"] {
        assert!(shown.contains(&format!("passed: {what}")), "{what}: {shown}");
    }
    let number = |before: &str| {
        let rest = shown.split(before).nth(1).unwrap_or_else(|| panic!("{before}: {shown}"));
        rest.split_whitespace().next().and_then(|word| word.parse::<u64>().ok()).unwrap_or_else(|| panic!("{shown}"))
    };
    assert!(number("tx_tcp_seg_good:") > 10, "{shown}");
    for test in
        ["Register test  (offline)", "Eeprom test    (offline)", "Interrupt test (offline)", "Loopback test  (offline)"]
    {
        assert_eq!(number(test), 0, "{test}: {shown}");
    }
    assert!(number("strangers off") < 20 && number("strangers on") >= 200, "{shown}");
    peer.say("off");
    peer.end();
    no_complaints(&shown);
}
