//! `netvale upgrade` under traffic: vhost-user devices and drivers of one daemon, and virtual machines, continue in the
//! next daemon.

use crate::common;
use crate::common::guest;
use crate::common::up;

use guest::{Guest, Nic, RECEIVE, alone, image};
use netvale_harness::Pretender;
use up::{Up, until};

fn attach(up: &Up, line: &str) {
    common::stdout(&up.run(&format!("attach {line}")));
}

/// Creates two cables, each of a device and a driver on two switches. Numbered frames cross one cable from device to
/// driver, and the other cable from driver to device, while the daemon is replaced ten times, and three more attempts
/// fail.
fn cables(options: &str) {
    let _one = alone();
    let up = Up::start(&[]);
    for (name, device, driver) in [("down", "vale0", "vale1"), ("up", "vale3", "vale2")] {
        let socket = up.path(&format!("{name}.sock"));
        attach(&up, &format!("{device} vhost:{} --lossless", socket.display()));
        attach(&up, &format!("{driver} virtio:{} --lossless {options}", socket.display()));
        until("the device runs", || up.notes(&format!("{driver}:{name}")).contains("device runs"));
    }
    let receivers = ["vale1", "vale3"].map(|switch| {
        attach(&up, &format!("{switch} {switch}:there --lossless"));
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
        up.upgrade();
        if round % 3 == 2 {
            // A successor disconnects during the hand-over, while further items are still in the socket.
            let taken = Pretender::admitted(up.dir()).and_then(|pretender| pretender.take(3));
            assert_eq!(taken.expect("it hands over"), 3);
        }
    }
    for program in senders.into_iter().chain(receivers) {
        let output = program.output();
        let text = common::stdout(&output);
        assert!(!text.contains("Sequence") || text.contains("Sequence: 0 frames missing, 0 out of order"), "{text}");
    }
    for (device, driver) in [("vale0:down", "vale1:down"), ("vale3:up", "vale2:up")] {
        assert!(up.notes(driver).contains("device runs"), "{}", up.notes(driver));
        assert!(up.notes(device).contains("front end connected"), "{}", up.notes(device));
        assert!(!up.notes(device).contains("earlier front ends"), "{}", up.notes(device));
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
    let _one = alone();
    let Some(image) = image() else { return };
    let up = Up::start(&[]);
    let sockets = ["one", "two"].map(|name| up.path(&format!("{name}.sock")));
    sockets.iter().for_each(|socket| attach(&up, &format!("vale0 vhost:{}", socket.display())));
    let mut receiver = Guest::start(image, RECEIVE, 1, &Nic::new(&sockets[0]));
    receiver.expect("ready");
    let mut sender = Guest::start(image, SEND, 2, &Nic { device: ",packed=on", ..Nic::new(&sockets[1]) });
    sender.expect("reached");
    let idle = |port: &str| -> u64 {
        let shown = up.show(port);
        let rings = shown["rings"].as_array().into_iter().flatten();
        rings.filter_map(|ring| ring["idle"].as_u64()).sum()
    };
    // Frames from before the guests were up do not count.
    let before = ["vale0:one", "vale0:two"].map(idle);
    for _ in 0..10 {
        up.upgrade();
    }
    let after = ["vale0:one", "vale0:two"].map(idle);
    let theirs = sender.end();
    let ours = receiver.end();
    assert_eq!(before, after);
    guest::same_file(&ours, &theirs);
    for port in ["vale0:one", "vale0:two"] {
        assert!(!up.notes(port).contains("earlier front ends"), "{}", up.notes(port));
    }
}
