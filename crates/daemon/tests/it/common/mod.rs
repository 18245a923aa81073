//! Daemons for tests, and their clients.
#![allow(dead_code)]

pub mod card;
pub mod ends;
pub mod heirs;
pub mod ports;
pub mod published;
pub mod users;

use std::ffi::OsString;
use std::ops::Deref;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use netvale::{Error, Interest, Options, Port};
use netvale_control::device::{DeviceReply, DeviceRequest};
use netvale_daemon::config::{Config, ConfigFile};
use netvale_harness::{Launch, Manager};
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

pub const LIMIT: Duration = Duration::from_secs(60);

/// A daemon in a separate process, which is this test program, running the ignored test [`play_the_daemon`]. At the end
/// of the test, the daemon must end cleanly on request, unless the test has ended it in another way.
pub struct Daemon(netvale_harness::TestDaemon);

impl Deref for Daemon {
    type Target = netvale_harness::TestDaemon;

    fn deref(&self) -> &netvale_harness::TestDaemon {
        &self.0
    }
}

impl Daemon {
    /// Starts a daemon whose configuration contains these lines.
    pub fn start(more: &str) -> Daemon {
        Daemon::start_as(0, folder(), more)
    }

    /// Starts a daemon as user `uid` (0: as this process's user), in a folder that other users can read.
    pub fn start_as(uid: u32, dir: TempDir, more: &str) -> Daemon {
        Daemon::start_with(dir, more, &[(DAEMON_UID, uid.into())])
    }

    /// Starts a daemon inside [`inside_as_root`]; `None` in the process outside.
    pub fn inside_as_root(more: &str) -> Option<Daemon> {
        inside_as_root().then(|| Daemon::start(more))
    }

    /// Starts a daemon inside [`inside_as_user`]; `None` in the process outside.
    pub fn inside_as_user(more: &str) -> Option<Daemon> {
        inside_as_user().then(|| Daemon::start(more))
    }

    /// Starts a daemon inside [`inside_with_xdp`], and creates the cable from `nva` to `nvb`; `None` in the process
    /// outside.
    pub fn with_cable(more: &str, queues: u32) -> Option<Daemon> {
        inside_with_xdp().then(|| {
            let d = Daemon::start(more);
            cable("nva", "nvb", queues);
            d
        })
    }

    /// Tries to start a daemon with these lines of configuration, which must fail. Returns the error.
    pub fn refused(more: &str) -> String {
        let dir = folder();
        netvale_daemon::run(config(dir.path(), more)).unwrap_err().to_string()
    }

    /// Starts a daemon in a separate PID namespace, as in a container.
    pub fn start_apart() -> Daemon {
        let by = &["unshare", "--pid", "--fork", "--kill-child"];
        Daemon::launch(folder(), None, launch_by(by, ""))
    }

    /// Starts a daemon that may not make any file longer than `bytes` bytes.
    pub fn start_with_file_limit(bytes: u64) -> Daemon {
        Daemon::start_with(folder(), "", &[(DAEMON_FILE_LIMIT, bytes)])
    }

    /// Like [`Daemon::start_as`], with a umask.
    pub fn start_with_umask(umask: u32, uid: u32, dir: TempDir, more: &str) -> Daemon {
        Daemon::start_with(dir, more, &[(DAEMON_UID, uid.into()), (DAEMON_UMASK, umask.into())])
    }

