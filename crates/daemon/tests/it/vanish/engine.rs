//! Walks a table of states. For each state, and each way to vanish, a peer in a separate process enters the state and
//! vanishes. After that, the next peer must be served completely, and two other programs on the same switch
//! (bystanders) must not be affected. At the end, the daemon, which is also a separate process, must have no more
//! descriptors, threads and shared mappings than at the start.

use std::collections::BTreeSet;
use std::fs::DirEntry;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use netvale::{Interest, Port};
use rustix::net::{AddressFamily, Shutdown};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

use crate::common::{Daemon, LIMIT, frame, receive, send, until};

/// A state: its name, the name of the state before it ("" for the start), and the step from that state to this one.
pub type State<P> = (&'static str, &'static str, fn(&mut P));

/// A peer of the daemon, in a state of its protocol.
pub trait Peer: Sized + 'static {
    /// Name of the protocol.
    const NAME: &'static str;
    const STATES: &'static [State<Self>];
    /// The state in which the peer can use the port completely.
    const SERVED: &'static str;

    /// Attaches the peer's port.
    fn attach(_d: &Daemon) {}

    /// Creates a peer in its initial state.
    fn new(dir: &Path) -> Self;

    /// Uses the port. The default implementation sends a frame to the port `local`, and receives one from it.
    fn exchange(mut self, local: &mut Port) {
        let there = frame(255, 9, 77);
        let back = frame(9, 8, 78);
        until("a frame comes from the peer", || {
            self.send(&there);
            let _ = local.wait(Interest::Rx, Some(Duration::from_millis(10))).unwrap();
            frames_at(local).contains(&there.to_vec())
        });
        until("a frame comes to the peer", || {
            offer(local, &back);
            let start = Instant::now();
            let mut came = false;
            while !came && start.elapsed() < Duration::from_millis(10) {
                came = self.frames().contains(&back.to_vec());
                std::thread::yield_now();
            }
            came
        });
    }

    fn send(&mut self, _frame: &[u8]) {}

    /// Takes and returns the frames that the peer received since the last call.
    fn frames(&mut self) -> Vec<Vec<u8>> {
        Vec::new()
    }
}

/// Returns a frame that is addressed to the program at `local`, whose ring may fill up, and not to the bystanders,
/// whose rings must not fill up.
pub fn traffic(tag: u8) -> [u8; 60] {
    frame(8, 9, tag)
}

/// Sends a frame if there is room, and drops it otherwise.
pub fn offer(port: &mut Port, frame: &[u8]) {
    let tx = &mut port.tx()[0];
    let _ = tx.send(frame);
    tx.sync();
}

/// Takes the received frames of a program's port.
pub fn frames_at(port: &mut Port) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let mut place = [0; 4096];
    for ring in port.rx() {
        let _ = ring.sync();
        while let Some(n) = ring.recv(&mut place) {
            frames.push(place[..n].to_vec());
        }
        let _ = ring.sync();
    }
    frames
}

fn reach<P: Peer>(peer: &mut P, state: &str) {
    if let Some((_, from, step)) = P::STATES.iter().find(|(name, ..)| *name == state) {
        reach(peer, from);
        step(peer);
    } else {
        assert_eq!(state, "", "there is no such state");
    }
}

/// How a peer vanishes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    /// The peer closes all its descriptors.
    Closes,
    /// The peer gets SIGKILL: the kernel closes all its descriptors.
    Killed,
    /// The peer sends nothing more, and keeps all its descriptors open.
    FallsSilent,
}

/// How long the next peer may have to wait. On a busy machine, a worker with a held batch takes almost as long.
const BOUND: Duration = Duration::from_secs(15);

/// Names of the threads of a daemon with two workers. A thread that has not run yet still has the name of the thread
/// that created it.
const THREADS: [&str; 5] = ["netvale-retire", "netvale-unmap", "netvale-w0", "netvale-w1", "netvale-watch"];

/// Tests every state of the protocol with every way to vanish.
pub fn walk<P: Peer>() {
    let d = Daemon::start("workers = 2");
    P::attach(&d);
    let others = Bystanders::start(&d);
    let mut local = d.open("vale0:local").unwrap();
    serve::<P>(d.dir(), &mut local);
    let mut before = Counts::of(&d);
    until("all threads have their names", || {
        before = Counts::of(&d);
        THREADS.iter().all(|name| before.names.contains(*name))
    });
    for (state, ..) in P::STATES {
        for how in [How::Closes, How::Killed, How::FallsSilent] {
            let victim = Victim::start::<P>(&d, state, how);
            let gone = Instant::now();
            let seen = others.passed();
            serve::<P>(d.dir(), &mut local);
            let took = gone.elapsed();
            assert!(took < BOUND, "{}: {state}, {how:?}: the next one waited {took:?}", P::NAME);
            others.go_on(seen);
            drop(victim);
        }
    }
    let is_as_before = || Counts::of(&d).within(&before);
    assert!(netvale_harness::until(LIMIT, Duration::ZERO, is_as_before), "{:?} after {before:?}", Counts::of(&d));
    others.stop();
}

/// Runs a peer until it has used the port.
pub fn serve<P: Peer>(dir: &Path, local: &mut Port) {
    let mut peer = P::new(dir);
    reach(&mut peer, P::SERVED);
    peer.exchange(local);
}

/// Numbers of the resources that the daemon uses.
#[derive(Debug)]
struct Counts {
    descriptors: usize,
    threads: usize,
    /// Names of the threads, except temporary threads, which may still run after a peer has left.
    names: BTreeSet<String>,
    shared: usize,
}

