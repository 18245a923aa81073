//! Traffic through ptnet devices in virtual machines: iperf3's streams over several rings, unmodified netmap programs,
//! pipes and interfaces without a switch; and suspend.

use crate::common;
use crate::common::guest;
use crate::common::libs;
use crate::common::ptnet as machines;
use crate::common::up;

use std::path::Path;
use std::process::Command;

use guest::{Guest, Nic, alone, begin, image};
use machines::{IPERF, STAND, no_complaints, port};
use up::until;

const SERVER: &str = "
ip addr add 10.1.0.1/24 dev eth0; ip link set eth0 up; ip link set lo up
echo hello >/tmp/hello
busybox httpd -p 5000 -h /tmp
serve
echo ready
read line </dev/ttyS0
ethtool -S eth0
";

/// Script with four TCP streams in each direction, then small and large datagrams. Kernels choose a connection's ring
/// by a hash. Forty more connections follow, because a dozen all use one ring once in some hundred runs.
const CLIENT: &str = "
ip addr add 10.1.0.2/24 dev eth0; ip link set eth0 up
for i in $(seq 100); do ping -c 1 -W 1 10.1.0.1 >/dev/null && break; done
measure -t 1 -P 4 && measure -t 1 -P 4 -R || exit 1
measure -u -t 1 -l 64 -b 1M && measure -u -t 1 -l 1400 -b 20M -P 2 || exit 1
for i in $(seq 40); do busybox wget -q -O /dev/null http://10.1.0.1:5000/hello || exit 1; done
ethtool -S eth0
";

/// Returns the last value of the counter `name` in the output of `ethtool -S`.
fn counted(shown: &str, name: &str) -> u64 {
    let mut lines = shown.lines().filter_map(|line| line.trim().strip_prefix(name)?.strip_prefix(": "));
    lines.next_back().unwrap_or_else(|| panic!("{name}: {shown}")).parse().expect("a number")
}

/// Runs iperf3 between two guests with two rings in each direction, and asserts that all rings carry frames.
fn streams(options: &str) {
    let Some((_one, image, up)) = begin(&[]) else { return };
    let [one, two] = ["one", "two"].map(|name| port(&up, name, &format!("--rings 2 {options}")));
    let nic = |socket| Nic { ptnet: 5, pairs: 2, ..Nic::new(socket) };
    let programs: &[(&Path, &str)] = &[(Path::new("/usr/bin/iperf3"), "/bin/iperf3")];
    let mut server = Guest::start_with(image, &format!("{IPERF}{SERVER}"), 1, &nic(&one), programs);
    server.expect("ready");
    let client = Guest::start_with(image, &format!("{IPERF}{CLIENT}"), 2, &nic(&two), programs).end();
    server.say("off");
    let server = server.end();
    assert_eq!(client.matches("iperf Done").count(), 4, "{client}");
    for shown in [&client, &server] {
        for name in ["tx0_packets", "tx1_packets", "rx0_packets", "rx1_packets"] {
            assert!(counted(shown, name) > 10, "{name}: {client}{server}");
        }
        assert_eq!(counted(shown, "tx0_errors") + counted(shown, "tx1_errors"), 0, "{shown}");
        no_complaints(shown);
    }
}

/// Objective: TCP and UDP pass in both directions, over all rings.
#[test]
fn iperf_runs_without_a_header() {
    streams("");
}

/// Objective: with virtio-net headers, TCP in whole segments and UDP pass in both directions, over all rings.
#[test]
fn iperf_runs_with_a_header() {
    streams("--vnet-hdr");
}

/// Script with two devices on one switch: frames sent on one device arrive on the other device.
const UNMODIFIED: &str = "
# Their stacks have nothing to say in between.
for name in all default eth0 eth1; do echo 1 >/proc/sys/net/ipv6/conf/$name/disable_ipv6; done
ip link set eth0 up; ip link set eth1 up
run() { NETVALE_RUN_DIR=/run/netvale netvale --run-dir /run/netvale run --lib-dir /usr/lib/netvale -- $*; }
netvale up --run-dir /run/netvale >/tmp/log 2>&1 &
for i in $(seq 100); do netvale --run-dir /run/netvale list >/dev/null 2>&1 && break; sleep 0.1; done
for program in poll_loop busy_sync epoll_loop dispatch; do
    run /bin/$program netmap:eth1 netmap:eth0 || { cat /tmp/log; exit 1; }
    echo $program passed
