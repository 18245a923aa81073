//! Network interfaces and the host's stack behind them, in network namespaces of their own.

use crate::common;
use crate::common::libs;

use std::process::Command;

/// Creates a veth pair between this namespace, where its end is `va` with the address 10.5.0.1, and another namespace,
/// where its end is `vb` with the address 10.5.0.2. Unlike a real interface, a veth leaves checksums to the receiver;
/// the script disables that offload. The daemon runs here. Everything is removed when the shell ends.
const BEGIN: &str = r#"
there() { nsenter -t $there -n "$@"; }
until_ok() { for i in $(seq 100); do "$@" >/dev/null 2>&1 && return; sleep 0.1; done; echo "time is up: $*"; exit 1; }
fails() { if "$@" >/dev/null 2>&1; then echo "not refused: $*"; exit 1; fi; }
reach() { busybox ping -c 1 -W 1 10.5.0.2; }
nv() { "$netvale" --run-dir "$dir" "$@"; }
elsewhere() { [ "$(readlink /proc/$1/ns/net)" != "$(readlink /proc/self/ns/net)" ]; }
unshare -n sleep 300 & there=$!
trap 'kill $there $daemon $program $server 2>/dev/null || true' EXIT
ip link add va type veth peer name vb
until_ok elsewhere $there
ip link set vb netns $there
there ip addr add 10.5.0.2/24 dev vb
there ip link set vb up
ip addr add 10.5.0.1/24 dev va
ip link set va up
ethtool -K va tx off >/dev/null
there ethtool -K vb tx off >/dev/null
until_ok reach
"$netvale" up --run-dir "$dir" 2>"$dir/log" & daemon=$!
until_ok nv list
"#;

/// Functions that make veth pairs without the stack's own multicasts within this namespace, for programs that use both
/// ends.
const CABLES: &str = r#"
cable() {
    ip link add $1 type veth peer name $2
    for n in $1 $2; do echo 1 >/proc/sys/net/ipv6/conf/$n/disable_ipv6; ip link set $n up; done
}
export NETVALE_RUN_DIR="$dir"
"#;

/// Runs a C program of crates/programs/capi/tests/c, linked and preloaded, wherever `script` has the word `program`.
fn run_c(name: &str, script: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let linked = libs::compile(name, folder.path()).display().to_string();
    run(&format!("{CABLES}program() {{ NETVALE_VERBOSE=1 \"$linked\" \"$@\"; }}\n{script}"), &[("linked", &linked)]);
    let alone = folder.path().join("alone");
    let libraries = ["-L", netvale_system_tests::programs().to_str().expect("text"), "-lnetmap", "-lpthread"];
    libs::compile_alone(&libs::source(name), &alone, &libraries);
    let alone = alone.display().to_string();
    let dir = netvale_system_tests::programs().display().to_string();
    let preloaded = "program() { NETVALE_VERBOSE=1 nv run --lib-dir \"$libs\" -- \"$alone\" \"$@\"; }";
    run(&format!("{CABLES}{preloaded}\n{script}"), &[("alone", &alone), ("libs", &dir)]);
}

/// Objective: the result of every control request about an interface is the same as in netmap, in each of the
/// interface's states.
#[test]
fn interface_requests_are_answered_as_by_netmap() {
    run_c("interface_requests", "program va vale9");
}

/// Objective: every request to every kind of port is answered as by netmap.
#[test]
fn every_request_is_answered_as_by_netmap() {
    run_c("every_request", "cable nva nvb; cable nvc nvd; program vale9 nva nvb nvc");
}

/// Objective: two interfaces that are opened separately are in one region, and can exchange buffers.
#[test]
fn two_interfaces_lie_in_one_region() {
    run_c("two_interfaces", "cable nva nvb; cable nvc nvd; program nva nvb nvc nvd");
}

/// Objective: the rings of a queue, and host rings, can belong to several descriptors and processes, each of which has
/// one direction.
#[test]
fn each_direction_belongs_to_its_own_descriptor() {
    run_c("directions", "cable nva nvb; program nva nvb");
}

/// Objective: frames whose VLAN tag the sender's stack keeps in their metadata contain the tag when a program gets them
/// and after they have crossed a switch; frames without a receiver reach the stack with one tag, unchanged.
#[test]
fn tags_beside_frames_are_put_into_them() {
    let script = r#"
cable nva nvb
for kind in 8100 88a8; do
    program netmap:nva nva nvb $kind
    nv attach vale0 netmap:nva
    program vale0:x nva nvb $kind
    nv detach vale0 nva
    program stack nva nvb $kind
done
"#;
    run_c("tags_beside", script);
}

