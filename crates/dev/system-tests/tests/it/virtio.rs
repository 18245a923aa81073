//! Both ends of vhost-user in one daemon: a device on one switch and a driver on another, as a cable between them.

use crate::common;
use crate::common::up;

use up::{Up, until};

/// Asserts that frames cross the cable, and that `netvale show` reports the given path.
fn cable(options: &str, path: &str) {
    let up = Up::start(&[]);
    let socket = up.path("cable.sock");
    common::stdout(&up.run(&format!("attach vale0 vhost:{}", socket.display())));
    common::stdout(&up.run(&format!("attach vale1 virtio:{} {options}", socket.display())));
    let notes = || up.notes("vale1:cable");
    until("the device runs", || notes().contains("device runs"));
    assert!(notes().contains(&format!("path: {path}")), "{}", notes());
    let receiver = up.start_program("pkt-gen -i vale1:there -f rx -n 500 --json");
    up.wait_for_port("vale1:there");
    // The receiver also counts frames to other addresses, because a switch floods frames to unknown addresses.
    common::stdout(&up.run("pkt-gen -i vale0:here -f tx -n 500 -R 20000"));
    assert_eq!(up::last_json(&receiver.output())["frames"], 500);
    assert_eq!(up.frames("vale1:cable", "in"), 500);
}

#[test]
fn frames_cross_with_mergeable_buffers_in_order() {
    cable("", "split, mergeable, in order");
}

#[test]
fn frames_cross_with_buffers_in_any_order() {
    cable("--no-in-order --no-mergeable", "split, non-mergeable\"");
}

#[test]
fn frames_cross_by_the_vector_path() {
    cable("--vector", "split, non-mergeable, in order, vector (");
}

#[test]
fn frames_cross_by_the_packed_vector_path() {
    cable("--vector --packed", "packed, non-mergeable, in order, vector (");
}
