//! `netvale upgrade` under traffic: vhost-user devices and drivers of one daemon, and virtual machines, continue in the
//! next daemon.

use crate::common;
use crate::common::guest;
use crate::common::up;

use std::os::fd::OwnedFd;
use std::sync::Mutex;

use guest::{Guest, Nic, image};
use netvale_control::attach::{AttachReply, REPLY_LEN};
use netvale_control::succession::{Succession, VERSION};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use up::{Up, until};

/// These tests use all CPUs: one runs at a time.
static ONE: Mutex<()> = Mutex::new(());

/// A daemon that is replaced by other processes.
struct Upgraded(Up);

impl Upgraded {
    fn start() -> Upgraded {
        Upgraded(Up::start(&[]))
    }

    fn attach(&self, line: &str) {
        common::stdout(&self.0.run(&format!("attach {line}")));
    }

    fn upgrade(&self) {
        self.0.upgrade();
    }

    /// Acts as a successor that disconnects during the hand-over.
    fn fail_to_upgrade(&self) {
        let socket = connect(&self.0);
        let mut answer = [0; REPLY_LEN];
        rustix::net::send(&socket, &Succession::Hello(VERSION).encode(), SendFlags::NOSIGNAL).unwrap();
        let (got, _) = rustix::net::recv(&socket, &mut answer[..], RecvFlags::empty()).unwrap();
        assert_eq!(AttachReply::decode(&answer[..got]).unwrap().status, 0);
        rustix::net::send(&socket, &Succession::Begin.encode(), SendFlags::NOSIGNAL).unwrap();
        let mut item = vec![0; 70_000];
        // Only the first items are read; the other items are still in the socket when it is closed.
        for _ in 0..3 {
            let (got, _) = rustix::net::recv(&socket, &mut item[..], RecvFlags::empty()).unwrap();
            assert!(got > 0);
        }
    }

    fn notes(&self, port: &str) -> String {
        self.0.show(port)["notes"].to_string()
    }
}

fn connect(up: &Up) -> OwnedFd {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    rustix::net::connect(&socket, &SocketAddrUnix::new(up.path("attach.sock")).unwrap()).unwrap();
    socket
}

/// Creates two cables, each of a device and a driver on two switches. Numbered frames cross one cable from device to
/// driver, and the other cable from driver to device, while the daemon is replaced ten times, and three more attempts
/// fail.
fn cables(options: &str) {
    let _one = ONE.lock();
    let daemon = Upgraded::start();
    let up = &daemon.0;
    for (name, device, driver) in [("down", "vale0", "vale1"), ("up", "vale3", "vale2")] {
        let socket = up.path(&format!("{name}.sock"));
        daemon.attach(&format!("{device} vhost:{} --lossless", socket.display()));
        daemon.attach(&format!("{driver} virtio:{} --lossless {options}", socket.display()));
        until("the device runs", || daemon.notes(&format!("{driver}:{name}")).contains("device runs"));
    }
    let receivers = ["vale1", "vale3"].map(|switch| {
        daemon.attach(&format!("{switch} {switch}:there --lossless"));
        let receiver = up.start_program(&format!("pkt-gen -i {switch}:there -f rxseq -n 30000 -N"));
        up.wait_for_port(&format!("{switch}:there"));
        receiver
    });
    let senders = ["vale0", "vale2"]
        .map(|switch| up.start_program(&format!("pkt-gen -i {switch}:here -f txseq -n 30000 -R 6000 -N")));
    for switch in ["vale0", "vale2"] {
        until("frames are sent", || up.frames(&format!("{switch}:here"), "in") > 0);
    }
    for round in 0..10 {
        daemon.upgrade();
        if round % 3 == 2 {
            daemon.fail_to_upgrade();
        }
    }
    for program in senders.into_iter().chain(receivers) {
        let output = program.output();
        let text = common::stdout(&output);
        assert!(!text.contains("Sequence") || text.contains("Sequence: 0 frames missing, 0 out of order"), "{text}");
    }
    for (device, driver) in [("vale0:down", "vale1:down"), ("vale3:up", "vale2:up")] {
        assert!(daemon.notes(driver).contains("device runs"), "{}", daemon.notes(driver));
        assert!(daemon.notes(device).contains("front end connected"), "{}", daemon.notes(device));
        assert!(!daemon.notes(device).contains("earlier front ends"), "{}", daemon.notes(device));
    }
}

/// Objective: no frame is lost, duplicated or out of order in split rings with mergeable buffers.
#[test]
fn split_cables_lose_no_frame_in_upgrades() {
    cables("--no-in-order");
}

/// Objective: no frame is lost, duplicated or out of order in packed rings without mergeable buffers.
#[test]
fn packed_cables_lose_no_frame_in_upgrades() {
    cables("--packed --no-mergeable");
}

const RECEIVE: &str = "
ip addr add 10.1.0.1/24 dev eth0; ip link set eth0 up
echo ready
nc -l -p 5000 >/tmp/file
md5sum /tmp/file
";

const SEND: &str = "
ip addr add 10.1.0.2/24 dev eth0; ip link set eth0 up
for i in $(seq 50); do ping -c 1 -W 1 10.1.0.1 >/dev/null && break; done
echo reached
dd if=/dev/urandom of=/tmp/file bs=64k count=64 2>/dev/null
md5sum /tmp/file
(
i=0
while [ $i -lt 16 ]; do dd if=/tmp/file bs=256k skip=$i count=1 2>/dev/null; sleep 0.5; i=$((i+1)); done
) | nc 10.1.0.1 5000
";

/// Objective: two virtual machines, one with packed rings, do not notice upgrades: a TCP connection is unaffected, no
/// frame meets a queue that is not ready, and no front end reconnects.
#[test]
fn guests_do_not_notice() {
    let _one = ONE.lock();
    let Some(image) = image() else { return };
    let daemon = Upgraded::start();
    let up = &daemon.0;
    let sockets = ["one", "two"].map(|name| up.path(&format!("{name}.sock")));
    sockets.iter().for_each(|socket| daemon.attach(&format!("vale0 vhost:{}", socket.display())));
    let mut receiver = Guest::start(image, RECEIVE, 1, &Nic::new(&sockets[0]));
    receiver.expect("ready");
    let mut sender = Guest::start(image, SEND, 2, &Nic { device: ",packed=on", ..Nic::new(&sockets[1]) });
    sender.expect("reached");
    let idle = |port: &str| -> u64 {
        let shown = daemon.0.show(port);
        let rings = shown["rings"].as_array().into_iter().flatten();
        rings.filter_map(|ring| ring["idle"].as_u64()).sum()
    };
    // Frames from before the guests were up do not count.
    let before = ["vale0:one", "vale0:two"].map(idle);
    for _ in 0..10 {
        daemon.upgrade();
    }
    let after = ["vale0:one", "vale0:two"].map(idle);
    let theirs = sender.end();
    let ours = receiver.end();
    assert_eq!(before, after);
    let sum = |text: &str| text.lines().find(|l| l.contains("/tmp/file")).map(|l| l[..32].to_owned());
    assert!(sum(&ours).is_some() && sum(&ours) == sum(&theirs), "{ours}\n{theirs}");
    for port in ["vale0:one", "vale0:two"] {
        assert!(!daemon.notes(port).contains("earlier front ends"), "{}", daemon.notes(port));
    }
}
