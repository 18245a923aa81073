//! Attacks on the daemon's sockets: descriptors that block the thread that closes them, very many connections, endless
//! frames.

use crate::common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use common::users::{as_user, folder_of};
use common::{Daemon, stats, until};
use netvale_abi::slot::NS_MOREFRAG;
use rustix::net::SendFlags;
use rustix::process::Signal;
use serde_json::json;

const USER: u32 = 70_001;

/// Creates a TCP connection whose last close(2) blocks (linger), because its peer never reads. Returns the connection
/// and its peer.
fn lingering() -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let peer = listener.accept().unwrap().0;
    rustix::net::sockopt::set_socket_linger(&socket, Some(Duration::from_secs(60))).unwrap();
    socket.set_nonblocking(true).unwrap();
    while socket.write(&[0; 65_536]).is_ok() {}
    (socket.into(), peer)
}

fn pass(to: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
    netvale_fdio::send(to, bytes, fds, SendFlags::empty()).unwrap();
}

/// Returns a socket whose receive queue contains a lingering descriptor, and this process's copies of the other ends.
fn loaded(peers: &mut Vec<TcpStream>) -> (UnixStream, (UnixStream, OwnedFd)) {
    let (inner, outer) = UnixStream::pair().unwrap();
    let (fd, peer) = lingering();
    pass(outer.as_fd(), b"x", &[fd.as_fd()]);
    peers.push(peer);
    (inner, (outer, fd))
}

/// A stopped daemon. When this value is dropped, the daemon continues, and then finds all messages that were sent while
/// it was stopped.
struct Stopped<'a>(&'a Daemon);

impl Stopped<'_> {
    fn new(d: &Daemon) -> Stopped<'_> {
        let stopped = Stopped(d);
        stopped.signal(Signal::STOP);
        let tasks = format!("/proc/{}/task", d.id());
        let is_stopped = |task: std::io::Result<std::fs::DirEntry>| {
            task.and_then(|task| std::fs::read_to_string(task.path().join("status")))
                .is_ok_and(|s| s.contains("State:\tT"))
        };
        // Wait for all threads, each of which stops when it next returns from the kernel.
        until("it is stopped", || std::fs::read_dir(&tasks).unwrap().all(is_stopped));
        stopped
    }

    fn signal(&self, which: Signal) {
        let process = rustix::process::Pid::from_raw(self.0.id() as i32).unwrap();
        rustix::process::kill_process(process, which).unwrap();
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.signal(Signal::CONT);
    }
}

/// Whether the daemon answers a request on this connection.
fn is_served(mut stream: &UnixStream) -> bool {
    stream.set_read_timeout(Some(common::LIMIT)).unwrap();
    let asked = writeln!(stream, "{}", json!({"jsonrpc": "2.0", "id": 1, "method": "version"}));
    asked.is_ok() && matches!(stream.read(&mut [0; 1024]), Ok(1..))
}

/// Checks that the daemon answers promptly, which shows that it does not wait for a blocking close.
fn is_prompt(d: &Daemon) {
    let start = Instant::now();
    assert!(d.call("version", json!({}))["result"].is_object());
    assert!(start.elapsed() < Duration::from_secs(20), "it waited for {:?}", start.elapsed());
}

/// Objective: descriptors whose close blocks hold up no other client, whether one or many are passed, and whichever
/// socket they are passed over; if they are passed over the control socket, the connection ends.
#[test]
fn descriptors_that_linger_hold_up_no_other_client() {
    let d = Daemon::start("");
    let mut peers = Vec::new();
    for count in [1, 2, 3, 8] {
        let control = UnixStream::connect(d.path("control.sock")).unwrap();
        let attach = netvale::raw::connect_to(Some(d.dir())).unwrap();
        for to in [control.as_fd(), attach.as_fd()] {
            let (fds, others): (Vec<OwnedFd>, Vec<TcpStream>) = (0..count).map(|_| lingering()).unzip();
            let borrowed: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
            // This process closes its copies first, because the process that closes the last copy waits.
            let stopped = Stopped::new(&d);
            pass(to, b"{}\n", &borrowed);
            drop(fds);
            drop(stopped);
            peers.extend(others);
        }
        // If a socket is closed, the descriptors in its receive queue are closed as well.
        let (inner, others) = loaded(&mut peers);
        let stopped = Stopped::new(&d);
        let other = netvale::raw::connect_to(Some(d.dir())).unwrap();
        pass(other.as_fd(), b"{}\n", &[inner.as_fd()]);
        drop((inner, others));
        // The same with an empty message, which looks like a hang-up.
        let (inner, others) = loaded(&mut peers);
        let last = netvale::raw::connect_to(Some(d.dir())).unwrap();
        pass(last.as_fd(), b"", &[inner.as_fd()]);
        drop((inner, others, last));
        let gone = UnixStream::connect(d.path("control.sock")).unwrap();
        for _ in 0..2 {
            let (fd, peer) = lingering();
            pass(gone.as_fd(), b"{}\n", &[fd.as_fd()]);
            drop(fd);
            peers.push(peer);
        }
        drop(gone);
        drop(stopped);
        is_prompt(&d);
        control.set_read_timeout(Some(common::LIMIT)).unwrap();
        assert_eq!((&control).read(&mut [0; 64]).unwrap_or(0), 0, "the connection is closed");
        is_prompt(&d);
    }
}

