//! A user, Mallory, punches a hole in the memory of a port, in a thread that gets almost no CPU time. A thread that
//! accesses a page of the hole waits, uninterruptibly, until the whole hole has been punched.

use crate::common;

use std::collections::BTreeSet;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::{chown, lchown, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use common::ports::attach;
use common::users::{as_user, folder_of, open_to};
use common::{Daemon, frame, is_root, receive, send, until};
use netvale::{Options, Port, raw};
use netvale_control::attach::{AttachReply, AttachRequest, REPLY_LEN};
use netvale_harness::attacks::holes::{Hole, HollowRegion, Idler};
use netvale_mem::fault::Fault;
use netvale_mem::notify::Doorbell;
use netvale_vhost::frontend::Frontend;
use netvale_virtio::driver::options::DriverOptions;
use rustix::net::{RecvFlags, SendFlags};
use serde_json::{Value, json};

const ALICE: u32 = 70_021;
const MALLORY: u32 = 70_022;
/// Number of buffers in Mallory's region: about 64 MiB. A hole removes the pages of these buffers.
const BUFFERS: u32 = 32_000;
/// A lock that each test holds: a hole is punched in the longest region of this process, which must belong to that
/// test.
static ONE: Mutex<()> = Mutex::new(());
/// Longest permitted delay of other users' frames. A worker that waited for the hole would take many seconds.
const BOUND: Duration = Duration::from_secs(1);
/// Duration of a hole. A successor must take over while the hole is being punched, possibly at its second attempt.
const LONG: Duration = Duration::from_secs(3);

/// Takes the lock. If this process is not root, reports *skipped*.
fn alone() -> Option<MutexGuard<'static, ()>> {
    is_root("being several users needs root").then(|| ONE.lock().unwrap_or_else(PoisonError::into_inner))
}

fn daemon() -> Daemon {
    let dir = folder_of(0, 0o755);
    let more = format!(
        "workers = 1\nallow_dirs = [{:?}]\n[switch]\nshared = ['vale0']\n[sockets]\nmode = '0666'",
        folder_in(dir.path())
    );
    let d = Daemon::start_as(0, dir, &more);
    std::fs::create_dir(folder_in(d.dir())).unwrap();
    chown(folder_in(d.dir()), Some(MALLORY), Some(MALLORY)).unwrap();
    d
}

/// Returns the path of Mallory's folder in `dir`.
fn folder_in(dir: &Path) -> PathBuf {
    dir.join("mallory")
}

fn opened(d: &Daemon, uid: u32, name: &str, extra_bufs: u32) -> Port {
    let options = Options { extra_bufs, ..d.options() };
    as_user(uid, || Port::open_with(name, &options)).unwrap()
}

/// The longest time that an operation took while a hole was being punched, and the time that punching the hole took.
struct Waited {
    longest: Duration,
    beside: Duration,
}

impl Waited {
    /// Checks that the operation did not wait until the hole was punched.
    fn is_in_time(&self, what: &str) {
        let Waited { longest, beside } = self;
        println!("the hole took {beside:?}, the longest {what} {longest:?}");
        assert!(*longest < BOUND, "a {what} took {longest:?}, beside a hole of {beside:?}");
    }
}

/// Repeats an operation while a hole is being punched in the longest region. Returns the longest time of the operation,
/// at most [`BOUND`], and the duration of the hole.
fn beside_a_hole(step: impl FnMut()) -> Waited {
    beside_holes(&[HollowRegion::longest().unwrap()], step)
}

/// Like [`beside_a_hole`], with a hole in each of these regions.
fn beside_holes(regions: &[HollowRegion], mut step: impl FnMut()) -> Waited {
    regions.iter().for_each(|region| region.fill());
    let busy = Idler::start();
    let holes: Vec<_> = regions.iter().map(|region| region.begin()).collect();
    let mut longest = Duration::ZERO;
    while !holes.iter().all(Hole::is_made) && longest < BOUND {
        let begun = Instant::now();
        step();
        if holes.iter().any(Hole::has_begun) {
            longest = longest.max(begun.elapsed());
        }
    }
    drop(busy);
    Waited { longest, beside: holes.into_iter().map(|hole| hole.finish().unwrap()).max().unwrap() }
}

