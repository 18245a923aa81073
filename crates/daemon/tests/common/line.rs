//! Daemons in processes of their own, one of which goes on in the place of the one before.
#![allow(dead_code)]

use std::io::IoSliceMut;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use netvale_control::attach::{AttachReply, REPLY_LEN};
use netvale_control::succession::Succession;
use netvale_daemon::config::File;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, socket_with,
};

use crate::common::{self, Daemon, until};

const DIR: &str = "NETVALE_TEST_SUCCESSOR_DIR";

/// A daemon, and those that went on in its place. The ignored test `role` of the test program plays all of them.
pub struct Line {
    pub d: Daemon,
    role: &'static str,
    more: String,
    successors: Mutex<Vec<Guarded>>,
}

/// A process that ends with this.
struct Guarded(Child);

impl Drop for Guarded {
    fn drop(&mut self) {
        // Where the test has failed, nobody else ends it.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Line {
    pub fn start(role: &'static str, more: &str) -> Line {
        let d = Daemon::start_apart(role, more);
        Line { d, role, more: more.to_owned(), successors: Mutex::default() }
    }

    /// Another process takes the place of the running one, which then ends. On a machine that is so busy that a thread does
    /// not pause in time, the running one goes on, and another process tries it.
    pub fn take_over(&self) {
        let taken = (0..20).any(|_| self.tries_to_take_over());
        assert!(taken, "no successor could go on");
    }

    /// Something asks for all that the running daemon has, and hangs up once it has it: the daemon goes on.
    pub fn hangs_up(&self) {
        let (fd, mut bytes) = (self.hello(), vec![0; 1 << 17]);
        rustix::net::send(&fd, &Succession::Begin.encode(), SendFlags::NOSIGNAL).unwrap();
        loop {
            let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut parts = [IoSliceMut::new(&mut bytes)];
            let got = rustix::net::recvmsg(&fd, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC).unwrap().bytes;
            // The descriptors are closed with the buffer.
            assert!(got > 0, "the daemon ends");
            let said = String::from_utf8_lossy(&bytes[..got]);
            if said.ends_with("\"end\"") || said.contains("\"failed\"") {
                return;
            }
        }
    }

    /// A connection on which a successor may ask for everything.
    fn hello(&self) -> OwnedFd {
        let address = SocketAddrUnix::new(self.d.path("attach.sock")).unwrap();
        // Whatever version it is.
        let found = (1..100).find_map(|version| {
            let fd = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
            rustix::net::connect(&fd, &address).unwrap();
            rustix::net::send(&fd, &Succession::Hello(version).encode(), SendFlags::NOSIGNAL).unwrap();
            let mut reply = [0; REPLY_LEN];
            let (got, _) = rustix::net::recv(&fd, &mut reply, RecvFlags::empty()).unwrap();
            (AttachReply::decode(&reply[..got]).unwrap().status == 0).then_some(fd)
        });
        found.expect("a version")
    }

    fn tries_to_take_over(&self) -> bool {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", self.role, "--nocapture", "--ignored"]).stdout(Stdio::null());
        command.env(DIR, self.d.dir.path()).env("NETVALE_TEST_DAEMON_CONFIG", &self.more);
        let (mut next, mut goes_on) = (Guarded(command.spawn().unwrap()), false);
        let mut successors = self.successors.lock().unwrap();
        let mut has_ended = || match successors.last_mut() {
            Some(last) => last.0.try_wait().unwrap().map(|status| assert!(status.success())).is_some(),
            None => !std::path::Path::new(&format!("/proc/{}", self.d.process)).exists(),
        };
        until("the one before, or the successor, ends", || {
            goes_on = has_ended();
            goes_on || next.0.try_wait().unwrap().is_some()
        });
        if goes_on {
            successors.push(next);
        }
        goes_on
    }

    /// How many went on.
    pub fn count(&self) -> usize {
        self.successors.lock().unwrap().len()
    }
}

/// What the processes do; nothing in any other.
pub fn play() {
    let (Ok(dir), Ok(more)) = (std::env::var(DIR), std::env::var("NETVALE_TEST_DAEMON_CONFIG")) else {
        return common::play_the_daemon();
    };
    let text = format!("run_dir = {dir:?}\nsandbox = false\n{more}");
    let mut config = File::parse(&text).unwrap().into_config().unwrap();
    config.take_over = true;
    netvale_daemon::run(config).unwrap();
}