/// Objective: a user cannot exceed the quota of connections; other users, and root, can still connect.
#[test]
fn a_user_cannot_exceed_the_quota_of_connections() {
    let d = Daemon::start_as(0, folder_of(0, 0o755), "[quota]\nconnections = 8\n[sockets]\nmode = '0666'");
    let connect = || UnixStream::connect(d.path("control.sock")).unwrap();
    let mut held: Vec<UnixStream> = as_user(USER, || (0..20).map(|_| connect()).collect());
    let served: Vec<bool> = held.iter().map(is_served).collect();
    assert_eq!(served, (0..20).map(|i| i < 8).collect::<Vec<_>>());
    assert!(as_user(USER + 1, || is_served(&connect())) && is_served(&connect()));
    // Refused connections whose queues contain descriptors do not block either.
    let mut peers = Vec::new();
    let stopped = Stopped::new(&d);
    as_user(USER, || {
        for _ in 0..8 {
            let one = connect();
            let (fd, peer) = lingering();
            pass(one.as_fd(), b"{}\n", &[fd.as_fd()]);
            peers.push(peer);
        }
    });
    drop(stopped);
    is_prompt(&d);
    held.clear();
    until("there is room again", || as_user(USER, || is_served(&connect())));
}

/// Objective: a user who would exceed the quota of ports, switches or memory is refused, and the refusal names the
/// quota; other users, and root, are served, and resources that the user releases are available again.
#[test]
fn too_much_is_refused_by_its_name() {
    let more =
        "[quota]\nports = 3\nswitches = 2\nmemory_mib = 16\n[switch]\nshared = ['vale0']\n[sockets]\nmode = '0666'";
    let d = Daemon::start_as(0, folder_of(0, 0o755), more);
    let open = |uid, name: &str, extra_bufs| {
        let options = netvale::Options { extra_bufs, ..d.options() };
        as_user(uid, || netvale::Port::open_with(name, &options))
    };
    let refused = |uid, name: &str, extra_bufs, key: &str| match open(uid, name, extra_bufs) {
        Err(netvale::Error::Refused { errno, text }) => assert!(errno == libc::ENOSPC && text.contains(key), "{text}"),
        other => panic!("{name}: {:?}", other.map(|port| port.name().to_owned())),
    };
    let _root = open(0, "vale0:root", 0).unwrap();
    let first = open(USER, "vale1:a", 0).unwrap();
    refused(USER, "vale1:b", 8192, "'memory_mib' in [quota]");
    let second = open(USER, "vale2:a", 0).unwrap();
    refused(USER, "vale3:a", 0, "'switches' in [quota]");
    let _third = open(USER, "vale0:a", 0).unwrap();
    refused(USER, "vale0:b", 0, "'ports' in [quota]");
    refused(USER, "netmap:p{1", 0, "'ports' in [quota]");
    let reply = as_user(USER, || d.call("port.attach", json!({"switch": "vale0", "port": "null:"})));
    assert_eq!(reply["error"]["data"]["errno"], libc::ENOSPC, "{reply}");
    for uid in [USER + 1, 0] {
        open(uid, "vale0:other", 0).unwrap();
    }
    open(0, "vale5:much", 8192).unwrap();
    drop((first, second));
    until("there is room again", || open(USER, "vale3:a", 0).is_ok());
}

/// Objective: a daemon that is out of descriptors does not loop, refuses new connections, and serves existing
/// connections; when descriptors are available again, it accepts connections.
#[test]
fn a_lack_of_descriptors_ends_no_existing_connection() {
    let d = Daemon::start("");
    let known = UnixStream::connect(d.path("control.sock")).unwrap();
    assert!(is_served(&known));
    let open = std::fs::read_dir(format!("/proc/{}/fd", d.id())).unwrap().count() as u64;
    let process = rustix::process::Pid::from_raw(d.id() as i32);
    let limit = |most| rustix::process::Rlimit { current: Some(most), maximum: Some(4096) };
    let set = |most| rustix::process::prlimit(process, rustix::process::Resource::Nofile, limit(most)).unwrap();
    set(open + 4);
    let crowd: Vec<UnixStream> = (0..40).map(|_| UnixStream::connect(d.path("control.sock")).unwrap()).collect();
    until("somebody is turned away", || {
        crowd.iter().any(|one| {
            one.set_nonblocking(true).unwrap();
            matches!((&mut &*one).read(&mut [0; 1]), Ok(0))
        })
    });
    let before = ticks(d.id());
    assert!(is_served(&known));
    std::thread::sleep(Duration::from_secs(1));
    let used = ticks(d.id()) - before;
    assert!(used < 30, "it used {used} hundredths of a second in one second");
    drop(crowd);
    set(1024);
    until("it accepts again", || is_served(&UnixStream::connect(d.path("control.sock")).unwrap()));
}

/// Objective: while a frame is incomplete, the worker sleeps; after the frame is completed, it is delivered.
#[test]
fn an_unfinished_frame_leaves_the_worker_asleep() {
    let d = Daemon::start("workers = 1");
    let [mut from, mut to] = d.opened(["vale0:a", "vale0:b"]);
    // A frame of two slots, the second of which is sent later. The contents of the slots do not matter.
    let stretch = |from: &mut netvale::Port, flags: u16| {
        let ring = &mut from.tx()[0];
        let at = ring.at(0);
        ring.set_len(at, 60, flags);
        ring.advance(1);
        ring.sync();
    };
    stretch(&mut from, NS_MOREFRAG);
    let awake = || {
        let worker = stats(&d)["workers"][0].take();
        ["busy_ns", "polled_ns"].map(|what| worker[what].as_u64().unwrap()).iter().sum::<u64>()
    };
    until("the worker sleeps", || {
        let before = awake();
        std::thread::sleep(Duration::from_millis(300));
        awake() - before < 50_000_000
    });
    stretch(&mut from, 0);
    assert!(to.wait(netvale::Interest::Rx, Some(common::LIMIT)).unwrap(), "the frame is delivered");
}

/// Returns the CPU time that a process has used, in hundredths of a second.
fn ticks(process: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}