/// Opens two ports of Alice. Each call of the returned function sends a frame from one port to the other.
fn passing(d: &Daemon) -> impl FnMut() + use<> {
    let mut a = opened(d, ALICE, "vale0:a", 0);
    let mut b = opened(d, ALICE, "vale0:b", 0);
    let mut tag = 0;
    move || {
        send(&mut a, &frame(255, 1, tag));
        while receive(&mut b) != frame(255, 1, tag) {}
        tag = tag.wrapping_add(1);
    }
}

/// Objective: while a user's memory is blocked, frames of other users, including frames that are also flooded to that
/// user's port, take no longer than on a busy machine.
#[test]
fn others_do_not_wait_for_a_hole() {
    others_go_on_beside_holes_of(&[MALLORY]);
}

/// Objective: other users do not wait even if several users punch holes at the same time.
#[test]
fn others_do_not_wait_for_several_users() {
    others_go_on_beside_holes_of(&[MALLORY, MALLORY + 1, MALLORY + 2]);
}

fn others_go_on_beside_holes_of(users: &[u32]) {
    let Some(_one) = alone() else { return };
    let d = daemon();
    let pass = passing(&d);
    let _theirs: Vec<_> = users.iter().map(|&uid| opened(&d, uid, &format!("vale0:m{uid}"), BUFFERS)).collect();
    let mut regions = HollowRegion::all().unwrap();
    regions.sort_by_key(|region| std::cmp::Reverse(region.len()));
    beside_holes(&regions[..users.len()], pass).is_in_time("frame");
}

/// Makes the daemon access Mallory's memory, in the region with that number, and returns the daemon's answer.
type Touching = fn(&Daemon, region: u64) -> String;

/// Root queries the port.
fn show(d: &Daemon, _region: u64) -> String {
    d.call("port.show", json!({ "port": "vale0:m" })).to_string()
}

/// Mallory opens a port in that region, and closes it, without mapping the region, because this process would block as
/// well.
fn open_and_close(d: &Daemon, region: u64) -> String {
    let name = format!("vale0:o@{region}");
    let request = AttachRequest { name, tx_slots: 16, rx_slots: 16, ..AttachRequest::default() };
    as_user(MALLORY, || {
        let line = raw::connect_to(d.options().run_dir.as_deref()).unwrap();
        let mut reply = [0; REPLY_LEN];
        rustix::net::send(&line, &request.encode(), SendFlags::NOSIGNAL).unwrap();
        let (got, _) = rustix::net::recv(&line, &mut reply, RecvFlags::empty()).unwrap();
        AttachReply::decode(&reply[..got]).unwrap().text
    })
}