done
cat /sys/class/net/eth0/carrier; dmesg | grep -v taint | grep nvptnet
";

/// Objective: C programs compiled against netmap's headers alone run unmodified in the guest, with the preload library,
/// on the rings of the device.
#[test]
fn unmodified_programs_run_in_the_guest() {
    let Some((_one, image, up)) = begin(&[]) else { return };
    let [one, two] = ["one", "two"].map(|name| port(&up, name, "--lossless"));
    let programs = ["poll_loop", "busy_sync", "epoll_loop", "dispatch"].map(|name| {
        let program = up.path(name);
        libs::compile_alone(&libs::source(name), &program, &["-lpthread"]);
        (program, format!("/bin/{name}"))
    });
    let library = netvale_system_tests::programs().join("libnetmap.so");
    let mut all: Vec<(&Path, &str)> = programs.iter().map(|(p, place)| (p.as_path(), place.as_str())).collect();
    all.push((&library, "/usr/lib/netvale/libnetmap.so"));
    let second = format!("socket,id=c1,path={}", two.display());
    let more = ["-chardev", &second, "-device", "ivshmem-doorbell,chardev=c1,vectors=3"].map(String::from);
    let nic = Nic { ptnet: 3, more: &more, ..Nic::new(&one) };
    let shown = Guest::start_with(image, UNMODIFIED, 1, &nic, &all).end();
    assert_eq!(shown.matches(" passed").count(), 4, "{shown}");
    no_complaints(&shown);
}

/// Script of a guest at the end of a pipe: netmap mode, then packets of its stack.
const PIPED: &str = "
ip addr add 10.1.0.2/24 dev eth0; ip link set eth0 up
netvale pkt-gen -i netmap:eth0 -f tx -n 5000 -D 02:00:00:00:00:07 || exit 1
echo sent
read line </dev/ttyS0
for i in $(seq 100); do ping -c 1 -W 1 10.1.0.1 >/dev/null && break; done
ping -c 3 -i 0.1 10.1.0.1 || exit 1
";

/// Objective: what a guest sends at one end of a pipe arrives at the other end, in a program on the host: frames of a
/// netmap program, then of the guest's stack, which another guest behind a switch answers.
#[test]
fn guest_at_a_pipe() {
    let Some((_one, image, up)) = begin(&[]) else { return };
    let socket = up.path("pipe.sock");
    common::stdout(&up.run(&format!("attach --backend netmap:p{{1 ptnet:{}", socket.display())));
    let receiver = up.start_program("pkt-gen -i netmap:p}1 -f rx -n 5000");
    let mut guest = Guest::start_with_netvale(image, PIPED, 2, &Nic { ptnet: 3, ..Nic::new(&socket) });
    guest.expect("sent");
    let received = receiver.output();
    // The count may be a little higher than 5,000, because the guest's own stack may have sent frames before.
    assert!(common::stdout(&received).contains("Received 500"), "{received:?}");
    let mut standing = Guest::start(image, STAND, 1, &Nic { ptnet: 3, ..Nic::new(&port(&up, "one", "")) });
    standing.expect("ready");
    let bridge = up.start_program("bridge -i netmap:p}1 -i vale0:bridge");
    guest.say("go on");
    let shown = guest.end();
    assert!(shown.contains(" 0% packet loss"), "{shown}");
    no_complaints(&shown);
    drop((bridge, standing));
}

/// The far end of a veth pair, in a namespace of its own, has 10.1.0.1 and a file. The near end is in the daemon's
/// namespace.
const CABLE: &str = r#"
unshare -n sleep 300 & there=$!
trap 'kill $there $daemon 2>/dev/null || true' EXIT
until_ok() { for i in $(seq 100); do "$@" >/dev/null 2>&1 && return; sleep 0.1; done; echo "time is up: $*"; exit 1; }
elsewhere() { [ "$(readlink /proc/$there/ns/net)" != "$(readlink /proc/self/ns/net)" ]; }
ip link add va numrxqueues 2 numtxqueues 2 type veth peer name vb numrxqueues 2 numtxqueues 2
until_ok elsewhere
ip link set vb netns $there
nsenter -t $there -n ip addr add 10.1.0.1/24 dev vb
nsenter -t $there -n ip link set vb up
ip link set va up
nsenter -t $there -n ethtool -K vb tx off >/dev/null
nsenter -t $there -n busybox httpd -p 5000 -h "$dir"
"$netvale" up --run-dir "$dir" 2>"$dir/log" & daemon=$!
until_ok "$netvale" --run-dir "$dir" list
"$netvale" --run-dir "$dir" attach --backend netmap:va "ptnet:$dir/nic.sock"
touch "$dir/up"
until_ok test -e "$dir/down"
"$netvale" --run-dir "$dir" show netmap:va
"#;

