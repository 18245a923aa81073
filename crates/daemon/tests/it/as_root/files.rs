//! Files and sockets that the daemon creates, opens and removes for users. Links, exchanged folders and other users'
//! files must not make the daemon use other files. The daemon runs in its sandbox, once as root and once as a separate
//! user.

use crate::common;

use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::users::{as_user, folder_of, open_to};
use common::{Daemon, frame, until};
use netvale_pcapport::{PcapFormat, PcapReader, PcapWriter};
use rustix::fs::{CWD, Mode, RenameFlags, renameat_with};
use serde_json::{Value, json};

const DAEMON: u32 = 70_000;
const USER: u32 = 70_001;
const OTHER: u32 = 70_002;

/// Pairs of a daemon's umask and its user.
const MASKED: [(u32, u32); 3] = [(0, 0), (0o777, 0), (0o777, DAEMON)];

/// A daemon, and a folder in which users may name files: [`USER`] in its subfolder `mine`, [`OTHER`] in its subfolder
/// `theirs`.
struct World {
    d: Daemon,
    allowed: tempfile::TempDir,
    /// A folder of the daemon, inside `allowed`, so that the sandbox permits access to it.
    elsewhere: PathBuf,
}

fn world_of(umask: Option<u32>, uid: u32, more: &str) -> World {
    let [dir, allowed] = [uid, 0].map(|owner| folder_of(owner, 0o755));
    for (user, name, mode) in [(USER, "mine", 0o777), (OTHER, "theirs", 0o777), (uid, "elsewhere", 0o755)] {
        let folder = allowed.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        open_to(&folder, user, mode);
    }
    let elsewhere = allowed.path().join("elsewhere");
    let config = format!(
        "sandbox = true\nallow_dirs = [{:?}]\n[switch]\nshared = ['*']\n[sockets]\nmode = '0666'\n{more}",
        allowed.path()
    );
    let d = match umask {
        Some(umask) => Daemon::start_with_umask(umask, uid, dir, &config),
        None => Daemon::start_as(uid, dir, &config),
    };
    World { d, allowed, elsewhere }
}

fn world(uid: u32) -> World {
    world_of(None, uid, "")
}

impl World {
    /// Returns a path in the user's folder.
    fn mine(&self, name: &str) -> PathBuf {
        self.allowed.path().join("mine").join(name)
    }

    fn call(&self, uid: u32, method: &str, params: Value) -> Value {
        as_user(uid, || self.d.call(method, params))
    }

    fn attach(&self, uid: u32, port: &str, mut options: Value) -> Value {
        options["name"] = json!("p");
        self.call(uid, "port.attach", json!({"switch": "vale0", "port": port, "options": options}))
    }

    fn attached(&self, uid: u32, port: &str, options: Value) {
        let reply = self.attach(uid, port, options);
        assert!(reply["error"].is_null(), "{port}: {reply}");
    }

    /// Attaches a port, which must be refused. Returns the text of the refusal.
    fn refused(&self, uid: u32, port: &str, options: Value) -> String {
        let reply = self.attach(uid, port, options);
        assert!(reply["error"]["data"]["errno"].is_i64(), "{port}: {reply}");
        reply["error"].to_string()
    }

    fn detach(&self, uid: u32) {
        let reply = self.call(uid, "port.detach", json!({"switch": "vale0", "port": "p"}));
        assert!(reply["error"].is_null(), "{reply}");
    }

    fn notes(&self) -> String {
        self.d.notes("vale0:p")
    }
}

/// Returns the kinds of ports that listen at a path, with their options.
fn listening(path: &Path) -> Vec<(String, Value)> {
    let kinds = [
        ("vhost", json!({})),
        ("ptnet", json!({})),
        ("ptnet", json!({"vfio_user": true})),
        ("e1000", json!({})),
        ("stream", json!({})),
    ];
    kinds.into_iter().map(|(kind, options)| (format!("{kind}:{}", path.display()), options)).collect()
}

fn is_socket(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket())
}

fn connects(uid: u32, path: &Path) -> bool {
    as_user(uid, || UnixStream::connect(path).map(drop)).is_ok()
}

