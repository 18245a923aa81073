//! Virtual machines whose daemon is replaced by another process: their connections stay.

use crate::common;
use crate::common::guest;
use crate::common::ptnet as machines;
use crate::common::up;

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use guest::{Guest, Nic, image};
use machines::no_complaints;
use netvale_harness::ChildProcess;
use up::{Guarded, Up, until};

/// Number of times that the daemon is replaced.
const TIMES: usize = 10;

/// Script that serves a file, and returns each line that it receives.
const STAND: &str = "
ip addr add 10.1.0.1/24 dev eth0; ip link set eth0 up
dd if=/dev/urandom of=/tmp/file bs=64k count=512 2>/dev/null
md5sum /tmp/file
busybox httpd -p 5000 -h /tmp
mkfifo /tmp/words
(exec 3<>/tmp/words; while true; do nc -l -p 5001 <&3 >&3; done) &
echo ready
read line </dev/ttyS0
";

/// Script that fetches the file, and gets each line of its console back, all over two connections.
const TALK: &str = "
ip addr add 10.1.0.2/24 dev eth0; ip link set eth0 up
for i in $(seq 100); do ping -c 1 -W 1 10.1.0.1 >/dev/null && break; done
(sleep 1; busybox wget -q -O /tmp/file http://10.1.0.1:5000/file; md5sum /tmp/file; echo fetched) &
echo begun
while read line; do [ \"$line\" = off ] && break; echo \"$line\"; done </dev/ttyS0 \
    | nc 10.1.0.1 5001 | while read line; do echo \"back: $line\"; done
wait
";

/// Starts a process that replaces the daemon `before`, which then ends. Tries again if the replacement fails: on a busy
/// machine, a guest may not pause in time.
fn take_over(run_dir: &Path, before: u32) -> Guarded {
    for _ in 0..20 {
        let mut command = Command::new(netvale_system_tests::netvale());
        command.arg("--run-dir").arg(run_dir).args(["up", "--take-over"]);
        command.env_remove("XDG_RUNTIME_DIR").stdout(Stdio::null()).stderr(Stdio::null());
        let mut next = Guarded(ChildProcess::from(command.spawn().expect("it starts")));
        let has_ended = || {
            let stat = std::fs::read_to_string(format!("/proc/{before}/stat")).unwrap_or_default();
            stat.is_empty() || stat.contains(") Z ")
        };
        let mut fails = false;
        until("the successor goes on, or ends", || {
            fails = next.0.child().try_wait().expect("a child").is_some();
            fails || has_ended()
        });
        if !fails {
            until("it answers", || UnixStream::connect(run_dir.join("control.sock")).is_ok());
            return next;
        }
    }
    panic!("no successor could go on");
}

/// Objective: two guests, one guest with ptnet and one guest with an e1000 and its stock driver, keep two TCP
/// connections, one of which carries a file, while ten processes replace one another; each line that one guest sends
/// comes back before the next process starts.
#[test]
fn connections_of_guests_survive_handovers() {
    let Some(image) = image() else { return };
    let up = Up::start(&[]);
    let attach = |kind: &str, options: &str| {
        let socket = up.path(&format!("{kind}.sock"));
        common::stdout(&up.run(&format!("attach vale0 {kind}:{} --name {kind} {options}", socket.display())));
        socket
    };
    let one = attach("ptnet", "--vnet-hdr 12");
    let two = attach("e1000", "");
    let mut standing = Guest::start(image, STAND, 1, &Nic { ptnet: 3, ..Nic::new(&one) });
    let before = standing.expect("ready");
    let mut talking = Guest::start(image, TALK, 2, &Nic { function: true, ..Nic::new(&two) });
    talking.expect("begun");
    let mut line: Vec<Guarded> = Vec::new();
    for i in 0..TIMES {
        talking.say(&format!("word-{i}"));
        talking.expect(&format!("back: word-{i}"));
        let last = line.last().map_or(up.pid(), |last| last.0.id());
        line.push(take_over(up.dir(), last));
    }
    talking.say("last");
    talking.expect("back: last");
    let fetched = talking.expect("fetched");
    talking.say("off");
    let after_that = talking.end();
    standing.say("off");
    let after = standing.end();
    let sum = |text: &str| text.lines().find(|l| l.contains("  /tmp/file")).map(|l| l[..32].to_owned());
    assert!(sum(&fetched).is_some() && sum(&fetched) == sum(&before), "{before}{fetched}");
    [fetched, after_that, after].iter().for_each(|shown| no_complaints(shown));
    let notes = up.show("vale0:e1000")["notes"].to_string();
    assert!(notes.contains("waits for a virtual machine"), "{notes}");
}
