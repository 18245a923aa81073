//! A daemon in this process, and clients of it.
#![allow(dead_code)]

pub mod heirs;
pub mod killed;
pub mod ports;
pub mod users;

use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use netvale::{Error, Interest, Options, Port};
use netvale_control::device::{DeviceReply, DeviceRequest};
use netvale_daemon::config::{Config, File};
use serde_json::{Value, json};

pub const LIMIT: Duration = Duration::from_secs(60);

pub struct Daemon {
    pub dir: tempfile::TempDir,
    /// It runs in this process, or in one of its own.
    pub process: u32,
    thread: Option<JoinHandle<()>>,
}

impl Daemon {
    pub fn start(more: &str) -> Daemon {
        let dir = tempfile::tempdir().unwrap();
        let config = config(dir.path(), more);
        let thread = std::thread::spawn(move || netvale_daemon::run(config).unwrap());
        Daemon { dir, process: std::process::id(), thread: Some(thread) }.answers()
    }

    /// One in a process of its own, so that what it has can be counted: the test program's, whose ignored test `role` calls [`play_the_daemon`].
    pub fn start_apart(role: &str, more: &str) -> Daemon {
        Daemon::start_as(role, 0, tempfile::tempdir().unwrap(), more)
    }

    /// The same as another user, in a folder that users can look into.
    pub fn start_as(role: &str, uid: u32, dir: tempfile::TempDir, more: &str) -> Daemon {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", role, "--nocapture", "--ignored"]).stdout(Stdio::null());
        let mut child = command
            .env(DAEMON_DIR, dir.path())
            .env(DAEMON_CONFIG, more)
            .env(DAEMON_UID, uid.to_string())
            .spawn()
            .unwrap();
        let process = child.id();
        let thread = std::thread::spawn(move || assert!(child.wait().unwrap().success(), "the daemon failed"));
        Daemon { dir, process, thread: Some(thread) }.answers()
    }

    /// One whose process is somebody else's to start and to end.
    pub fn of_process(dir: tempfile::TempDir, process: u32) -> Daemon {
        Daemon { dir, process, thread: Some(std::thread::spawn(|| ())) }
    }

    fn answers(self) -> Daemon {
        let is_alive = || self.thread.as_ref().is_some_and(|thread| !thread.is_finished());
        assert!(netvale_harness::daemon::ready(self.dir.path(), LIMIT, is_alive), "the daemon does not answer");
        self
    }

    pub fn path(&self, file: &str) -> PathBuf {
        self.dir.path().join(file)
    }

    pub fn options(&self) -> Options {
        Options { run_dir: Some(self.dir.path().into()), slots: 64, ..Options::default() }
    }

    pub fn open(&self, name: &str) -> Result<Port, Error> {
        Port::open_with(name, &self.options())
    }

    pub fn call(&self, method: &str, params: Value) -> Value {
        self.call_if_alive(method, params).unwrap()
    }

    /// The same, of a daemon that may have ended.
    pub fn call_if_alive(&self, method: &str, params: Value) -> std::io::Result<Value> {
        let mut stream = UnixStream::connect(self.path("control.sock"))?;
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        writeln!(stream, "{request}")?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    }

    pub fn ports(&self) -> Vec<String> {
        let reply = self.call("port.list", json!({}));
        reply["result"].as_array().unwrap().iter().map(|p| p["name"].as_str().unwrap().to_owned()).collect()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.call_if_alive("shutdown", json!({}));
        let ended = self.thread.take().unwrap().join();
        if !std::thread::panicking() {
            ended.unwrap();
        }
    }
}

pub const DAEMON_DIR: &str = "NETVALE_TEST_DAEMON_DIR";
pub const DAEMON_CONFIG: &str = "NETVALE_TEST_DAEMON_CONFIG";
const DAEMON_UID: &str = "NETVALE_TEST_DAEMON_UID";
const TAKES_OVER: &str = "NETVALE_TEST_TAKES_OVER";

/// What the process of [`Daemon::start_apart`] does; nothing in any other.
pub fn play_the_daemon() {
    let (Ok(dir), Ok(more)) = (std::env::var(DAEMON_DIR), std::env::var(DAEMON_CONFIG)) else { return };
    if let Some(uid) = std::env::var(DAEMON_UID).ok().and_then(|uid| uid.parse().ok()).filter(|uid| *uid != 0) {
        users::become_user(uid);
    }
    if more.contains("log_lines") {
        use tracing_subscriber::layer::SubscriberExt;
        use tracing_subscriber::util::SubscriberInitExt;
        let file = std::fs::File::create(Path::new(&dir).join("log")).unwrap();
        let log = tracing_subscriber::fmt().with_ansi(false).with_writer(std::sync::Mutex::new(file)).finish();
        log.with(netvale_daemon::LogLimit).init();
    }
    netvale_daemon::run(config(Path::new(&dir), &more)).unwrap();
}