fn exchange(a: &Path, b: &Path) {
    renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE).unwrap();
}

/// A guard that ends another thread's loop when it is dropped, even after a panic.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn record(path: &Path) {
    let mut writer = PcapWriter::create(path, PcapFormat::Pcap).unwrap();
    writer.write(Duration::from_secs(1), &frame(255, 9, 1)).unwrap();
    writer.finish().unwrap();
}

fn frames(path: &Path) -> usize {
    let mut reader = PcapReader::open(path).unwrap();
    let mut count = 0;
    while reader.next_frame().unwrap().is_some() {
        count += 1;
    }
    count
}

/// Objective: if a user exchanges the folder that contains a port's socket, the daemon removes no other user's file: it
/// removes the socket at its new path.
#[test]
fn an_exchanged_folder_costs_no_file_of_others() {
    for daemon in [0, DAEMON] {
        let w = world(daemon);
        let folder = w.mine("in");
        let moved = w.mine("out");
        let victims = ["s", "s.mem"].map(|name| w.elsewhere.join(name));
        for (port, options) in listening(&folder.join("s")) {
            for as_link in [true, false] {
                victims.iter().for_each(|victim| std::fs::write(victim, "precious").unwrap());
                std::fs::create_dir(&folder).unwrap();
                open_to(&folder, USER, 0o777);
                w.attached(USER, &port, options.clone());
                assert!(is_socket(&folder.join("s")));
                std::fs::rename(&folder, &moved).unwrap();
                if as_link {
                    symlink(&w.elsewhere, &folder).unwrap();
                } else {
                    std::fs::rename(&w.elsewhere, &folder).unwrap();
                }
                w.detach(USER);
                if as_link {
                    std::fs::remove_file(&folder).unwrap();
                } else {
                    std::fs::rename(&folder, &w.elsewhere).unwrap();
                }
                assert!(victims.iter().all(|victim| victim.exists()), "{port}: another file was removed");
                assert!(std::fs::read_dir(&moved).unwrap().next().is_none(), "{port}: its socket is left behind");
                std::fs::remove_dir(&moved).unwrap();
            }
        }
    }
}

/// Objective: a file that a user has put in place of a port's socket survives the removal of the port.
#[test]
fn a_file_in_place_of_a_socket_survives() {
    let w = world(0);
    for (port, options) in listening(&w.mine("s")) {
        w.attached(USER, &port, options);
        std::fs::rename(w.mine("s"), w.mine("old")).unwrap();
        let _mine = as_user(USER, || UnixListener::bind(w.mine("s")).unwrap());
        w.detach(USER);
        assert!(is_socket(&w.mine("s")), "{port}");
        std::fs::remove_file(w.mine("s")).unwrap();
        std::fs::remove_file(w.mine("old")).unwrap();
    }
}

/// Objective: the daemon never follows a link in place of a file or socket when it creates, reads or connects.
#[test]
fn links_in_place_of_files() {
    for daemon in [0, DAEMON] {
        let w = world(daemon);
        let link = w.mine("link");
        let there = w.elsewhere.join("there");
        let nothing = w.elsewhere.join("nothing");
        record(&there);
        let before = std::fs::read(&there).unwrap();
        for to in [&there, &nothing] {
            symlink(to, &link).unwrap();
            let ports = listening(&link)
                .into_iter()
                .chain(["in=", "out="].map(|which| (format!("pcap:{which}{}", link.display()), json!({}))));
            for (port, options) in ports {
                for uid in [USER, 0] {
                    w.refused(uid, &port, options.clone());
                }
            }
            std::fs::remove_file(&link).unwrap();
        }
        assert!(!nothing.exists() && std::fs::read(&there).unwrap() == before);
        let text = {
            symlink(&there, &link).unwrap();
            w.refused(USER, &format!("pcap:{}", link.display()), json!({}))
        };
        assert!(text.contains("a symbolic link") && text.contains("name the file itself"), "{text}");
    }
}

