//! Virtual machines whose daemon is replaced by another process: their connections stay.

use crate::common::guest;
use crate::common::ptnet as machines;
use crate::common::up;

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use guest::{Guest, Nic, image};
use machines::{no_complaints, serving, talking};
use netvale_harness::ChildProcess;
use up::{Guarded, Up, until};

/// Number of times that the daemon is replaced.
const TIMES: usize = 10;

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
    let one = up.attach("ptnet", "ptnet", "--vnet-hdr 12");
    let two = up.attach("e1000", "e1000", "");
    let mut standing = Guest::start(image, &serving(512), 1, &Nic { ptnet: 3, ..Nic::new(&one) });
    let before = standing.expect("ready");
    let mut talking = Guest::start(image, &talking(1), 2, &Nic { function: true, ..Nic::new(&two) });
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
    guest::same_file(&before, &fetched);
    [fetched, after_that, after].iter().for_each(|shown| no_complaints(shown));
    let notes = up.notes("vale0:e1000");
    assert!(notes.contains("waits for a virtual machine"), "{notes}");
}
