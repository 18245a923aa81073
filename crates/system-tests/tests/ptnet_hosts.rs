//! Hosts that end and come back, and hosts that are confused, as ptnet guests see them.
#![allow(unsafe_code)]

mod common;
#[path = "common/guest.rs"]
mod guest;
#[path = "common/ptnet.rs"]
mod machines;
#[path = "common/up.rs"]
mod up;

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use guest::{Guest, Nic, image};
use machines::{LOOP, STAND, no_complaints};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use up::{Guarded, until};

/// Emulated guests take all the processor there is: one test at a time.
static ONE: Mutex<()> = Mutex::new(());

/// A service manager, as far as a daemon knows one: it keeps descriptors by name, and starts a daemon with those it has.
struct Manager {
    dir: tempfile::TempDir,
    kept: Kept,
    stop: Arc<AtomicBool>,
}

/// Descriptors by name.
type Kept = Arc<Mutex<std::collections::BTreeMap<String, OwnedFd>>>;

impl Manager {
    fn new() -> Manager {
        let dir = tempfile::tempdir().expect("a folder");
        let socket = std::os::unix::net::UnixDatagram::bind(dir.path().join("notify")).expect("a socket");
        socket.set_read_timeout(Some(Duration::from_millis(100))).expect("set");
        let (kept, stop) = (Kept::default(), Arc::new(AtomicBool::new(false)));
        let (list, stopped) = (Arc::clone(&kept), Arc::clone(&stop));
        std::thread::spawn(move || Self::listen(&socket, &list, &stopped));
        Manager { dir, kept, stop }
    }

    /// Does what the daemon asks.
    fn listen(socket: &std::os::unix::net::UnixDatagram, kept: &Kept, stopped: &AtomicBool) {
        let mut bytes = [0; 512];
        while !stopped.load(Ordering::Relaxed) {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut iov = [std::io::IoSliceMut::new(&mut bytes)];
            // Without CLOEXEC: the next daemon inherits them.
            let Ok(got) = rustix::net::recvmsg(socket, &mut iov, &mut control, RecvFlags::empty()) else { continue };
            let rights = |m| if let RecvAncillaryMessage::ScmRights(fds) = m { Some(fds) } else { None };
            let fd = control.drain().filter_map(rights).flatten().next();
            let text = String::from_utf8_lossy(&bytes[..got.bytes]).into_owned();
            let Some(name) = text.lines().find_map(|line| line.strip_prefix("FDNAME=")) else { continue };
            let mut kept = kept.lock().expect("no panic");
            match fd {
                Some(fd) => kept.insert(name.to_owned(), fd),
                None => kept.remove(name),
            };
        }
    }

    fn count(&self) -> usize {
        self.kept.lock().expect("no panic").len()
    }

    /// Starts a daemon as its child.
    fn start(&self, run_dir: &Path) -> Guarded {
        let (names, fds): (Vec<_>, Vec<_>) =
            self.kept.lock().expect("no panic").iter().map(|(name, fd)| (name.clone(), fd.as_raw_fd())).unzip();
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "LISTEN_PID=$$ exec \"$@\"", "sh"]).arg(netvale_system_tests::netvale());
        // SAFETY: calls nothing but fcntl and dup2, on numbers.
        unsafe {
            command.pre_exec(move || {
                // By way of numbers where neither those that are had nor those that are wanted lie.
                let away: Vec<i32> = fds.iter().map(|&fd| libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 300)).collect();
                for (to, from) in (3..).zip(away) {
                    libc::dup2(from, to);
                }
                Ok(())
            });
        }
        command.args(["up", "--run-dir"]).arg(run_dir).arg("--allow-dir").arg(self.dir.path());
        command.env("NOTIFY_SOCKET", self.dir.path().join("notify"));
        command.env("LISTEN_FDS", names.len().to_string()).env("LISTEN_FDNAMES", names.join(":"));
        Guarded(command.spawn().expect("sh runs").into())
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Objective: a daemon that is killed and started again by a service manager has the same guests: they only see a pause.
#[test]
fn daemon_restarts() {
    let _one = ONE.lock();
    let Some(image) = image() else { return };
    let manager = Manager::new();
    let sockets = ["one", "two"].map(|name| manager.dir.path().join(name));
    let attach = |run_dir: &Path| {
        until("the daemon listens", || std::os::unix::net::UnixStream::connect(run_dir.join("control.sock")).is_ok());
        for socket in &sockets {
            let mut command = common::netvale();
            command.arg("--run-dir").arg(run_dir).args(["attach", "vale0", "--vnet-hdr", "12"]);
            let output = command.arg(format!("ptnet:{}", socket.display())).output().expect("it runs");
            common::stdout(&output);
        }
    };
    let run_dir = tempfile::tempdir().expect("a folder");
    let daemon = manager.start(run_dir.path());
    attach(run_dir.path());
    let nic = |i: usize| Nic { ptnet: 3, ..Nic::new(&sockets[i]) };
    let mut standing = Guest::start(image, STAND, 1, &nic(0));
    standing.expect("ready");
    let mut guest = Guest::start(image, LOOP, 2, &nic(1));
    guest.expect("reached");
    assert_eq!(manager.count(), 2 * (2 + 2 * 3));
    drop(daemon);
    let daemon = manager.start(run_dir.path());
    attach(run_dir.path());
    guest.say("again");
    guest.expect("reached");
    guest.say("off");
    guest.end();
    until("what was the guest's is not kept any more", || manager.count() == 2 + 2 * 3);
    drop((standing, daemon));
}