/// Objective: the daemon never follows links and dots in a path, even if a link replaces a folder at any moment.
#[test]
fn links_on_the_way() {
    let w = world(0);
    let way = w.mine("way");
    let link = w.mine("link");
    std::fs::create_dir(&way).unwrap();
    open_to(&way, USER, 0o777);
    symlink(&w.elsewhere, &link).unwrap();
    let text = w.refused(USER, &format!("vhost:{}/s", link.display()), json!({}));
    assert!(text.contains("the path contains a link or another file system"), "{text}");
    let dots = format!("{}/../../{}/s", way.display(), w.elsewhere.file_name().unwrap().display());
    for path in [dots, "/proc/self/cwd/s".to_owned(), format!("{}x/s", w.allowed.path().display())] {
        assert!(w.refused(USER, &format!("pcap:out={path}"), json!({})).contains("allow-dirs"), "{path}");
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                exchange(&way, &link);
            }
        });
        let _stops = Stops(&stop);
        for round in 0..200 {
            for port in [format!("vhost:{}/s", way.display()), format!("pcap:out={}/f{round}", way.display())] {
                if w.attach(USER, &port, json!({}))["error"].is_null() {
                    w.detach(USER);
                }
            }
        }
    });
    let made: Vec<_> = std::fs::read_dir(&w.elsewhere).unwrap().collect();
    assert!(made.is_empty(), "{made:?}");
}

/// Objective: regardless of the umask, the daemon's user and the requesting user can connect to a device's socket;
/// options admit other users.
#[test]
fn a_socket_is_open_to_the_requesting_user() {
    for (umask, daemon) in MASKED {
        let w = world_of(Some(umask), daemon, "");
        let path = w.mine("s");
        for (port, options) in listening(&path) {
            let sockets = if options.is_null() || options["vfio_user"].is_null() {
                vec![path.clone()]
            } else {
                vec![path.clone(), w.mine("s.mem")]
            };
            let with = |more: Value| {
                let mut all = options.clone();
                more.as_object().unwrap().iter().for_each(|(key, value)| all[key] = value.clone());
                all
            };
            let may = |asks: u32, options: Value| -> Vec<[bool; 4]> {
                w.attached(asks, &port, options);
                let may = sockets.iter().map(|socket| [USER, OTHER, DAEMON, 0].map(|uid| connects(uid, socket)));
                let may = may.collect();
                w.detach(asks);
                may
            };
            let expect = |asks, options: Value, expected: [bool; 3]| {
                let all = [expected[0], expected[1], expected[2] || daemon == DAEMON, true];
                assert_eq!(may(asks, options.clone()), vec![all; sockets.len()], "{umask:o} {port} {options}");
            };
            expect(USER, with(json!({})), [true, false, false]);
            expect(0, with(json!({})), [false, false, false]);
            expect(0, with(json!({"socket_mode": "0606"})), [true, true, true]);
            expect(0, with(json!({"socket_user": USER.to_string()})), [true, false, false]);
            expect(USER, with(json!({"socket_user": OTHER.to_string()})), [true, true, false]);
            expect(USER, with(json!({"socket_group": OTHER.to_string()})), [true, true, false]);
            expect(0, with(json!({"socket_user": "root", "socket_mode": "660"})), [false, false, false]);
            w.attached(0, &port, options);
            let modes: Vec<u32> =
                sockets.iter().map(|socket| std::fs::metadata(socket).unwrap().mode() & 0o777).collect();
            assert_eq!(modes, vec![0o600; sockets.len()], "{umask:o} {port}");
            w.detach(0);
            assert!(!path.exists());
        }
        let vhost = format!("vhost:{}", path.display());
        let text = w.refused(USER, &vhost, json!({"socket_user": "nobody-of-that-name"}));
        assert!(text.contains("nobody-of-that-name") && text.contains("give its number"), "{text}");
        let both = w.attach(USER, &vhost, json!({"socket_mode": "0660", "client": true}));
        assert!(both["error"].to_string().contains("socket_mode and client exclude each other"), "{both}");
    }
}