    /// Starts a daemon, with these numbers in the environment of its process.
    fn start_with(dir: TempDir, more: &str, numbers: &[(&'static str, u64)]) -> Daemon {
        let numbers: Vec<_> = numbers.iter().map(|(name, number)| (*name, number.to_string())).collect();
        let launch = launch(more).and(move |_, command| {
            command.envs(numbers.iter().cloned());
        });
        Daemon::launch(dir, None, launch)
    }

    /// Starts a daemon under a service manager, which restarts the daemon after each end.
    pub fn managed(more: &str) -> Daemon {
        Daemon::managed_in(folder(), more)
    }

    /// Like [`Daemon::managed`], in the folder `dir`.
    pub fn managed_in(dir: TempDir, more: &str) -> Daemon {
        Daemon::launch(dir, Some(Manager::new().unwrap()), launch(more))
    }

    fn launch(dir: TempDir, manager: Option<Manager>, launch: Launch) -> Daemon {
        Daemon(netvale_harness::TestDaemon::start_in(dir, launch, manager).unwrap())
    }

    /// Waits until the service manager has the daemon's state, ends the process with that signal, runs `meanwhile`, and
    /// lets the service manager start another process.
    pub fn is_restarted(&self, signal: Signal, meanwhile: impl FnOnce()) {
        self.0.restart(signal, meanwhile).unwrap();
    }

    pub fn is_killed(&self) {
        self.is_restarted(Signal::KILL, || ());
    }

    /// Waits until the service manager keeps the process's state, runs `busy`, which gives the process work, and kills
    /// the process. The result of `busy` is dropped before the next start.
    pub fn is_killed_while<T>(&self, busy: impl FnOnce() -> T) {
        self.0.is_kept().unwrap();
        let with = busy();
        self.0.end(Signal::KILL).unwrap();
        drop(with);
        self.0.start_again().unwrap();
    }

    /// Replaces the process by a successor. If a busy machine keeps a thread from pausing in time, the old process
    /// resumes, and another successor tries.
    pub fn is_succeeded(&self) {
        let succeeds = || {
            self.0.is_succeeded(|command| {
                command.env(TAKES_OVER, "1");
            })
        };
        assert!((0..20).any(|_| succeeds().unwrap()), "no successor could go on");
    }

    pub fn manager(&self) -> &Manager {
        self.0.manager().expect("it is managed")
    }

    pub fn options(&self) -> Options {
        Options { run_dir: Some(self.dir().into()), slots: 64, ..Options::default() }
    }

    pub fn open(&self, name: &str) -> Result<Port, Error> {
        Port::open_with(name, &self.options())
    }

    /// Opens several ports.
    #[track_caller]
    pub fn opened<const N: usize>(&self, names: [&str; N]) -> [Port; N] {
        names.map(|name| self.open(name).unwrap_or_else(|why| panic!("{name}: {why}")))
    }

    pub fn call(&self, method: &str, params: Value) -> Value {
        self.0.call(method, &params).unwrap()
    }

    /// Returns what `port.show` reports about a port; null if there is no such port.
    pub fn show(&self, port: &str) -> Value {
        self.call("port.show", json!({"port": port}))["result"].take()
    }

    pub fn notes(&self, port: &str) -> String {
        self.show(port)["notes"].to_string()
    }

    /// Returns the exported file. Applying this file must change nothing, and find `unchanged` ports.
    #[track_caller]
    pub fn exports(&self, unchanged: usize) -> String {
        let text = self.call("config.export", json!({}))["result"]["text"].as_str().unwrap().to_owned();
        let again = self.call("config.apply", json!({"text": text}))["result"].take();
        assert_eq!((&again["changes"], &again["unchanged"]), (&json!([]), &json!(unchanged)), "{text}");
        text
    }

    /// Returns the removed ports, each with the reason.
    pub fn evicted(&self) -> Value {
        self.call("port.evicted", json!({}))["result"].take()
    }

    /// Sets policies of a port.
    #[track_caller]
    pub fn set(&self, port: &str, policies: Value) {
        let reply = self.call("port.set", json!({"port": port, "set": policies}));
        assert!(reply["error"].is_null(), "{reply}");
    }

    /// Detaches a port from `vale0`.
    #[track_caller]
    pub fn detach(&self, port: &str) {
        let reply = self.call("port.detach", json!({"switch": "vale0", "port": port}));
        assert!(reply["error"].is_null(), "{reply}");
    }

    pub fn ports(&self) -> Vec<String> {
        let reply = self.call("port.list", json!({}));
        reply["result"].as_array().unwrap().iter().map(|p| p["name"].as_str().unwrap().to_owned()).collect()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let asked = self.0.call("shutdown", &json!({}));
        if self.0.id() == 0 || std::thread::panicking() {
            return;
        }
        // If the daemon had ended earlier, it would not have answered the request.
        let ended = self.0.wait().unwrap();
        assert!(ended.success(), "the daemon failed: {ended}, {asked:?}");
    }
}

const DAEMON_CONFIG: &str = "NETVALE_TEST_DAEMON_CONFIG";
const DAEMON_DIR: &str = "NETVALE_TEST_DAEMON_DIR";
const DAEMON_UID: &str = "NETVALE_TEST_DAEMON_UID";
const DAEMON_FILE_LIMIT: &str = "NETVALE_TEST_DAEMON_FILE_LIMIT";
const DAEMON_UMASK: &str = "NETVALE_TEST_DAEMON_UMASK";
const TAKES_OVER: &str = "NETVALE_TEST_TAKES_OVER";

fn folder() -> TempDir {
    netvale_harness::daemon::scratch("run").unwrap()
}

fn launch(more: &str) -> Launch {
    launch_by(&[], more)
}

/// Launches a daemon through another program.
fn launch_by(by: &'static [&str], more: &str) -> Launch {
    let more = more.to_owned();
    let own = std::env::current_exe().unwrap();
    let words = move |_: &Path| {
        let role = ["--exact", "common::play_the_daemon", "--nocapture", "--ignored"];
        let by = by.iter().map(|word| OsString::from(*word));
        by.chain([own.clone().into_os_string()]).chain(role.map(Into::into)).collect()
    };
    Launch::new(words).loud().and(move |dir, command| {
        command.env(DAEMON_DIR, dir).env(DAEMON_CONFIG, &more);
    })
}

/// Runs the daemon in the separate process of a [`Daemon`].
#[test]
#[ignore = "a role of other tests"]
fn play_the_daemon() {
    let (Ok(dir), Ok(more)) = (std::env::var(DAEMON_DIR), std::env::var(DAEMON_CONFIG)) else { return };
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    if let Some(umask) = number(DAEMON_UMASK) {
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(umask));
    }
    if let Ok(bytes) = std::env::var(DAEMON_FILE_LIMIT) {
        use rustix::process::{Resource, Rlimit, setrlimit};
        let most = Some(bytes.parse().unwrap());
        setrlimit(Resource::Fsize, Rlimit { current: most, maximum: most }).unwrap();
    }
    if let Some(uid) = number(DAEMON_UID).filter(|uid| *uid != 0) {
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
    let mut config = ConfigFile::parse(&text).unwrap().into_config();
    config.take_over = std::env::var_os(TAKES_OVER).is_some();
    config
}

/// Sends a netmap request as user `uid`. Returns the answer.
pub fn request(d: &Daemon, uid: u32, reqtype: u16, name: &str, body: &[(usize, u8)]) -> DeviceReply {
    let mut request = DeviceRequest { reqtype, name: name.into(), ..DeviceRequest::default() };
    body.iter().for_each(|(at, byte)| request.body[*at] = *byte);
    users::as_user(uid, || {
        let connection = netvale::raw::connect_to(Some(d.dir())).unwrap();
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

#[track_caller]
pub fn send(port: &mut Port, frame: &[u8]) {
    assert!(port.tx()[0].send(frame));
    port.tx()[0].sync();
}

/// Sends a frame, which must be the next frame that `to` receives.
#[track_caller]
pub fn crosses(from: &mut Port, to: &mut Port, frame: &[u8]) {
    send(from, frame);
    assert_eq!(receive(to), frame);
}

#[track_caller]
pub fn receive(port: &mut Port) -> Vec<u8> {
    assert!(port.wait(Interest::Rx, Some(LIMIT)).unwrap(), "no frame came");
    let mut frame = [0; 4096];
    let n = port.rx().iter_mut().find_map(|ring| ring.recv(&mut frame)).unwrap();
    port.rx().iter_mut().for_each(|ring| {
        let _ = ring.sync();
    });
    frame[..n].to_vec()
}

/// Waits until a descriptor is readable, for at most `limit`. Returns whether it is readable.
pub fn is_readable(fd: std::os::fd::BorrowedFd<'_>, limit: Duration) -> bool {
    netvale_mem::notify::nap(fd, limit)
}

/// Runs the calling test again under unshare(1) with these options, with separate interfaces. Returns true in the
/// process inside the namespaces.
pub fn inside(options: &[&str]) -> bool {
    netvale_harness::net::inside(options).unwrap_or_else(|why| panic!("{why}"))
}

/// Like [`inside`] as root, in a network namespace. If this process is not root, or there are no TAPs, reports
/// *skipped*.
pub fn inside_as_root() -> bool {
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/net/tun").exists() {
        netvale_harness::skip("needs root and /dev/net/tun");
        return false;
    }
    inside(&["--net"])
}

/// Like [`inside`] as root, in a network namespace. If this process is not root, reports *skipped*.
pub fn inside_with_xdp() -> bool {
    is_root("XDP programs need root") && inside(&["--net"])
}

/// Whether this process is root. If not, reports *skipped* with the reason `why`.
pub fn is_root(why: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        netvale_harness::skip(why);
    }
    is_root
}

/// Like [`inside`] as any user, in a network namespace. If the right to create a namespace is missing, or there are no
/// TAPs, reports *skipped*.
pub fn inside_as_user() -> bool {
    const OPTIONS: [&str; 3] = ["--net", "--user", "--map-root-user"];
    let allowed = Command::new("unshare").args(OPTIONS).arg("true").output().is_ok_and(|o| o.status.success());
    if !allowed || !Path::new("/dev/net/tun").exists() {
        netvale_harness::skip("needs /dev/net/tun and the right to make network namespaces");
        return false;
    }
    inside(&OPTIONS)
}

/// Runs ip(8) with the words of `line`. The command must succeed.
pub fn ip(line: &str) {
    netvale_harness::net::ip(line).unwrap_or_else(|why| panic!("{why}"));
}

/// Creates both ends of a cable, brings them up, and turns off the stack's own multicasts on them.
pub fn cable(a: &str, b: &str, queues: u32) {
    netvale_harness::net::cable(a, b, queues).unwrap_or_else(|why| panic!("{why}"));
}

/// Returns frames of many lengths. There are more frames than a ring has slots.
pub fn frames() -> Vec<Vec<u8>> {
    let body = |i: u32| (0..14 + (i * 37) % 1500).map(move |k| (k + i) as u8);
    (0..3000u32)
        .map(|i| {
            let mut frame: Vec<u8> = body(i).collect();
            frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
            // An EtherType that the host's stack ignores.
            frame[12..14].copy_from_slice(&[0x88, 0xb5]);
            frame
        })
        .collect()
}

/// Sends all frames as room permits, while `other` receives them. Returns the received frames. The number of frames in
/// flight is limited to the number for which a veth has room without being polled.
pub fn carry(from: &mut Port, other: &mut Port, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut sent = 0;
    let mut came = Vec::new();
    let mut place = vec![0; 16_384];
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
    // This releases the frames that were read.
    let _ = other.rx()[0].sync();
    came
}

/// Returns all counters.
pub fn stats(d: &Daemon) -> Value {
    d.call("stats.all", json!({}))["result"].take()
}

/// Returns the number of frames on a port's rings, `in` or `out`.
pub fn passed(port: &Value, way: &str) -> u64 {
    port[way].as_array().unwrap().iter().map(|ring| ring["frames"].as_u64().unwrap()).sum()
}

/// Returns the sum of a counter over the rings of a port in that direction, `in` or `out`.
pub fn sum(shown: &Value, dir: &str, counter: &str) -> u64 {
    let rings = shown["rings"].as_array().unwrap().iter().filter(|ring| ring["dir"] == dir);
    rings.map(|ring| ring[counter].as_u64().unwrap()).sum()
}

/// Returns the next pseudo-random number (xorshift).
pub fn noise(state: &mut u64) -> u32 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 16) as u32
}

/// Waits until the only worker is idle and asleep.
pub fn falls_asleep(d: &Daemon) {
    let awake = || -> u64 {
        let worker = stats(d)["workers"][0].take();
        worker["busy_ns"].as_u64().unwrap() + worker["polled_ns"].as_u64().unwrap()
    };
    until("the worker sleeps", || {
        let before = awake();
        let start = std::time::Instant::now();
        while start.elapsed() < std::time::Duration::from_millis(20) {
            std::thread::yield_now();
        }
        awake() == before
    });
}
