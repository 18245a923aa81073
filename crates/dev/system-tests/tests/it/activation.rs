//! The daemon under a service manager that owns its sockets and its watchdog; the test acts as the manager.
//! scripts/packages-test.sh tests the same with systemd.

use crate::common;
use crate::common::up;

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
use up::{Guarded, LIMIT, until};

/// Moves two sockets from standard input and output to the descriptor numbers that a service manager uses.
const PASS: &str =
    "exec 3<&0 4>&1 </dev/null >/dev/null; LISTEN_PID=$$ LISTEN_FDS=2 LISTEN_FDNAMES=attach:control exec \"$@\"";

fn attach_socket(dir: &Path) -> OwnedFd {
    let fd = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    rustix::net::bind(&fd, &SocketAddrUnix::new(dir.join("attach.sock")).unwrap()).unwrap();
    rustix::net::listen(&fd, 64).unwrap();
    fd
}

/// Starts a daemon that gets two sockets, named `attach` and `control`.
fn start(dir: &Path, attach: OwnedFd, control: OwnedFd) -> Guarded {
    let mut command = Command::new("sh");
    command.args(["-c", PASS, "sh"]).arg(netvale_system_tests::netvale()).arg("--run-dir").arg(dir).arg("up");
    command.stdin(Stdio::from(attach)).stdout(Stdio::from(control)).stderr(Stdio::piped());
    Guarded(command.spawn().expect("sh runs").into())
}

fn run(dir: &Path, words: &str) -> std::process::Output {
    let mut command = common::netvale();
    command.arg("--run-dir").arg(dir).args(words.split(' ')).output().expect("it runs")
}

/// Objective: a client that connects before the daemon runs is served, frames pass, and the sockets outlive the daemon,
/// so that the next client reaches the next daemon.
#[test]
fn a_client_before_the_daemon_is_served() {
    let dir = tempfile::tempdir().unwrap();
    let attach = attach_socket(dir.path());
    let control = UnixListener::bind(dir.path().join("control.sock")).unwrap();
    for _ in 0..2 {
        let attach = attach.try_clone().unwrap();
        let control = control.try_clone().unwrap();
        let mut command = common::netvale();
        command.arg("--run-dir").arg(dir.path()).arg("list").stdout(Stdio::null());
        let early = Guarded(command.spawn().unwrap().into());
        let daemon = start(dir.path(), attach, control.into());
        assert!(early.output().status.success());
        common::stdout(&run(dir.path(), "pkt-gen -i vale0:a -f tx -n 100"));
        common::stdout(&run(dir.path(), "stop"));
        let said = common::stderr(&daemon.output());
        assert_eq!(said.matches("on the service manager's socket").count(), 2, "{said}");
    }
    assert!(dir.path().join("attach.sock").exists() && dir.path().join("control.sock").exists());
}

/// Objective: descriptors that have the right names but are not the expected sockets are reported in the log, and the
/// daemon makes its own sockets, which it removes at its end.
#[test]
fn wrong_sockets_are_named_in_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let pair = UnixStream::pair().unwrap().0;
    let daemon = start(dir.path(), attach_socket(elsewhere.path()), pair.into());
    until("it answers", || run(dir.path(), "list").status.success());
    common::stdout(&run(dir.path(), "stop"));
    let said = common::stderr(&daemon.output());
    for name in ["attach", "control"] {
        let refused = |line: &&str| line.contains("ignored a socket") && line.contains(&format!("name=\"{name}\""));
        assert_eq!(said.lines().filter(refused).count(), 1, "{said}");
        assert!(!dir.path().join(format!("{name}.sock")).exists());
    }
}

/// Objective: if a watchdog is requested, the daemon notifies it twice per period from start to end.
#[test]
fn the_watchdog_is_told_twice_a_period() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("notify");
    told_at(place.as_os_str(), &UnixDatagram::bind(&place).unwrap());
    let name = format!("netvale-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    told_at(format!("@{name}").as_ref(), &UnixDatagram::bind_addr(&address).unwrap());
}

/// Checks that a service manager listening at `place` gets all notifications, even from a sandboxed daemon.
fn told_at(place: &OsStr, manager: &UnixDatagram) {
    let dir = tempfile::tempdir().unwrap();
    manager.set_read_timeout(Some(LIMIT)).unwrap();
    let mut command = common::netvale();
    command.arg("--run-dir").arg(dir.path()).arg("up").stderr(Stdio::null());
    command.env("NOTIFY_SOCKET", place).env("WATCHDOG_USEC", "400000").env_remove("WATCHDOG_PID");
    let daemon = Guarded(command.spawn().unwrap().into());
    let mut said = [0; 64];
    let mut next = || {
        let n = manager.recv(&mut said).expect("the daemon says something");
        String::from_utf8_lossy(&said[..n]).into_owned()
    };
    let start = std::time::Instant::now();
    let words: Vec<_> = std::iter::repeat_with(|| next().trim().to_owned()).take(6).collect();
    assert_eq!(words.iter().filter(|word| *word == "WATCHDOG=1").count(), 5, "{words:?}");
    assert!(words.contains(&"READY=1".to_owned()));
    // The first of the five notifications arrives immediately, and each further notification half a period after the
    // previous notification.
    assert!(start.elapsed() >= Duration::from_millis(4 * 200));
    daemon.signal(rustix::process::Signal::TERM);
    daemon.output();
}