/// Objective: a leftover socket is replaced if it belongs to the caller or to the daemon's user. Other users' sockets,
/// sockets on which a process listens, and files of other types stay.
#[test]
fn only_own_leftover_sockets_are_replaced() {
    let w = world(0);
    let path = w.mine("s");
    let leave = |uid| {
        std::fs::remove_file(&path).unwrap_or_default();
        drop(as_user(uid, || UnixListener::bind(&path).unwrap()));
    };
    for (port, options) in listening(&path) {
        for (uid, mode) in [(USER, 0o666), (0, 0o600)] {
            leave(uid);
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            w.attached(USER, &port, options.clone());
            w.detach(USER);
        }
        // The user cannot connect to the other user's socket, and so cannot find out whether a process listens on it.
        leave(USER);
        assert!(w.refused(USER, &port, options.clone()).contains("remove the socket") && path.exists());
        leave(OTHER);
        let text = w.refused(USER, &port, options.clone());
        assert!(text.contains("a socket of another user") && path.exists(), "{text}");
        std::fs::remove_file(&path).unwrap();
        let _listens = as_user(USER, || UnixListener::bind(&path).unwrap());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
        let text = w.refused(USER, &port, options.clone());
        assert!(text.contains("another program listens") && path.exists(), "{text}");
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "a file").unwrap();
        assert!(w.refused(USER, &port, options).contains("is not a socket"));
        assert_eq!(std::fs::read(&path).unwrap(), b"a file");
        std::fs::remove_file(&path).unwrap();
    }
}

/// Whether a port connects to the socket within a second. In that time, the port makes several attempts.
fn is_connected(listener: &UnixListener) -> bool {
    listener.set_nonblocking(true).unwrap();
    netvale_harness::until(Duration::from_secs(1), Duration::from_millis(10), || listener.accept().is_ok())
}

/// Objective: for a user, a port connects only to sockets to which this user could connect, and never through a link.
#[test]
fn a_port_connects_only_where_its_user_could() {
    let w = world(0);
    let path = w.mine("s");
    let hidden = w.elsewhere.join("hidden");
    std::fs::create_dir(&hidden).unwrap();
    open_to(&hidden, 0, 0o700);
    let clients = ["vhost", "stream"].map(|kind| (kind, json!({"client": true})));
    let ports = std::iter::once(("virtio", json!({}))).chain(clients);
    let listen = |uid: u32, at: &Path, mode: u32| {
        let listener = UnixListener::bind(at).unwrap();
        open_to(at, uid, mode);
        listener
    };
    for (kind, options) in ports {
        let port = format!("{kind}:{}", path.display());
        let reached = |listener: &UnixListener| {
            w.attached(USER, &port, options.clone());
            let reached = is_connected(listener);
            w.detach(USER);
            reached
        };
        for (owner, mode, expected) in [(USER, 0o666, true), (OTHER, 0o666, true), (0, 0o600, false), (0, 0o660, false)]
        {
            let listener = listen(owner, &path, mode);
            assert_eq!(reached(&listener), expected, "{port}: a socket of {owner}'s, {mode:o}");
            std::fs::remove_file(&path).unwrap();
        }
        let listener = listen(0, &hidden.join("s"), 0o666);
        symlink(hidden.join("s"), &path).unwrap();
        assert!(!reached(&listener), "{port}: through a link");
        std::fs::remove_file(&path).unwrap();
        std::fs::remove_file(hidden.join("s")).unwrap();
    }
}