impl Counts {
    fn of(d: &Daemon) -> Counts {
        let of = |what: &str| format!("/proc/{}/{what}", d.id());
        let entries = |what: &str| std::fs::read_dir(of(what)).unwrap();
        let name = |task: DirEntry| std::fs::read_to_string(task.path().join("comm")).ok();
        let names = entries("task").flatten().filter_map(name).map(|name| name.trim().to_owned());
        let names: Vec<_> =
            names.filter(|name| !["netvale-closing", "netvale-holes"].contains(&name.as_str())).collect();
        let maps = std::fs::read_to_string(of("maps")).unwrap();
        let is_shared = |line: &&str| line.split(' ').nth(1).is_some_and(|rights| rights.ends_with('s'));
        let shared = maps.lines().filter(is_shared).count();
        let threads = names.len();
        Counts { descriptors: entries("fd").count(), threads, names: names.into_iter().collect(), shared }
    }

    fn within(&self, before: &Counts) -> bool {
        self.descriptors <= before.descriptors
            && self.threads <= before.threads
            && self.names == before.names
            && self.shared <= before.shared
    }
}

/// A vanished peer. Its remaining resources are released when this value is dropped.
struct Victim(Child);

impl Victim {
    fn start<P: Peer>(d: &Daemon, state: &str, how: How) -> Victim {
        let mut child = netvale_harness::role("vanish::role_of_a_victim")
            .unwrap()
            .env("VICTIM_DIR", d.dir())
            .envs([("VICTIM_PEER", P::NAME), ("VICTIM_STATE", state), ("VICTIM_HOW", &format!("{how:?}"))])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut victim = Victim(child);
        let has_gone = lines.map_while(Result::ok).any(|line| line.contains(GONE));
        assert!(has_gone, "{}: {state}: it is not reached", P::NAME);
        if how == How::Killed {
            victim.end();
        }
        victim
    }

    fn end(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        self.end();
    }
}

/// The message that the victim prints after it has vanished, or when it waits to be killed.
const GONE: &str = "this peer has gone";

/// Returns what a victim process must do: directory, protocol, state, way to vanish. Returns `None` in a process that
/// is not a victim.
pub fn asked() -> Option<[String; 4]> {
    let all = ["DIR", "PEER", "STATE", "HOW"].map(|what| std::env::var(format!("VICTIM_{what}")));
    let [Ok(dir), Ok(peer), Ok(state), Ok(how)] = all else { return None };
    Some([dir, peer, state, how])
}

/// Runs the victim if the request is for a peer of type `P`.
pub fn vanish<P: Peer>([dir, peer, state, how]: &[String; 4]) {
    if peer != P::NAME {
        return;
    }
    let mut peer = Some(P::new(Path::new(dir)));
    peer.iter_mut().for_each(|peer| reach(peer, state));
    match how.as_str() {
        "Closes" => drop(peer.take()),
        "FallsSilent" => own_sockets().iter().for_each(|fd| _ = rustix::net::shutdown(fd, Shutdown::Write)),
        _ => {}
    }
    println!("{GONE}");
    // Wait until the parent test has finished.
    let _ = std::io::stdin().read(&mut [0]);
}

/// Returns duplicates of all Unix sockets of this process.
fn own_sockets() -> Vec<OwnedFd> {
    let own = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
    let numbers =
        std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let numbers: Vec<i32> = numbers.collect();
    let copies = numbers.into_iter().filter_map(|n| pidfd_getfd(&own, n, PidfdGetfdFlags::empty()).ok());
    copies.filter(|fd| rustix::net::sockopt::socket_domain(fd) == Ok(AddressFamily::UNIX)).collect()
}

/// Two programs that continuously exchange frames. Their frames are flooded, and thus also reach the peers that vanish.
struct Bystanders {
    over: Arc<AtomicBool>,
    passed: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Bystanders {
    fn start(d: &Daemon) -> Bystanders {
        let [mut a, mut b] = d.opened(["vale0:a", "vale0:b"]);
        let over = Arc::<AtomicBool>::default();
        let passed = Arc::<AtomicU64>::default();
        let ends = Arc::clone(&over);
        let counts = Arc::clone(&passed);
        let run = move || {
            for i in (0..=255).cycle() {
                let sent = Instant::now();
                send(&mut a, &frame(255, 1, i));
                // Frames of other peers arrive between the bystanders' frames.
                until("the bystander's frame", || receive(&mut b) == frame(255, 1, i));
                assert!(sent.elapsed() < BOUND, "a bystander waited {:?}", sent.elapsed());
                counts.fetch_add(1, Ordering::Relaxed);
                if ends.load(Ordering::Relaxed) {
                    return;
                }
                // At one frame per millisecond, the machine has time for other work.
                std::thread::park_timeout(Duration::from_millis(1));
            }
        };
        Bystanders { over, passed, thread: Some(std::thread::spawn(run)) }
    }

    fn passed(&self) -> u64 {
        self.passed.load(Ordering::Relaxed)
    }

    /// Waits until more than `seen` frames have passed between the bystanders.
    fn go_on(&self, seen: u64) {
        until("the bystanders go on", || {
            self.passed() > seen || self.thread.as_ref().is_none_or(JoinHandle::is_finished)
        });
        assert!(self.thread.as_ref().is_some_and(|thread| !thread.is_finished()), "a bystander has lost something");
    }

    fn stop(mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

impl Drop for Bystanders {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// Returns the path of a socket in the daemon's run directory.
pub fn socket_in(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.sock"))
}

/// Writes bytes, and ignores the error if the reader has closed the connection.
pub fn say(mut socket: impl Write, bytes: &[u8]) {
    let _ = socket.write_all(bytes);
}
