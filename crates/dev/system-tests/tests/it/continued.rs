//! A TCP connection over a switch whose daemon, in its sandbox, is replaced repeatedly.

use crate::common;

/// The connection runs from this namespace through a TAP, the switch and a network interface to another namespace.
/// Unlike a real interface, a veth leaves checksums to the receiver; the script disables that offload.
const SCRIPT: &str = r#"
there() { nsenter -t $there -n "$@"; }
until_ok() {
    for i in $(seq 600); do "$@" >/dev/null 2>&1 && return; sleep 0.1; done
    echo "time is up: $*"; cat "$dir/log"; exit 1
}
fails() { ! "$@" >/dev/null 2>&1; }
nv() { "$netvale" --run-dir "$dir" "$@"; }
elsewhere() { [ "$(readlink /proc/$1/ns/net)" != "$(readlink /proc/self/ns/net)" ]; }
unshare -n sleep 300 & there=$!
trap 'kill $there $daemon $server $client 2>/dev/null || true' EXIT
ip link add va type veth peer name vb
until_ok elsewhere $there
ip link set vb netns $there
there ip addr add 10.5.0.2/24 dev vb
there ip link set vb up
there ethtool -K vb tx off gso off >/dev/null
ip link set va up
"$netvale" up --run-dir "$dir" 2>"$dir/log" & daemon=$!
until_ok nv list
nv attach vale0 tap:ta >/dev/null
nv attach vale0 netmap:va >/dev/null
ip addr add 10.5.0.1/24 dev ta
ip link set ta up
until_ok busybox ping -c 1 -W 1 10.5.0.2
nsenter -t $there -n iperf3 -s -1 >"$dir/server" 2>&1 & server=$!
until_ok there sh -c 'ss -tln | grep -q 5201'
iperf3 -c 10.5.0.2 -t 8 -b 200M $direction -J >"$dir/client" 2>&1 & client=$!
until_ok there sh -c 'ss -tn state established | grep -q 5201'
for i in 1 2 3 4 5; do
    sleep 0.5
    before=$daemon
    "$netvale" up --run-dir "$dir" --take-over 2>>"$dir/log" & daemon=$!
    until_ok fails kill -0 $before
    until_ok nv list
    kill -0 $client || { echo "the connection ended"; cat "$dir/client" "$dir/log"; exit 1; }
done
wait $client || { cat "$dir/client"; exit 1; }
grep -c 'took over from another process' "$dir/log"
cat "$dir/client"
"#;

/// Runs the script, with iperf3 in the direction `direction`. Returns the number of bytes received; `None` if the test
/// cannot run here.
fn run(direction: &str) -> Option<u64> {
    if !common::has(&["busybox", "ethtool", "nsenter", "iperf3", "ss"]) {
        return None;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let text = common::script("200", SCRIPT, dir.path(), &[("direction", direction)]);
    let (count, json) = text.split_once('\n').expect("two parts");
    assert_eq!(count, "5", "{text}");
    let report: serde_json::Value = serde_json::from_str(&json[..=json.rfind('}').expect("JSON")]).expect("JSON");
    assert!(report["error"].is_null(), "{report}");
    eprintln!("retransmits: {}", report["end"]["sum_sent"]["retransmits"]);
    report["end"]["sum_received"]["bytes"].as_u64()
}

/// Objective: a TCP connection across a TAP and a network interface survives, in either direction, while five daemons
/// replace one another.
#[test]
fn tcp_lives_on() {
    if !common::is_root("XDP programs need root") {
        return;
    }
    for direction in ["", "-R"] {
        if let Some(bytes) = run(direction) {
            // A quarter of 200 Mbit/s for 8 s, because there is no daemon for part of the time.
            assert!(bytes > 50_000_000, "{direction} {bytes} bytes");
        }
    }
}
