//! A daemon with a user of its own, started by root with `--user`, or by the service manager as that user.

use crate::common;
use crate::common::confinement;
use crate::common::up;

use std::collections::BTreeSet;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::{netvale, stderr, stdout};
use netvale_harness::net::{cable, inside, ip};
use up::{Up, until};

/// A user ID that no account of the system has.
const USER: u32 = 70_300;
/// Another user ID that no account of the system has.
const OTHER: u32 = 70_301;

fn is_root() -> bool {
    common::is_root("only root can become another user")
}

fn up_as_root(args: &[&str]) -> Option<Up> {
    is_root().then(|| Up::start(args))
}

/// Creates a capture to replay: one broadcast frame.
fn capture(up: &Up) -> String {
    let file = up.path("in.pcap");
    let user = Some(USER);
    let header = [0xa1b2_c3d4u32, 4 << 16 | 2, 0, 0, 65_535, 1, 0, 0, 60, 60];
    let mut bytes: Vec<u8> = header.iter().flat_map(|word| word.to_ne_bytes()).collect();
    bytes.extend([0xff; 6]);
    bytes.extend([2, 0, 0, 0, 0, 9, 0x88, 0xb5]);
    bytes.resize(24 + 16 + 60, 0);
    std::fs::write(&file, bytes).unwrap();
    chown(&file, user, user).unwrap();
    file.display().to_string()
}

/// Objective: every thread, of any kind of port, is confined and has the daemon's user; ports of all kinds work: frames
/// reach a capture file, a TAP and an interface; at the end the daemon removes its sockets.
#[test]
fn every_thread_is_confined() {
    if !is_root() || !inside(&["--net"]).unwrap_or_else(|why| panic!("{why}")) {
        return;
    }
    cable("nva", "nvb", 1).unwrap_or_else(|why| panic!("{why}"));
    let up = Up::start(&["--user", &USER.to_string(), "--workers", "2"]);
    let [capture, written, machines] =
        [capture(&up), up.path("out.pcap").display().to_string(), up.dir().display().to_string()];
    for port in [
        "vale0 tap:nv0".to_owned(),
        "vale0 netmap:nva --host".to_owned(),
        format!("vale0 pcap:in={capture} --name in --loop --speed 1"),
        format!("vale0 pcap:out={written} --name out"),
        format!("vale0 vhost:{machines}/vh"),
        format!("vale1 virtio:{machines}/vh"),
        format!("vale1 ptnet:{machines}/pt"),
        format!("vale1 ptnet:{machines}/published --vfio-user"),
        format!("vale1 e1000:{machines}/e1"),
        "vale1 null:".to_owned(),
        "vale1 echo:".to_owned(),
    ] {
        stdout(&up.run(&format!("attach {port}")));
    }
    ip("link set nv0 up").unwrap_or_else(|why| panic!("{why}"));
    stdout(&up.run("pkt-gen -i vale0:a -f tx -n 100"));
    until("frames leave through the TAP", || up.frames("vale0:nv0", "out") >= 100);
    until("frames leave through the interface", || up.frames("vale0:nva", "out") >= 100);
    stdout(&up.run("pkt-gen -i netmap:nvb -f tx -n 10"));
    until("frames come in through the interface", || up.frames("vale0:nva", "in") >= 10);
    let expected = "netvale netvale-watch netvale-unmap netvale-retire netvale-w0 netvale-w1 netvale-closing \
                    netvale-capture netvale-replay netvale-vhost netvale-virtio netvale-ptnet netvale-e1000";
    let expected: BTreeSet<_> = expected.split_whitespace().map(str::to_owned).collect();
    let mut threads = Vec::new();
    until("threads of all kinds", || {
        threads = confinement::threads(up.pid());
        threads.iter().map(|thread| thread.name.clone()).collect::<BTreeSet<_>>() == expected
    });
    for thread in &threads {
        thread.assert_confined();
        thread.assert_user(USER);
    }
    stdout(&up.run("detach vale0 out"));
    let of = std::fs::metadata(written).unwrap();
    assert!(of.uid() == USER && of.len() > 100 * 60);
    stdout(&up.run("stop"));
    until("the sockets are removed", || !up.path("control.sock").exists() && !up.path("attach.sock").exists());
}