/// Objective: a capture goes to a new file readable only by the caller, or to one of the caller's own files; files of
/// other users are not changed.
#[test]
fn a_capture_never_changes_the_files_of_others() {
    for (umask, daemon) in MASKED {
        let w = world_of(Some(umask), daemon, "");
        let new = w.mine("new.pcap");
        let capture = |uid, path: &Path| {
            w.attached(uid, &format!("pcap:out={}", path.display()), json!({}));
            w.detach(uid);
        };
        let reads = |uid, path: &Path| as_user(uid, || std::fs::read(path)).is_ok();
        capture(USER, &new);
        assert_eq!((reads(USER, &new), reads(OTHER, &new)), (true, false), "{umask:o}");
        capture(USER, &new);
        for (uid, path) in [(OTHER, &new), (USER, &w.mine("others.pcap"))] {
            if uid == USER {
                as_user(OTHER, || std::fs::write(path, "precious")).unwrap();
                open_to(path, OTHER, 0o666);
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o646)).unwrap();
            }
            let before = std::fs::read(path).unwrap();
            let text = w.refused(uid, &format!("pcap:out={}", path.display()), json!({}));
            assert!(text.contains("has no permission\"") && text.contains("choose a file of your own"), "{text}");
            assert_eq!(std::fs::read(path).unwrap(), before);
        }
        let own = w.mine("own.pcap");
        as_user(USER, || std::fs::write(&own, [7; 9999])).unwrap();
        open_to(&own, USER, 0o666);
        capture(USER, &own);
        assert_eq!(frames(&own), 0);
        let roots = w.d.path("root.pcap");
        capture(0, &roots);
        assert_eq!(std::fs::metadata(&roots).unwrap().mode() & 0o777, 0o600);
        assert!(!reads(USER, &roots));
        let pipe = w.mine("pipe");
        rustix::fs::mknodat(CWD, &pipe, rustix::fs::FileType::Fifo, Mode::from_raw_mode(0o666), 0).unwrap();
        assert!(
            w.refused(USER, &format!("pcap:out={}", pipe.display()), json!({})).contains("expected a regular file")
        );
    }
}

/// Objective: a file is replayed only for users who can read it, and files of other types, such as FIFOs, block no
/// client.
#[test]
fn only_readers_of_a_file_can_replay_it() {
    let w = world(0);
    let file = w.mine("in.pcap");
    record(&file);
    let port = format!("pcap:in={}", file.display());
    for (owner, mode, expected) in [(USER, 0o444, true), (OTHER, 0o444, true), (0, 0o600, false), (0, 0o640, false)] {
        open_to(&file, owner, mode);
        let reply = w.attach(USER, &port, json!({}));
        assert_eq!(reply["error"].is_null(), expected, "{owner} {mode:o}: {reply}");
        if expected {
            w.detach(USER);
        }
    }
    let captured = w.mine("captured.pcap");
    w.attached(USER, &format!("pcap:out={}", captured.display()), json!({}));
    w.detach(USER);
    let again = format!("pcap:in={}", captured.display());
    assert!(w.refused(OTHER, &again, json!({})).contains("has no permission"));
    w.attached(USER, &again, json!({}));
    w.detach(USER);
    let pipe = w.mine("pipe");
    rustix::fs::mknodat(CWD, &pipe, rustix::fs::FileType::Fifo, Mode::from_raw_mode(0o666), 0).unwrap();
    open_to(&pipe, USER, 0o666);
    for uid in [USER, 0] {
        assert!(w.refused(uid, &format!("pcap:{}", pipe.display()), json!({})).contains("not a regular file"));
    }
}

/// Sends broadcasts until a note of the port and the port's drop counter report that the capture has ended.
fn fill(w: &World, words: &str) {
    let mut a = as_user(USER, || w.d.open("vale0:a")).unwrap();
    until(words, || {
        while a.tx()[0].send(&frame(255, 1, 1)) {}
        a.tx()[0].sync();
        w.notes().contains(words)
    });
    let dropped = || {
        let shown = w.d.show("vale0:p");
        shown["rings"].as_array().unwrap().iter().any(|r| r["drops"]["capture-full"].as_u64() > Some(0))
    };
    until("frames are dropped", || {
        a.tx()[0].send(&frame(255, 1, 1));
        a.tx()[0].sync();
        dropped()
    });
}

