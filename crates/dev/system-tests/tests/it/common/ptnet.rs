//! What tests of ptnet guests have in common.
#![allow(dead_code, reason = "each test program uses a part")]

use std::path::PathBuf;

use crate::common;
use crate::common::up::Up;

/// A ptnet port. Returns its socket.
pub fn port(up: &Up, name: &str, options: &str) -> PathBuf {
    let socket = up.path(&format!("{name}.sock"));
    common::stdout(&up.run(&format!("attach vale0 ptnet:{} --name {name} {options}", socket.display())));
    socket
}

/// Answers pings at 10.1.0.1 until it is told to end.
pub const STAND: &str = "
ip addr add 10.1.0.1/24 dev eth0; ip link set eth0 up
echo ready
read line </dev/ttyS0
";

/// Waits for a line on the console, and answers it with pings from then on.
pub const LOOP: &str = "
ip addr add 10.1.0.2/24 dev eth0; ip link set eth0 up
while true; do
    for i in $(seq 100); do ping -c 1 -W 1 10.1.0.1 >/dev/null && break; done
    ping -c 2 -i 0.1 10.1.0.1 >/dev/null && echo reached
    read line </dev/ttyS0
    case $line in
        reboot*) reboot -f ;;
        off*) exit 0 ;;
    esac
done
";

/// Functions of a guest's script for iperf3. It listens anew after each client, and resets one that comes in between; a
/// test of datagrams fails if the first one is lost.
pub const IPERF: &str = "
serve() {
    iperf3 -s -D --logfile /tmp/log
    for i in $(seq 100); do nc -z 127.0.0.1 5201 && return; sleep 0.1; done
}
measure() {
    for i in $(seq 10); do iperf3 -c 10.1.0.1 -i 0 $* && return; sleep 1; done
    return 1
}
";

/// Nothing the kernel would complain of.
pub fn no_complaints(console: &str) {
    for word in ["WARNING:", "BUG:", "Oops", "Call Trace", "invalid opcode"] {
        assert!(!console.contains(word), "{console}");
    }
}
