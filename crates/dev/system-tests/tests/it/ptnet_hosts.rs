//! Hosts that end and are restarted, and faulty hosts, from a ptnet guest's point of view.

use crate::common::guest;
use crate::common::ptnet as machines;
use crate::common::up;

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use guest::{Guest, Nic, alone, image};
use machines::{LOOP, STAND, no_complaints};
use rustix::process::Signal;
use up::{Up, until};

/// Objective: a daemon that is killed and restarted by a service manager continues to serve the same guests: they only
/// notice a pause.
#[test]
fn guests_survive_a_restart_of_the_daemon() {
    let _one = alone();
    let Some(image) = image() else { return };
    let dir = netvale_harness::daemon::scratch("guests").expect("a folder");
    let sockets = ["one", "two"].map(|name| dir.path().join(name));
    let up = Up::managed(&["--allow-dir", dir.path().to_str().expect("text")]);
    for (name, socket) in ["one", "two"].iter().zip(&sockets) {
        up.must(&["attach", "vale0", "--name", name, "--vnet-hdr", "12", &format!("ptnet:{}", socket.display())]);
    }
    let nic = |i: usize| Nic { ptnet: 3, ..Nic::new(&sockets[i]) };
    let mut standing = Guest::start(image, STAND, 1, &nic(0));
    standing.expect("ready");
    let mut guest = Guest::start(image, LOOP, 2, &nic(1));
    guest.expect("reached");
    up.restart(Signal::KILL);
    // The new daemon continues the ports with the stored state of their guests.
    guest.say("again");
    guest.expect("reached");
    guest.say("off");
    guest.end();
    let peers = |port: &str| up.notes(port);
    until("the guest's port is free", || peers("vale0:two").contains("waits"));
    assert!(!peers("vale0:one").contains("waits"), "{}", peers("vale0:one"));
    drop(standing);
}

/// A faulty host: its memory has a wrong header; it obeys every command, and then writes invalid values.
struct Confused {
    dir: tempfile::TempDir,
    stop: Arc<AtomicBool>,
}

/// Returns the header of a ptnet device's memory as words, with the changes `change`; see docs/reference/ptnet.md.
fn header(change: &[(usize, u32)]) -> Vec<u32> {
    let mut words = vec![0u32; 1024];
    words[..2].copy_from_slice(&[0x7470_766e, 0x0074_656e]);
    // Version, bytes, features, vectors, rings, slots, bytes per buffer, buffers.
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
        let stopped = Arc::clone(&stop);
        let header = header(change);
        std::thread::spawn(move || {
            let file = tempfile::tempfile().expect("a file");
            file.set_len(1 << 22).expect("room");
            let bytes: Vec<u8> = header.iter().flat_map(|word| word.to_le_bytes()).collect();
            file.write_all_at(&bytes, 0).expect("written");
            let (socket, _) = listener.accept().expect("a guest");
            let bell = || rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).expect("an eventfd");
            let (doorbells, vectors): (Vec<OwnedFd>, Vec<OwnedFd>) = (0..3).map(|_| (bell(), bell())).unzip();
            let say = |number: i64, fd: Option<std::os::fd::BorrowedFd<'_>>| {
                let flags = rustix::net::SendFlags::empty();
                netvale_fdio::send(&socket, &number.to_le_bytes(), fd.as_slice(), flags).expect("sent");
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
                // Every command is answered with success; status blocks and slots have values that no ring can have.
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

/// Objective: a header with an unknown version, or with impossible values, is refused in dmesg; memory that is not a
/// ptnet device's is not used; invalid values in running rings do not bring the guest down.
#[test]
fn a_confused_host_does_not_bring_the_guest_down() {
    let _one = alone();
    let Some(image) = image() else { return };
    let hosts = [
        (&[(2, 99)][..], "ptnet version 99"),
        (&[(0, 7)], "not a ptnet device"),
        (&[(6, 0)], "number of tx rings in the header: 0"),
        (&[(5, 9)], "number of vectors in the header: 9"),
        (&[(8, 1 << 20)], "number of slots in the header"),
        (&[(10, 100)], "buffer size in the header: 100"),
        (&[(11, 1 << 30)], "buffers in the header"),
        (&[(21, 1)], "rings in the header"),
        (&[], "invalid slot 4294967295 of 64"),
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
    let script = "ip addr add 10.1.0.2/24 dev eth0; ip link set eth0 up; ping -c 3 -i 0.3 10.1.0.1; sleep 5; \
                  dmesg; ls /sys/class/net";
    let path = PathBuf::from(last.socket());
    let shown = Guest::start(image, script, 2, &Nic { ptnet: 3, more: &more, ..Nic::new(&path) }).end();
    for (_, text) in hosts {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    assert!(!shown.contains("eth1"), "{shown}");
    no_complaints(&shown);
}