/// Objective: a capture at its limit, or at its user's quota, ends with whole frames and a reason; other ports
/// continue. When files are removed, their part of the quota is free again.
#[test]
fn a_capture_at_its_limit_ends_with_whole_frames() {
    const MIB: u64 = 1 << 20;
    let w = world_of(None, 0, "[quota]\ncaptures_mib = 3");
    for (name, uid) in [("a.pcap", USER), ("b.pcapng", 0)] {
        let path = w.mine(name);
        w.attached(uid, &format!("pcap:out={}", path.display()), json!({"capture_limit": 1}));
        fill(&w, "ended at its limit of 1 MiB");
        w.detach(uid);
        let size = std::fs::metadata(&path).unwrap().len();
        assert!(size <= MIB && size > MIB - 200 && frames(&path) > 1000, "{name}: {size}");
    }
    // The first file still exists, and takes one of the user's three portions of 1 MiB.
    let more = w.mine("more.pcap");
    let port = format!("pcap:out={}", more.display());
    w.attached(USER, &port, json!({}));
    fill(&w, "ended: its user's captures have used their quota of 3 MiB");
    w.detach(USER);
    let size = std::fs::metadata(&more).unwrap().len();
    assert!(size <= 2 * MIB && size > 2 * MIB - 200 && frames(&more) > 1000, "{size}");
    let next = format!("pcap:out={}", w.mine("next.pcap").display());
    let text = w.refused(USER, &next, json!({}));
    assert!(text.contains("'captures_mib' in [quota]") && !w.mine("next.pcap").exists(), "{text}");
    w.attached(OTHER, &format!("pcap:out={}/theirs/x.pcap", w.allowed.path().display()), json!({}));
    w.detach(OTHER);
    as_user(USER, || std::fs::remove_file(&more)).unwrap();
    w.attached(USER, &next, json!({}));
    w.detach(USER);
    let nothing = w.attach(USER, &format!("pcap:in={}", w.mine("a.pcap").display()), json!({"capture_limit": 1}));
    assert!(nothing["error"].to_string().contains("capture_limit requires a capture"), "{nothing}");
}

/// Objective: configured ports outside the allowed folders are attached, even in the sandbox; a port whose folder is
/// missing is skipped, and the daemon starts with the other ports.
#[test]
fn configured_ports_outside_the_folders_are_attached() {
    let outside = tempfile::tempdir().unwrap();
    let [file, missing] = ["in.pcap", "missing/s"].map(|name| outside.path().join(name));
    record(&file);
    let mut ports = vec!["null:last".to_owned(), format!("pcap:{}", file.display())];
    ports.push(format!("pcap:out={}/out.pcap", outside.path().display()));
    for kind in ["vhost", "ptnet", "e1000", "virtio"] {
        ports.push(format!("{kind}:{}/{kind}", outside.path().display()));
    }
    let gone = ["vhost", "ptnet", "e1000", "pcap"].map(|kind| format!("{kind}:{}", missing.display()));
    let table = |(i, port): (usize, &String)| format!("[[port]]\nswitch = 'vale0'\nport = '{port}'\nname = 'p{i}'\n");
    let all: String = gone.iter().chain(&ports).enumerate().map(table).collect();
    let w = world_of(None, 0, &all);
    let expected: Vec<String> = (gone.len()..gone.len() + ports.len()).map(|i| format!("vale0:p{i}")).collect();
    let mut there = w.d.ports();
    there.sort_by_key(|name| (name.len(), name.clone()));
    assert_eq!(there, expected);
    assert!(["vhost", "ptnet", "e1000"].iter().all(|kind| is_socket(&outside.path().join(kind))));
    assert!(w.refused(USER, &format!("vhost:{}/other", outside.path().display()), json!({})).contains("allow-dirs"));
}

/// Objective: when a port is removed, the daemon closes its descriptor of the folder that contains the port's socket.
#[test]
fn descriptors_are_given_back() {
    let w = world(0);
    let open = || std::fs::read_dir(format!("/proc/{}/fd", w.d.id())).unwrap().count();
    let all = || {
        for (port, options) in listening(&w.mine("s")) {
            w.attached(USER, &port, options);
            w.detach(USER);
        }
        w.refused(USER, &format!("vhost:{}/none/s", w.allowed.path().display()), json!({}));
    };
    all();
    let before = open();
    (0..5).for_each(|_| all());
    until("descriptors are closed", || open() <= before);
}