/// Objective: for an interface whose frames come through other interfaces (a bridge, a macvlan), the daemon reports
/// that they come without their VLAN tags.
#[test]
fn tags_of_a_bridge() {
    let script = r#"
cable nva nvb
ip link add nvbr type bridge
ip link set nvb master nvbr
ip link add link nva name nvmac type macvlan
for name in nvbr nvmac; do
    ip link set $name up
    nv attach vale0 netmap:$name
    nv show vale0:$name | tr -s ' \n' ' ' | grep "frames come without their VLAN tags"
    grep "$name: frames come without their VLAN tags" "$dir/log"
done
nv attach vale0 netmap:va
fails sh -c "'$netvale' --run-dir '$dir' show vale0:va | grep tags"
"#;
    run(&format!("{CABLES}{script}"), &[]);
}

/// Objective: there are as many host rings as requested; the stack's flows are distributed over them, each flow on one
/// ring; each host ring leads to the stack, and can be opened alone.
#[test]
fn flows_are_spread_over_all_host_rings() {
    let script = r#"
mac=$(there ip -o link show vb | sed 's/.*ether \([0-9a-f:]*\).*/\1/')
ip neigh replace 10.5.0.2 lladdr $mac dev va nud permanent
program va 10.5.0.1 10.5.0.2 $mac
"#;
    run_c("host_rings", script);
}

/// Objective: a sync kloop moves frames of an interface, with and without eventfds.
#[test]
fn kloop_on_an_interface() {
    run_c("kloop", "cable nva nvb; program nva nvb");
}

/// Runs a script in a network namespace of its own, if that is possible here.
fn run(script: &str, more: &[(&str, &str)]) {
    if common::is_root("XDP programs need root") && common::has(&["busybox", "ethtool", "nsenter"]) {
        let dir = tempfile::tempdir().expect("a folder");
        common::script("100", &format!("{BEGIN}{script}"), dir.path(), more);
    }
}

/// Objective: with interface and host rings open, frames reach the stack and leave it only if the program moves them;
/// when a process dies, by any signal, the interface is as before.
#[test]
fn host_rings_and_sudden_death() {
    let script = r#"
"$netvale" --run-dir "$dir" bridge -i netmap:va -i netmap:va^ >/dev/null 2>&1 & program=$!
until_ok nv show netmap:va^
until_ok reach
# Nobody moves frames: nothing passes.
kill -STOP $program; fails reach; kill -CONT $program
until_ok reach
there busybox nc -l -p 5000 -e md5sum >/dev/null & server=$!
dd if=/dev/urandom of="$dir/file" bs=64k count=32 2>/dev/null
until_ok busybox nc 10.5.0.2 5000 -e dd "if=$dir/file" bs=64k
wait $server
# The program dies.
kill -9 $program
until_ok fails nv show netmap:va
reach
# The daemon dies.
"$netvale" --run-dir "$dir" bridge -i netmap:va -i netmap:va^ >/dev/null 2>&1 & program=$!
until_ok nv show netmap:va^
ip link show va | grep -q xdp
kill -9 $daemon
until_ok reach
fails sh -c 'ip link show va | grep -q xdp'
fails ip link show nvhost0
"#;
    run(script, &[]);
}

/// Objective: an interface and the stack behind it are ports of a switch, and both are removed when the interface is
/// detached.
#[test]
fn interface_and_stack_on_a_switch() {
    let script = r#"
nv attach vale0 netmap:va --host
until_ok reach
nv show vale0:va^ | grep "stack behind interface va"
nv detach vale0 va
fails nv show vale0:va^
reach
"#;
    run(script, &[]);
}

/// Objective: two interfaces are joined by exchanging buffers; the error of a second program names the program that
/// uses the interface.
#[test]
fn bridge_of_two_interfaces() {
    let script = r#"
unshare -n sleep 300 & far=$!
trap 'kill $there $far $daemon $program 2>/dev/null || true' EXIT
ip link add vc type veth peer name vd
until_ok elsewhere $far
ip link set vd netns $far
nsenter -t $far -n ip addr add 10.5.0.3/24 dev vd
nsenter -t $far -n ip link set vd up
ip link set vc up
"$netvale" --run-dir "$dir" bridge -i netmap:va -i netmap:vc >/dev/null 2>&1 & program=$!
until_ok there busybox ping -c 1 -W 1 10.5.0.3
nv bridge -i netmap:va -i netmap:vc 2>&1 | grep "queue 0 of va is in use"
"#;
    run(script, &[]);
}

/// Returns the example program of that name, built if it is missing or old.
fn example(name: &str) -> String {
    let mut cargo = Command::new(env!("CARGO"));
    let built = cargo.args(["build", "--quiet", "--package", "netvale", "--example", name]).status();
    assert!(built.expect("cargo runs").success());
    let programs = netvale_system_tests::programs();
    programs.join("examples").join(name).display().to_string()
}