/// Script of a guest to which the host's interface is passed through.
const WIRED: &str = "
ip addr add 10.1.0.2/24 dev eth0; ip link set eth0 up
for i in $(seq 100); do ping -c 1 -W 1 10.1.0.1 >/dev/null && break; done
ping -c 3 -i 0.1 10.1.0.1 || exit 1
busybox wget -q -O /tmp/file http://10.1.0.1:5000/file && md5sum /tmp/file
ip link show eth0
";

/// Objective: an interface of the host is passed through to the guest: the guest's interface has the same Ethernet
/// address and as many queues, and TCP passes.
#[test]
fn guest_on_an_interface() {
    let _one = alone();
    let Some(image) = image() else { return };
    let dir = tempfile::tempdir().expect("a folder");
    let content: Vec<u8> = (0..1u32 << 19).flat_map(|i| i.wrapping_mul(0x9e37_79b9).to_le_bytes()).collect();
    std::fs::write(dir.path().join("file"), &content).expect("written");
    let mut command = Command::new("timeout");
    command.args(["400", "unshare", "-n", "sh", "-ec", CABLE]);
    command.env("netvale", netvale_system_tests::netvale()).env("dir", dir.path());
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let host = up::Guarded(command.spawn().expect("unshare runs").into());
    until("the port is there", || dir.path().join("up").exists());
    let nic = dir.path().join("nic.sock");
    let shown = Guest::start(image, WIRED, 2, &Nic { ptnet: 5, pairs: 2, ..Nic::new(&nic) }).end();
    std::fs::write(dir.path().join("down"), "").expect("written");
    let output = host.output();
    let host = common::stdout(&output);
    assert!(shown.contains(" 0% packet loss"), "{shown}");
    let sum = Command::new("md5sum").arg(dir.path().join("file")).output().expect("md5sum runs");
    assert!(shown.contains(&common::stdout(&sum)[..32]), "{shown}");
    assert!(host.contains("netmap:va: ptnet"), "{host}");
    no_complaints(&shown);
}

/// Suspends all devices and resumes them a second later, without suspending the processor: the machine that QEMU
/// emulates here would not wake up.
const SLEEPER: &str = "
ip addr add 10.1.0.2/24 dev eth0; ip link set eth0 up
reach() {
    for i in $(seq 100); do ping -c 1 -W 1 10.1.0.1 >/dev/null && return; done
    echo unreachable; dmesg | tail -n 20; exit 1
}
echo devices >/sys/power/pm_test
echo 1 >/sys/module/suspend/parameters/pm_test_delay
for i in 1 2; do
    reach
    ping -i 0.002 10.1.0.1 >/dev/null & pinging=$!
    echo mem >/sys/power/state || exit 1
    kill $pinging
done
ip link set eth0 down
echo mem >/sys/power/state || exit 1
ip link set eth0 up
reach; echo reached; dmesg | grep -v taint | grep -i 'nvptnet\\|PM:'
";

/// Objective: after suspend and resume, the machine's interface is as before, up or down.
#[test]
fn an_interface_survives_suspend() {
    let Some((_one, image, up)) = begin(&[]) else { return };
    let one = port(&up, "one", "");
    let two = port(&up, "two", "--vnet-hdr");
    let mut standing = Guest::start(image, STAND, 1, &Nic { ptnet: 3, ..Nic::new(&one) });
    standing.expect("ready");
    let shown = Guest::start(image, SLEEPER, 2, &Nic { ptnet: 3, ..Nic::new(&two) }).end();
    assert!(shown.contains("reached") && shown.matches("PM: suspend exit").count() == 3, "{shown}");
    no_complaints(&shown);
    drop(standing);
}
