//! Code common to tests of ptnet guests.
#![allow(dead_code, reason = "each test program uses a part")]

use std::path::PathBuf;

use crate::common;
use crate::common::up::Up;

/// Attaches a ptnet port. Returns its socket.
pub fn port(up: &Up, name: &str, options: &str) -> PathBuf {
    let socket = up.path(&format!("{name}.sock"));
    common::stdout(&up.run(&format!("attach vale0 ptnet:{} --name {name} {options}", socket.display())));
    socket
}

/// Script that answers pings at 10.1.0.1 until it gets a line on the console.
pub const STAND: &str = "
ip addr add 10.1.0.1/24 dev eth0; ip link set eth0 up
echo ready
read line </dev/ttyS0
";

/// Script that answers each line on the console with pings.
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

/// Functions for a guest's script that use iperf3. The server listens again after each client, and resets a client that
/// connects before that; a test with datagrams fails if the first datagram is lost.
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

/// Asserts that the kernel printed no warning.
pub fn no_complaints(console: &str) {
    for word in ["WARNING:", "BUG:", "Oops", "Call Trace", "invalid opcode"] {
        assert!(!console.contains(word), "{console}");
    }
}
