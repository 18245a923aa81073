//! Code common to tests of ptnet guests.
#![allow(dead_code, reason = "each test program uses a part")]

use std::path::PathBuf;

use crate::common::up::Up;

/// Attaches a ptnet port. Returns its socket.
pub fn port(up: &Up, name: &str, options: &str) -> PathBuf {
    up.attach("ptnet", name, options)
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

/// Returns a script that serves a file of `blocks` 64 KiB blocks, and returns each line that it receives.
pub fn serving(blocks: u32) -> String {
    format!(
        "
ip addr add 10.1.0.1/24 dev eth0; ip link set eth0 up
dd if=/dev/urandom of=/tmp/file bs=64k count={blocks} 2>/dev/null
md5sum /tmp/file
busybox httpd -p 5000 -h /tmp
mkfifo /tmp/words
(exec 3<>/tmp/words; while true; do nc -l -p 5001 <&3 >&3; done) &
echo ready
read line </dev/ttyS0
dmesg | grep -i e1000
true
"
    )
}

/// Returns a script that fetches the file after some seconds, and gets each line of its console back, all over two
/// connections.
pub fn talking(seconds: u32) -> String {
    format!(
        "
ip addr add 10.1.0.2/24 dev eth0; ip link set eth0 up
for i in $(seq 100); do ping -c 1 -W 1 10.1.0.1 >/dev/null && break; done
(sleep {seconds}; busybox wget -q -O /tmp/file http://10.1.0.1:5000/file; md5sum /tmp/file; echo fetched) &
echo begun
while read line; do [ \"$line\" = off ] && break; echo \"$line\"; done </dev/ttyS0 \
    | nc 10.1.0.1 5001 | while read line; do echo \"back: $line\"; done
wait
dmesg | grep -i e1000
true
"
    )
}

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