/// Objective: while a hole is punched, the daemon answers requests of other users, although it accesses that memory
/// itself to show rings, and to create and remove ports. The user whose memory it is loses all ports, with the reason,
/// and can have ports again later.
#[test]
fn requests_do_not_wait_for_a_hole() {
    let Some(_one) = alone() else { return };
    for (touching, answer) in [
        (show as Touching, "port vale0:m does not exist"),
        (open_and_close, "threads that touch this user's memory stall"),
    ] {
        let d = daemon();
        let _idle: Vec<_> = (0..20).map(|number| opened(&d, MALLORY, &format!("vale0:n{number}"), 0)).collect();
        let mallorys = opened(&d, MALLORY, "vale0:m", BUFFERS);
        let region = d.show("vale0:m")["region"]["id"].as_u64().unwrap();
        let mut answers = BTreeSet::new();
        let evicted = || {
            let evicted = d.evicted().to_string();
            evicted.contains("vale0:n1") && evicted.contains("that user's memory")
        };
        // If Mallory's own worker accesses the hole first, no other thread accesses the hole, and no port is lost. In
        // this case, the test tries again.
        for _attempt in 0..10 {
            let took = beside_a_hole(|| {
                answers.insert(touching(&d, region));
                drop(opened(&d, ALICE, "vale0:c", 0));
            });
            took.is_in_time("request");
            if evicted() {
                break;
            }
        }
        assert!(answers.iter().any(|one| one.contains(answer)), "{answers:?}");
        until("Mallory's ports are evicted for their memory", evicted);
        drop(mallorys);
        // After the hole, everything works again. Mallory is locked out for a while, as if a doorbell of Mallory's had
        // blocked.
        until("Mallory's ports are gone", || d.ports().iter().all(|port| !port.starts_with("vale0:")));
        let again = || as_user(MALLORY, || Port::open_with("vale0:m", &d.options())).is_ok();
        until("Mallory may have ports again", again);
    }
}

/// Attaches a port for a guest of Mallory with about 68 MiB of memory, and connects the guest, which leaves when the
/// returned values are dropped.
fn guest(d: &Daemon) -> (UnixStream, impl Sized) {
    as_user(MALLORY, || attach_guest(d, json!({})));
    connected_guest(d)
}

fn attach_guest(d: &Daemon, mut options: Value) {
    options["name"] = json!("guest");
    options["rings"] = json!(4);
    let port = format!("vhost:{}", folder_in(d.dir()).join("guest").display());
    assert_eq!(attach(d, &port, options)["kind"], "vhost");
}

/// Connects Mallory's hypervisor to the existing port.
fn connected_guest(d: &Daemon) -> (UnixStream, impl Sized) {
    let path = folder_in(d.dir()).join("guest");
    as_user(MALLORY, || driven(UnixStream::connect(&path).unwrap()))
}

/// Starts a driver over a connection to the daemon. Returns the connection and the driver.
fn driven(socket: UnixStream) -> (UnixStream, impl Sized) {
    let stop = Doorbell::new().unwrap();
    let calls = [(); 8].map(|()| Doorbell::new().unwrap());
    let options = DriverOptions { pairs: 4, size: 4096, ..DriverOptions::default() };
    let running = Frontend::new(socket.as_fd(), stop.as_fd(), &Fault::new().unwrap()).start(options, &calls);
    (socket, (running.unwrap(), calls))
}

/// Objective: a port that root attached for Mallory's hypervisor is served by Mallory's worker: frames of other users,
/// including frames that are also flooded to the guest, take no longer than on a busy machine.
#[test]
fn a_guest_at_roots_port_holds_nobody_up() {
    let Some(_one) = alone() else { return };
    for access in [json!({ "socket_user": MALLORY.to_string() }), json!({ "socket_mode": "0666" })] {
        let d = daemon();
        attach_guest(&d, access.clone());
        let (_socket, _memory) = connected_guest(&d);
        println!("{access}");
        let mut pass = passing(&d);
        let took = beside_a_hole(|| {
            pass();
            drop(opened(&d, ALICE, "vale0:c", 0));
        });
        took.is_in_time("frame");
    }
}

/// Objective: a guest that leaves while a hole is punched in its memory does not block other guests: its memory is
/// unmapped after the hole has been punched, and in the meantime the memory of other guests can be mapped.
#[test]
fn a_guest_leaves_beside_a_hole() {
    let Some(_one) = alone() else { return };
    let d = daemon();
    let (socket, _memory) = guest(&d);
    let maps = || std::fs::read_to_string(format!("/proc/{}/maps", d.id())).unwrap();
    until("its memory is mapped", || maps().contains("netvale-virtio"));
    let mut rounds = 0;
    let took = beside_a_hole(|| {
        rounds += 1;
        if rounds == 20 {
            socket.shutdown(std::net::Shutdown::Both).unwrap();
        }
        drop(opened(&d, ALICE, "vale0:c", 0));
    });
    took.is_in_time("request");
    assert!(rounds > 20, "the hole was over before the guest had left");
    until("its memory is unmapped", || !maps().contains("netvale-virtio"));
}

