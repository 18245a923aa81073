//! Tests of front ends that violate the protocol: each such front end is disconnected with a reason, and the next front
//! end is served.

use crate::common;
use crate::common::raw;

use std::os::fd::OwnedFd;

use common::{End, cross, frame, give, take, until};
use netvale_vhost::frontend::BackEnd;
use netvale_vhost::proto::message::request;
use netvale_virtio::driver::options::DriverOptions;
use netvale_virtio::driver::port::VirtioPort;
use netvale_virtio::memory::RegionSpec;
use netvale_wire::offload::Offload;
use raw::{Raw, SIZE, file, put, rig, whole};
use rustix::event::epoll::CreateFlags;
use rustix::fs::ftruncate;

/// Returns a file as large as the guest's memory, on a file system that is not in memory.
fn on_a_disk() -> OwnedFd {
    let file = tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    file.set_len(SIZE).unwrap();
    file.into()
}

/// Objective: every message that breaks a rule ends the connection with a sentence that names the rule, and the port
/// then serves a well-behaved driver.
#[test]
fn a_bad_message_ends_the_connection_by_its_rule() {
    type Act = fn(&Raw);
    let acts: [(&str, Act); 23] = [
        ("not version 1", |r| {
            let _ = std::io::Write::write_all(&mut &r.0, &[1, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]);
        }),
        ("a payload of 4294967295 bytes", |r| {
            let _ = std::io::Write::write_all(&mut &r.0, &[1, 0, 0, 0, 1, 0, 0, 0, 255, 255, 255, 255]);
        }),
        ("unknown", |r| r.number(99, 0)),
        ("wrong size", |r| r.say(request::SET_FEATURES, vec![0; 3], Vec::new())),
        ("were not offered", |r| r.number(request::SET_FEATURES, 1 << 63)),
        ("were not offered", |r| r.number(request::SET_PROTOCOL_FEATURES, 1 << 63)),
        ("queue 9 does not exist", |r| r.number(request::SET_VRING_NUM, 9 | 8 << 32)),
        ("out of range", |r| r.number(request::SET_VRING_NUM, 0xffff_ffff << 32)),
        ("wrong number of descriptors: 0", |r| r.memory(&[whole()], Vec::new())),
        ("wrong number of descriptors: 1", |r| r.say(request::SET_OWNER, Vec::new(), vec![file()])),
        ("overlap", |r| r.memory(&[whole(), whole()], vec![file(), file()])),
        // The file's file system may never supply a page.
        ("not in memory", |r| r.memory(&[whole()], vec![on_a_disk()])),
        ("the end of its file", |r| r.memory(&[RegionSpec { size: 2 * SIZE, ..whole() }], vec![file()])),
        ("out of range", |r| r.say(request::SET_LOG_BASE, [0xff; 16].to_vec(), vec![file()])),
        ("the end of its file", |r| {
            r.say(request::SET_LOG_BASE, [2 * SIZE, 0].iter().flat_map(|w| w.to_le_bytes()).collect(), vec![file()]);
        }),
        ("wrong size", |r| r.say(request::SEND_RARP, vec![0; 6], Vec::new())),
        ("out of range", |r| r.say(request::GET_INFLIGHT_FD, [0xff; 24].to_vec(), Vec::new())),
        ("the end of its file", |r| {
            let words = [2 * SIZE, 0, 2 | 8 << 16];
            r.say(request::SET_INFLIGHT_FD, words.iter().flat_map(|w| w.to_le_bytes()).collect(), vec![file()]);
        }),
        // A write to such a descriptor would not wake a guest, or could take arbitrarily long.
        ("request 13 has a descriptor that is not an eventfd", |r| r.bell(request::SET_VRING_CALL, file())),
        ("request 12 has a descriptor that is not an eventfd", |r| {
            r.bell(request::SET_VRING_KICK, rustix::event::epoll::create(CreateFlags::CLOEXEC).unwrap());
        }),
        ("request 14 has a descriptor that is not an eventfd", |r| {
            r.bell(request::SET_VRING_ERR, std::os::unix::net::UnixStream::pair().unwrap().0.into());
        }),
        ("outside the guest's memory", |r| r.start(0, 0)),
        ("outside the guest's memory", |r| {
            r.memory(&[whole()], vec![file()]);
            r.start(0, SIZE - 8);
        }),
    ];
    let mut rig = rig();
    for (says, act) in acts {
        let raw = Raw::new(&rig.path);
        until("connected", || rig.device.state().connected);
        act(&raw);
        until(says, || rig.device.state().last_error.is_some_and(|e| e.contains(says)));
        drop(raw);
    }
    let (driver, queues) = VirtioPort::new(BackEnd(rig.path.clone().into()), DriverOptions::default()).unwrap();
    let mut driver_end = End::first(queues);
    until("both run", || driver.state().now.running && rig.device.state().now.queues == 2);
    take(&mut driver_end, |_| ());
    let frames = vec![(frame(60, 1), Offload::None); 100];
    assert!(cross(&driver_end, &mut rig.end, &frames, 8) == frames);
}

/// Objective: a front end that stops mid-message blocks neither the switch nor the removal of the port.
#[test]
fn half_a_message_blocks_nothing() {
    let rig = rig();
    let raw = Raw::new(&rig.path);
    std::io::Write::write_all(&mut &raw.0, &[1, 0, 0]).unwrap();
    until("connected", || rig.device.state().connected);
    assert_eq!(give(&rig.end, &[(frame(60, 1), Offload::None)]), 1);
    drop(rig);
}

/// Objective: a ring with a jump or a loop, or the loss of its memory, stops the queue with a reason that names the
/// fault.
#[test]
fn bad_rings_stop_their_queue_with_the_reason() {
    // Contents of the transmit queue's rings: descriptors at 0x1000, available ring at 0x1100.
    let loops = |m: &OwnedFd| {
        put(m, 0x1000, &[0x2000, 60 | 1 << 32]);
        put(m, 0x1100, &[1 << 16]);
    };
    let jumps = |m: &OwnedFd| put(m, 0x1100, &[9 << 16]);
    let outside = |m: &OwnedFd| {
        put(m, 0x1000, &[SIZE - 8, 60]);
        put(m, 0x1100, &[1 << 16]);
    };
    let head = |m: &OwnedFd| put(m, 0x1100, &[1 << 16 | 8 << 32]);
    let gone = |m: &OwnedFd| {
        put(m, 0x1000, &[0x2000, 60]);
        put(m, 0x1100, &[1 << 16]);
    };
    type Act<'a> = &'a dyn Fn(&OwnedFd);
    let acts: [(&str, Act<'_>); 5] = [
        ("longer than the queue, or loops", &loops),
        ("avail.idx moved by more than the queue's size", &jumps),
        ("a buffer lies outside", &outside),
        ("begins at a descriptor outside the table", &head),
        ("its file was cut short", &gone),
    ];
    let mut rig = rig();
    for (says, act) in acts {
        let raw = Raw::new(&rig.path);
        let memory = file();
        raw.number(request::SET_FEATURES, 1 << 32);
        raw.memory(&[whole()], vec![memory.try_clone().unwrap()]);
        act(&memory);
        raw.start(1, 0x1000);
        until("the queue runs", || rig.device.state().now.queues == 1);
        if says.contains("cut short") {
            ftruncate(&memory, 0).unwrap();
        }
        until(says, || {
            take(&mut rig.end, |_| ());
            rig.device.state().last_error.is_some_and(|e| e.contains(says))
        });
        drop(raw);
        until("gone", || !rig.device.state().connected);
    }
}