/// A host that is confused: it serves memory with a header of its own, obeys every command, and then says nonsense.
struct Confused {
    dir: tempfile::TempDir,
    stop: Arc<AtomicBool>,
}

/// A header as words; see docs/reference/ptnet.md.
fn header(change: &[(usize, u32)]) -> Vec<u32> {
    let mut words = vec![0u32; 1024];
    words[..2].copy_from_slice(&[0x7470_766e, 0x0074_656e]);
    // Version, bytes, features, vectors, rings, slots, bytes a buffer, buffers.
    words[2..12].copy_from_slice(&[1, 4096, 0, 3, 1, 1, 64, 64, 2048, 256]);
    // Status blocks at 4096 and 4224, rings of 4096 bytes from 8192 on, buffers from 1 MiB on.
    for (at, value) in
        [(14, 1500), (16, 4096), (18, 4224), (20, 8192), (22, 4096), (24, 1 << 20), (28, 1 << 22), (64, 1)]
    {
        words[at] = value;
    }
    change.iter().for_each(|&(at, value)| words[at] = value);
    words
}

impl Confused {
    fn start(change: &[(usize, u32)]) -> Confused {
        let dir = tempfile::tempdir().expect("a folder");
        let listener = std::os::unix::net::UnixListener::bind(dir.path().join("s")).expect("a socket");
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, header) = (Arc::clone(&stop), header(change));
        std::thread::spawn(move || {
            let file = tempfile::tempfile().expect("a file");
            file.set_len(1 << 22).expect("room");
            let bytes: Vec<u8> = header.iter().flat_map(|word| word.to_le_bytes()).collect();
            file.write_all_at(&bytes, 0).expect("written");
            let (socket, _) = listener.accept().expect("a guest");
            let bell = || rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).expect("an eventfd");
            let (doorbells, vectors): (Vec<OwnedFd>, Vec<OwnedFd>) = (0..3).map(|_| (bell(), bell())).unzip();
            let say = |number: i64, fd: Option<std::os::fd::BorrowedFd<'_>>| {
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
                let mut control = rustix::net::SendAncillaryBuffer::new(&mut space);
                let fds: Vec<_> = fd.into_iter().collect();
                if !fds.is_empty() {
                    control.push(rustix::net::SendAncillaryMessage::ScmRights(&fds));
                }
                let bytes = number.to_le_bytes();
                let iov = [std::io::IoSlice::new(&bytes)];
                rustix::net::sendmsg(&socket, &iov, &mut control, rustix::net::SendFlags::NOSIGNAL).expect("sent");
            };
            say(0, None);
            say(1, None);
            say(-1, Some(file.as_fd()));
            doorbells.iter().for_each(|fd| say(0, Some(fd.as_fd())));
            vectors.iter().for_each(|fd| say(1, Some(fd.as_fd())));
            let word = |at: u64| {
                let mut bytes = [0; 4];
                file.read_exact_at(&mut bytes, at).expect("read");
                u32::from_le_bytes(bytes)
            };
            while !stopped.load(Ordering::Relaxed) {
                // Every command is answered with success; status blocks and slots are what no ring can have.
                file.write_all_at(&word(324).to_le_bytes(), 260).expect("written");
                file.write_all_at(&[0xff; 64], 4224).expect("written");
                file.write_all_at(&[0xff; 128], 4224 + 64).expect("written");
                for fd in &vectors {
                    let _ = rustix::io::write(fd, &1u64.to_ne_bytes());
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        Confused { dir, stop }
    }

    fn socket(&self) -> String {
        self.dir.path().join("s").display().to_string()
    }
}

impl Drop for Confused {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Objective: a header of a version that the driver does not know, or that cannot be, is refused in dmesg, memory that is no ptnet device's is left alone,
/// and a host that says nonsense about rings that run does not bring the guest down.
#[test]
fn confused_hosts() {
    let _one = ONE.lock();
    let Some(image) = image() else { return };
    let hosts = [
        (&[(2, 99)][..], "speaks version 99"),
        (&[(0, 7)], "not ours"),
        (&[(6, 0)], "number of tx rings makes no sense: 0"),
        (&[(5, 9)], "number of vectors makes no sense: 9"),
        (&[(8, 1 << 20)], "number of slots makes no sense"),
        (&[(10, 100)], "buffer size makes no sense: 100"),
        (&[(11, 1 << 30)], "buffers makes no sense"),
        (&[(21, 1)], "rings makes no sense"),
        (&[], "the host says slot 4294967295 of 64"),
    ];
    let confused: Vec<Confused> = hosts.iter().map(|(change, _)| Confused::start(change)).collect();
    let (last, others) = confused.split_last().expect("hosts");
    let more: Vec<String> = others
        .iter()
        .enumerate()
        .flat_map(|(i, host)| {
            let chardev = format!("socket,id=more{i},path={}", host.socket());
            let device = format!("ivshmem-doorbell,chardev=more{i},vectors=3");
            ["-chardev".to_owned(), chardev, "-device".to_owned(), device]
        })
        .collect();
    let script = "ip addr add 10.1.0.2/24 dev eth0; ip link set eth0 up; ping -c 3 -i 0.3 10.1.0.1; sleep 5; dmesg; ls /sys/class/net";
    let path = PathBuf::from(last.socket());
    let shown = Guest::start(image, script, 2, &Nic { ptnet: 3, more: &more, ..Nic::new(&path) }).end();
    for (_, text) in hosts {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    assert!(!shown.contains("eth1"), "{shown}");
    no_complaints(&shown);
}