/// Objective: a port that belongs to root and connects to Mallory's hypervisor is also served by Mallory's worker.
#[test]
fn a_hypervisor_that_listens_holds_nobody_up() {
    let Some(_one) = alone() else { return };
    let d = daemon();
    let listener = as_user(MALLORY, || UnixListener::bind(folder_in(d.dir()).join("guest")).unwrap());
    attach_guest(&d, json!({ "client": true }));
    let (socket, _) = listener.accept().unwrap();
    let (_socket, _memory) = as_user(MALLORY, || driven(socket));
    beside_a_hole(passing(&d)).is_in_time("frame");
}

/// Objective: a port of root's is served by root's worker only if no other user can listen on its socket. Otherwise it
/// is served by the worker of that user: the owner of the socket, of a folder or link on its path, or a user who may
/// create a socket at that path.
#[test]
fn ports_take_the_time_of_who_listens() {
    if !is_root("being several users needs root") {
        return;
    }
    let d = daemon();
    let folder = |name: &str, mode: u32, owner: u32| {
        let path = d.dir().join(name);
        std::fs::create_dir(&path).unwrap();
        open_to(&path, owner, mode);
        path
    };
    let link = |name: &str, to: PathBuf, owner: u32| {
        let path = d.dir().join(name);
        symlink(to, &path).unwrap();
        lchown(&path, Some(owner), Some(owner)).unwrap();
        path
    };
    folder("above", 0o755, MALLORY);
    folder("writable", 0o777, 0);
    // Each row: the folder, the owner of the existing socket (`None`: no socket), and whether root's worker serves the
    // port.
    let rows = [
        (folder("roots", 0o755, 0), None, true),
        (folder("roots_socket", 0o755, 0), Some(0), true),
        (folder("users_socket", 0o755, 0), Some(MALLORY), false),
        (folder("users_folder", 0o755, MALLORY), Some(0), false),
        (folder("groups_folder", 0o775, 0), Some(0), false),
        (folder("sticky", 0o1777, 0), Some(0), true),
        (folder("sticky_and_empty", 0o1777, 0), None, false),
        (folder("above/roots_below", 0o755, 0), Some(0), false),
        (folder("writable/roots_below", 0o755, 0), Some(0), false),
        (d.dir().join("roots/missing"), None, true),
        (d.dir().join("sticky/missing"), None, false),
        (link("to_roots", folder("linked", 0o755, 0), 0), Some(0), true),
        (link("to_users", folder("users_linked", 0o755, MALLORY), 0), Some(0), false),
        (link("of_user", folder("linked_by_user", 0o755, 0), MALLORY), Some(0), false),
        (link("over_users", link("users_linked/link", folder("at_last", 0o755, 0), 0), 0), Some(0), false),
        (link("round", d.dir().join("round"), 0), None, false),
    ];
    for (folder, listener, is_roots) in rows {
        let name = folder.display();
        let path = folder.join("socket");
        let _listener = listener.map(|uid| {
            let listener = UnixListener::bind(&path).unwrap();
            chown(&path, Some(uid), Some(uid)).unwrap();
            listener
        });
        for (kind, options) in [("vhost", json!({ "client": true, "name": "p" })), ("virtio", json!({ "name": "p" }))] {
            let port = format!("{kind}:{}", path.display());
            let reply = d.call("port.attach", json!({ "switch": "vale0", "port": port, "options": options }));
            assert_eq!(reply["result"]["kind"], kind, "{name}: {reply}");
            let shown = d.show("vale0:p");
            // Worker 0 is the only worker in root's domain.
            assert_eq!(shown["rings"][0]["worker"] == 0, is_roots, "{name}, {kind}: {shown}");
            d.call("port.detach", json!({ "switch": "vale0", "port": "p" }));
        }
    }
}