fn config(dir: &Path, more: &str) -> Config {
    let sandbox = if more.contains("sandbox = ") { "" } else { "sandbox = false\n" };
    let text = format!("run_dir = {dir:?}\n{sandbox}{more}");
    let mut config = File::parse(&text).unwrap().into_config().unwrap();
    config.take_over = std::env::var_os(TAKES_OVER).is_some();
    config
}

/// What a netmap request of that user's is answered.
pub fn request(d: &Daemon, uid: u32, reqtype: u16, name: &str, body: &[(usize, u8)]) -> DeviceReply {
    let mut request = DeviceRequest { reqtype, name: name.into(), ..DeviceRequest::default() };
    body.iter().for_each(|(at, byte)| request.body[*at] = *byte);
    users::as_user(uid, || {
        let connection = netvale::raw::connect_to(Some(d.dir.path())).unwrap();
        netvale::raw::request(connection.as_fd(), &request).unwrap()
    })
}

pub fn until(what: &str, done: impl FnMut() -> bool) {
    assert!(netvale_harness::until(LIMIT, Duration::ZERO, done), "time is up: {what}");
}

pub fn frame(to: u8, from: u8, tag: u8) -> [u8; 60] {
    let mut f = [tag; 60];
    f[..6].copy_from_slice(&if to == 255 { [255; 6] } else { [2, 0, 0, 0, 0, to] });
    f[6..12].copy_from_slice(&[2, 0, 0, 0, 0, from]);
    f
}

pub fn send(port: &mut Port, frame: &[u8]) {
    assert!(port.tx()[0].send(frame));
    port.tx()[0].sync();
}

pub fn receive(port: &mut Port) -> Vec<u8> {
    assert!(port.wait(Interest::Rx, Some(LIMIT)).unwrap(), "no frame came");
    let mut frame = [0; 4096];
    let n = port.rx()[0].recv(&mut frame).unwrap();
    let _ = port.rx()[0].sync();
    frame[..n].to_vec()
}

/// Waits until a descriptor is readable. Returns whether it is.
pub fn is_readable(fd: std::os::fd::BorrowedFd<'_>, limit: Duration) -> bool {
    netvale_mem::notify::nap(fd, limit)
}

/// Runs the test of that name again under unshare(1) with these options: there, the interfaces are nobody else's. Returns whether this process is
/// the one inside.
pub fn inside(name: &str, options: &[&str]) -> bool {
    netvale_harness::net::inside(name, options).unwrap_or_else(|why| panic!("{why}"))
}

/// Runs ip(8), which must succeed.
pub fn ip(line: &str) {
    netvale_harness::net::ip(line).unwrap_or_else(|why| panic!("{why}"));
}

/// Two ends of a cable, up and quiet: the stack's own multicasts stay away.
pub fn cable(a: &str, b: &str, queues: u32) {
    netvale_harness::net::cable(a, b, queues).unwrap_or_else(|why| panic!("{why}"));
}

/// Frames of many lengths, and more of them than a ring has slots.
pub fn frames() -> Vec<Vec<u8>> {
    let body = |i: u32| (0..14 + (i * 37) % 1500).map(move |k| (k + i) as u8);
    (0..3000u32)
        .map(|i| {
            let mut frame: Vec<u8> = body(i).collect();
            frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
            // No protocol that a stack knows.
            frame[12..14].copy_from_slice(&[0x88, 0xb5]);
            frame
        })
        .collect()
}

/// Sends all, as room comes, while `other` receives. Returns what came. There are never more under way than a veth holds that is not looked at.
pub fn carry(from: &mut Port, other: &mut Port, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let (mut sent, mut came, mut place) = (0, Vec::new(), vec![0; 16_384]);
    until("all frames", || {
        while frames.get(sent).is_some_and(|frame| sent < came.len() + 200 && from.tx()[0].send(frame)) {
            sent += 1;
        }
        from.tx()[0].sync();
        let _ = other.rx()[0].sync();
        while let Some(n) = other.rx()[0].recv(&mut place) {
            came.push(place[..n].to_vec());
        }
        came.len() == frames.len()
    });
    // What was read is given back.
    let _ = other.rx()[0].sync();
    came
}

/// The only worker has nothing to do, and notices.
pub fn falls_asleep(d: &Daemon) {
    let awake = || -> u64 {
        let stats: Value = d.call("stats", json!({}));
        let worker = &stats["result"]["workers"][0];
        worker["busy_ns"].as_u64().unwrap() + worker["polled_ns"].as_u64().unwrap()
    };
    until("the worker sleeps", || {
        let (before, start) = (awake(), std::time::Instant::now());
        while start.elapsed() < std::time::Duration::from_millis(20) {
            std::thread::yield_now();
        }
        awake() == before
    });
}