/// Objective: the example firewall passes frames that no rule names.
#[test]
fn the_example_firewall_passes_what_no_rule_names() {
    let script = r#"
NETVALE_RUN_DIR="$dir" "$firewall" va tcp,10.5.0.2,-,10.5.0.1,5000 & program=$!
until_ok nv show 'netmap:va*'
until_ok reach
for port in 5000 5001; do busybox nc -l -p $port -e echo from $port & server="$server $!"; done
until_ok sh -c 'nsenter -t $0 -n busybox nc -w 2 10.5.0.1 5001 </dev/null | grep "from 5001"' $there
if there busybox nc -w 1 10.5.0.1 5000; then
    nv show 'netmap:va*'
    exit 1
fi
"#;
    run(script, &[("firewall", &example("firewall"))]);
}

/// Objective: without a daemon, a privileged program opens interfaces itself, and exchanges buffers between two of
/// them.
#[test]
fn a_program_opens_interfaces_without_a_daemon() {
    let script = r#"
kill $daemon; until_ok fails nv list
nv pkt-gen -i netmap:va -f rx -n 3 >"$dir/rx" 2>&1 & program=$!
until_ok sh -c 'ip link show va | grep -q xdp'
for i in 1 2 3; do there busybox ping -c 1 -W 1 10.5.0.1 >/dev/null 2>&1 || true; done
wait $program
grep "^Received [3-9] packets" "$dir/rx" || { cat "$dir/rx"; exit 1; }
fails sh -c 'ip link show va | grep -q xdp'
nv pkt-gen -i netmap:va^ -f rx -n 1 2>&1 | grep "no netvale daemon runs"
nv pkt-gen -i netmap:nosuch0 -f rx -n 1 2>&1 | grep "interface nosuch0 does not exist"
"#;
    run(script, &[]);
}

/// Objective: an unprivileged user gets an interface from the daemon if the daemon permits that, and the user's
/// programs then use the interface without the daemon.
#[test]
fn an_unprivileged_user_gets_an_interface() {
    let script = r#"
kill $daemon; until_ok fails nv list
cp "$netvale" "$dir/nv"; chmod 755 "$dir"
as_nobody() {
    setpriv --reuid 65534 --regid 65534 --clear-groups --bounding-set -all "$dir/nv" --run-dir "$dir/run" "$@"
}
mkdir -m 755 "$dir/run"
"$netvale" up --run-dir "$dir/run" --socket-mode 666 2>"$dir/log" & daemon=$!
until_ok as_nobody list
as_nobody pkt-gen -i netmap:va -f tx -n 10 2>&1 | grep "allow-nic"
kill $daemon; until_ok fails as_nobody list
"$netvale" up --run-dir "$dir/run" --socket-mode 666 --allow-nic va 2>"$dir/log" & daemon=$!
until_ok as_nobody list
as_nobody pkt-gen -i netmap:va -f tx -n 1000 -l 60 2>&1 | grep "Sent 1000 packets"
"#;
    run(script, &[]);
}

/// Objective: a C program in netmap's style joins an interface and the stack behind it, and attaches both to a switch
/// as vale-ctl does.
#[test]
fn a_netmap_program_joins_an_interface_and_its_stack() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = libs::compile("host_bridge", folder.path()).display().to_string();
    let script = r#"
export NETVALE_RUN_DIR="$dir"
"$host_bridge" va >"$dir/out" 2>&1 & program=$!
until_ok grep ready "$dir/out" || { cat "$dir/out"; exit 1; }
until_ok reach
kill -STOP $program; fails reach; kill -CONT $program
until_ok reach
kill $program; until_ok fails nv show netmap:va
"$host_bridge" attach vale0:va
nv show vale0:va^ | grep "stack behind interface va"
until_ok reach
"$host_bridge" detach vale0:va
fails nv show vale0:va^
"#;
    run(script, &[("host_bridge", &program)]);
}

/// Objective: monitors of interfaces and host rings see the frames in netmap's order, on the same rings and with the
/// same flags as in netmap; the programs assert each step.
#[test]
fn monitors_see_what_passes_in_netmaps_order() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = |name| libs::compile(name, folder.path()).display().to_string();
    let kinds = program("monitor_kinds");
    let order = program("monitor_order");
    let host = program("monitor_host");
    let script = r#"
export NETVALE_RUN_DIR="$dir"
ip link add wa type veth peer name wb
for name in wa wb; do
    echo 1 >/proc/sys/net/ipv6/conf/$name/disable_ipv6
    ip link set $name up
done
"$kinds" wa wb
"$order" wa wb
"$host" wa
until_ok sh -c '! "$netvale" --run-dir "$dir" list | grep wa'
"#;
    run(script, &[("kinds", &kinds), ("order", &order), ("host", &host)]);
}