/// Objective: indices of a ring in the memory of a guest at root's port are read without blocking while a hole is
/// punched.
#[test]
fn a_ptnet_guest_is_shown_beside_a_hole() {
    let Some(_one) = alone() else { return };
    let d = daemon();
    let path = folder_in(d.dir()).join("guest");
    let options = json!({ "name": "guest", "rings": 4, "slots": 4096, "socket_user": MALLORY.to_string() });
    let port = format!("ptnet:{}", path.display());
    assert_eq!(attach(&d, &port, options)["kind"], "ptnet");
    let _guest = as_user(MALLORY, || Port::as_guest(&path, 0)).unwrap();
    assert_eq!(d.show("vale0:guest")["rings"][0]["slots"], 4096);
    let took = beside_a_hole(|| {
        d.show("vale0:guest");
        drop(opened(&d, ALICE, "vale0:c", 0));
    });
    took.is_in_time("request");
}

/// Whether a hole is being punched in the longest region: most of its pages have already been removed.
fn is_being_made() -> bool {
    let region = HollowRegion::longest().unwrap();
    region.resident().unwrap() < region.len() / 2
}

/// Whether a thread of the daemon waits uninterruptibly in the kernel.
fn waits(d: &Daemon) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", d.id())).into_iter().flatten().flatten();
    let stats = tasks.map(|task| std::fs::read_to_string(task.path().join("stat")).unwrap_or_default());
    stats.into_iter().any(|stat| stat.contains(") D "))
}

/// Objective: a hole in a guest's memory does not keep a successor from taking over, whether a worker waits for the
/// hole, or the successor would wait for it. The guest is evicted, and in the meantime the successor continues.
#[test]
fn a_guest_beside_a_hole_keeps_no_successor() {
    let Some(_one) = alone() else { return };
    for is_talked_to in [true, false] {
        assert!((0..5).any(|_| goes_on_beside_a_hole(is_talked_to)), "each hole was made too soon");
    }
}

/// Checks that a successor takes over, and evicts the guest's port, while a hole in the guest's memory is still being
/// punched. Returns false if the hole was complete too early, so that the test shows nothing.
fn goes_on_beside_a_hole(is_talked_to: bool) -> bool {
    let d = daemon();
    let (socket, _memory) = guest(&d);
    let mut a = opened(&d, ALICE, "vale0:a", 0);
    let process = || d.call("version", json!({}))["result"]["pid"].clone();
    let first = process();
    let mut is_asked = false;
    let mut has_gone_on = false;
    let took = std::thread::scope(|scope| {
        beside_a_hole(|| {
            if is_talked_to && !is_asked {
                // If the ring is full, this frame is not sent.
                let _ = a.tx()[0].send(&frame(255, 1, 0));
                a.tx()[0].sync();
            }
            if !is_asked && if is_talked_to { waits(&d) } else { is_being_made() } {
                is_asked = true;
                scope.spawn(|| d.is_succeeded());
            }
            has_gone_on |= is_asked && process() != first;
        })
    });
    took.is_in_time("request");
    if !has_gone_on {
        assert!(took.beside < LONG, "no successor went on before the hole of {:?} was made", took.beside);
        return false;
    }
    socket.set_read_timeout(Some(common::LIMIT)).unwrap();
    assert_eq!((&socket).read(&mut [0; 64]).unwrap(), 0, "the guest has no port any more");
    until("the guest's port is gone", || !d.ports().contains(&"vale0:guest".to_owned()));
    // Evictions by the successor, with their reasons.
    let evicted = d.evicted().to_string();
    assert!(is_talked_to || evicted.contains("vale0:guest") && evicted.contains("is blocked"), "{evicted}");
    true
}