/// Objective: root and the daemon's user may end a daemon that changed to that user; other users may not.
#[test]
fn its_user_is_trusted() {
    let Some(up) = up_as_root(&["--user", &USER.to_string(), "--socket-mode", "0666"]) else { return };
    std::fs::set_permissions(up.dir(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = Program::new();
    let refused = program.run_by(OTHER, up.dir(), &["stop"]);
    assert!(stderr(&refused).contains("only root and the daemon's own user"), "{}", stderr(&refused));
    stdout(&program.run_by(USER, up.dir(), &["stop"]));
}

/// Objective: the sockets have the requested owner and group, although the daemon's user could not set them.
#[test]
fn sockets_are_given_away() {
    let Some(up) = up_as_root(&["--user", &USER.to_string(), "--socket-group", &OTHER.to_string()]) else { return };
    let of = std::fs::metadata(up.path("control.sock")).unwrap();
    assert_eq!((of.uid(), of.gid(), of.mode() & 0o777), (USER, OTHER, 0o660));
    confinement::threads(up.pid()).iter().for_each(confinement::Thread::assert_confined);
}

/// A copy of the program in a folder where every user can start it.
struct Program(tempfile::TempDir);

impl Program {
    fn new() -> Program {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        netvale_system_tests::copy_program("netvale", &folder.path().join("netvale"));
        Program(folder)
    }

    /// Runs the program as the user `by`.
    fn run_by(&self, by: u32, dir: &Path, args: &[&str]) -> Output {
        let mut command = Command::new(self.0.path().join("netvale"));
        command.arg("--run-dir").arg(dir).args(args).uid(by).gid(by).stdin(Stdio::null());
        command.output().unwrap()
    }

    /// Runs the program as the user with the ID `by`, which cannot change to `user`. Returns its error.
    fn refusal(&self, by: u32, dir: &Path, user: &str) -> String {
        let output = self.run_by(by, dir, &["up", "--user", user]);
        assert!(!output.status.success());
        stderr(&output)
    }
}

/// Objective: an unknown user is named; a run directory that has other files, or belongs to another user, is not
/// changed; without root, the daemon cannot change its user. Each refusal has advice.
#[test]
fn bad_users_and_directories_are_refused_with_advice() {
    if !is_root() {
        return;
    }
    let program = Program::new();
    let folder = tempfile::tempdir().unwrap();
    let user = USER.to_string();
    let dir = folder.path();
    let precious = folder.path().join("precious");
    let said = program.refusal(0, dir, "no-such-user");
    assert!(said.contains("user no-such-user does not exist; check --user"), "{said}");
    std::fs::write(&precious, "x").unwrap();
    let said = program.refusal(0, dir, &user);
    assert!(said.contains("not the daemon's") && said.contains("chown -R 70300"), "{said}");
    assert_eq!(std::fs::metadata(dir).unwrap().uid(), 0);
    std::fs::remove_file(precious).unwrap();
    chown(dir, Some(OTHER), Some(OTHER)).unwrap();
    let said = program.refusal(0, dir, &user);
    assert!(said.contains("belongs to another user; give it"), "{said}");
    let said = program.refusal(OTHER, dir, &user);
    assert!(said.contains("start the daemon as root"), "{said}");
}

/// Objective: if the lock file in the user's own run directory is a symbolic link, the daemon does not start; if it is
/// a hard link, the linked file keeps its owner.
#[test]
fn a_planted_lock_is_refused() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let victim = tempfile::NamedTempFile::new().unwrap();
    std::os::unix::fs::symlink(victim.path(), folder.path().join("lock")).unwrap();
    chown(folder.path(), Some(USER), Some(USER)).unwrap();
    let said = Program::new().refusal(0, folder.path(), &USER.to_string());
    assert!(said.contains("cannot open") && said.contains("lock"), "{said}");
    std::fs::remove_file(folder.path().join("lock")).unwrap();
    std::fs::hard_link(victim.path(), folder.path().join("lock")).unwrap();
    let mut command = netvale();
    command.arg("--run-dir").arg(folder.path()).args(["up", "--user", &USER.to_string()]);
    let daemon = up::Guarded(command.stderr(Stdio::null()).spawn().unwrap().into());
    until("it listens", || folder.path().join("control.sock").exists());
    daemon.signal(rustix::process::Signal::TERM);
    daemon.output();
    assert_eq!(std::fs::metadata(victim.path()).unwrap().uid(), 0);
}
