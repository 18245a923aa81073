//! Tests of ports that are restored in another process: the front end notices nothing, and no frame is lost, duplicated
//! or reordered.

use crate::common;
use crate::common::processes;
use crate::common::raw;

use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{End, take, until, wait};
use netvale_vhost::port::VhostPort;
use netvale_vhost::proto::message::{VhostMessage, request};
use netvale_virtio::driver::options::DriverOptions;
use processes::{Device, Driver, Stream, all_options, connected, other, sent, written};
use raw::{Raw, started};
use rustix::event::{EventfdFlags, eventfd};

/// Objective: in every layout, frames in both directions, including frames that are in the rings, survive ten
/// replacements of the device's process; the driver keeps its connection, and does not notice failed replacements
/// either.
#[test]
fn a_device_goes_on() {
    for options in all_options() {
        let mut device = Device::new(1);
        let (driver, mut driver_end) = connected(&device, options);
        let mut up = Stream::default();
        let mut down = Stream::default();
        for round in 0..10u32 {
            for batch in [1, 7, 13] {
                up.send(&driver_end, batch + round);
                down.send(&device.end, batch);
                up.receive(&mut device.end);
            }
            up.send(&driver_end, 5);
            if round % 3 == 2 {
                device.fail();
                up.send(&driver_end, 1);
            }
            device.succeed();
            down.send(&device.end, 3);
            up.receive_all(&mut device.end);
            down.receive_all(&mut driver_end);
        }
        let state = device.port.state();
        let driven = driver.state();
        assert!(state.connected && state.connections == 1 && state.last_error.is_none(), "{options:?}: {state:?}");
        assert!(driven.now.running && driven.connections == 1, "{options:?}: {driven:?}");
        drop((driver, driver_end));
        until("the device noticed", || !device.port.state().connected);
    }
}

/// Objective: in every layout, frames of both directions survive ten replacements of the driver's process, between
/// which the device's process is replaced. Neither end notices a replacement, not even one that fails.
#[test]
fn a_driver_goes_on() {
    for mut options in all_options() {
        options.vector = options.in_order && !options.mergeable;
        options.offloads = !options.vector;
        let mut device = Device::new(1);
        let mut driver = Driver::new(&device, options);
        let mut up = Stream::default();
        let mut down = Stream::default();
        for round in 0..10u32 {
            for batch in [1, 7, 11] {
                up.send(&driver.end, batch + round);
                down.send(&device.end, batch);
                down.receive(&mut driver.end);
            }
            down.send(&device.end, 4);
            up.receive(&mut device.end);
            up.send(&driver.end, 3);
            if round % 3 == 2 {
                driver.fail();
                down.send(&device.end, 1);
            }
            driver.succeed();
            up.send(&driver.end, 2);
            if round % 2 == 1 {
                device.succeed();
            }
            up.receive_all(&mut device.end);
            down.receive_all(&mut driver.end);
        }
        let state = device.port.state();
        let driven = driver.port.state();
        assert!(state.connected && state.connections == 1 && state.last_error.is_none(), "{options:?}: {state:?}");
        assert!(driven.now.running && driven.connections == 1, "{options:?}: {driven:?}");
    }
}

/// Objective: a driver that is restored while its device is away waits for the device, and frames from the device wake
/// the sleeping driver.
#[test]
fn a_driver_without_its_device() {
    let mut device = Device::new(1);
    let mut driver = Driver::new(&device, DriverOptions { packed: true, ..DriverOptions::default() });
    let mut down = Stream::default();
    for _ in 0..10 {
        driver.succeed();
        assert!(!driver.end.ingress.arm());
        down.send(&device.end, 1);
        wait(&mut driver.end);
        down.receive_all(&mut driver.end);
    }
    device.port = VhostPort::new(&other(&device)).unwrap().0;
    until("the driver noticed", || !driver.port.state().now.running);
    driver.succeed();
    assert_eq!(driver.port.state().connections, 1);
}

/// Objective: after a process is replaced, each end can still wake the other end from sleep, and the counts of kicks
/// are kept.
#[test]
fn sleepers_are_woken() {
    for packed in [false, true] {
        let mut device = Device::new(1);
        let (_driver, mut driver_end) = connected(&device, DriverOptions { packed, ..DriverOptions::default() });
        let mut up = Stream::default();
        let mut down = Stream::default();
        let mut calls = 0;
        for _ in 0..10 {
            assert!(!device.end.ingress.arm());
            device.succeed();
            assert!(!device.end.ingress.arm());
            assert!(!driver_end.ingress.arm());
            up.send(&driver_end, 1);
            wait(&mut device.end);
            up.receive_all(&mut device.end);
            down.send(&device.end, 1);
            wait(&mut driver_end);
            down.receive_all(&mut driver_end);
            let now = device.port.notifications().0;
            assert!(now > calls, "{now} calls after {calls}");
            calls = now;
        }
    }
}

/// Objective: a port without a front end is restored with its socket and the number of front ends so far; the next
/// front end is served, and the socket's file is removed at the end.
#[test]
fn without_a_front_end() {
    let mut device = Device::new(2);
    device.succeed();
    for round in 1..4 {
        let (driver, mut driver_end) = connected(&device, DriverOptions { pairs: 2, ..DriverOptions::default() });
        assert_eq!(device.port.state().connections, round);
        let mut up = Stream::default();
        up.send(&driver_end, 10);
        device.succeed();
        up.receive_all(&mut device.end);
        drop((driver, std::mem::replace(&mut driver_end, End::first(VhostPort::new(&other(&device)).unwrap().1))));
        until("the device noticed", || !device.port.state().connected);
        device.succeed();
    }
    let path = device.path();
    drop(device.port);
    assert!(!path.exists());
}

/// Objective: if only a part of a message has been received, the next process completes the message and gets its
/// descriptor, wherever the message was cut.
#[test]
fn half_a_message_is_completed_in_the_next_process() {
    for cut in 1..20 {
        let mut device = Device::new(1);
        let (raw, _memory) = started(&device.path());
        let call = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        let bytes = VhostMessage::new(request::SET_VRING_CALL, 1u64.to_le_bytes().to_vec()).bytes();
        let sent = call.try_clone().unwrap();
        send_with(&raw, &bytes[..cut], sent);
        until("the first part is read", || {
            let given = device.given();
            written(&given.0).0["peer"]["unread"]["bytes"].as_array().unwrap().len() == cut
        });
        device.succeed();
        (&raw.0).write_all(&bytes[cut..]).unwrap();
        raw.sync();
        let mut got = 0;
        until("the frame in the ring", || {
            got += take(&mut device.end, |_| ());
            got == 1
        });
        until("the call", || rustix::io::read(&call, &mut [0; 8]) == Ok(8));
    }
}

fn send_with(raw: &Raw, bytes: &[u8], fd: OwnedFd) {
    let sent = netvale_fdio::send(&raw.0, bytes, &[fd], rustix::net::SendFlags::empty());
    assert_eq!(sent, Ok(bytes.len()));
}

/// Objective: state saved at any time is enough to resume after an end without notice: a split ring shows its own
/// position, and the port's thread reports changes of the state. A front end that has a packed ring without an
/// in-flight record is disconnected with the reason.
#[test]
fn an_end_without_notice() {
    let mut device = Device::new(1);
    let changes = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&changes);
    device.port.on_change(move || {
        count.fetch_add(1, Ordering::Relaxed);
    });
    let (_driver, mut driver_end) = connected(&device, DriverOptions::default());
    assert!(changes.load(Ordering::Relaxed) > 0);
    let state = device.port.save().expect("a state");
    let mut up = Stream::default();
    let mut down = Stream::default();
    up.send(&driver_end, 100);
    down.send(&device.end, 50);
    up.receive_all(&mut device.end);
    up.send(&driver_end, 40);
    let changed = changes.load(Ordering::Relaxed);
    // Simulates an end without notice. The old port's thread stays paused, because it would otherwise still read from
    // the socket.
    std::mem::forget(device.given().1);
    let (port, queues, begins) = VhostPort::restore(&device.options, sent(&state)).unwrap();
    drop(begins);
    std::mem::forget(std::mem::replace(&mut device.port, port));
    std::mem::forget(std::mem::replace(&mut device.end, End::first(queues)));
    up.receive_all(&mut device.end);
    down.send(&device.end, 60);
    down.receive_all(&mut driver_end);
    assert_eq!(changes.load(Ordering::Relaxed), changed, "frames change nothing");

    let device = Device::new(1);
    let (_driver, _end) = connected(&device, DriverOptions { packed: true, ..DriverOptions::default() });
    let state = device.port.save().expect("a state");
    std::mem::forget(device.given().1);
    let (port, _queues, begins) = VhostPort::restore(&device.options, sent(&state)).unwrap();
    drop(begins);
    let state = port.state();
    assert!(!state.connected && state.connections == 1, "{state:?}");
    let why = state.last_error.unwrap_or_default();
    assert!(why.contains("the position of packed queue 0 is unknown"), "{why}");
}

/// Objective: a front end that replaces a descriptor changes the saved state, even if all numbers stay the same; a
/// front end that repeats the current values does not change it.
#[test]
fn an_exchanged_descriptor_is_a_change() {
    let device = Device::new(1);
    let (raw, _memory) = started(&device.path());
    raw.sync();
    let saved = || written(&device.port.save().expect("a state"));
    let changes = || saved().0["changes"].as_u64().unwrap();
    let before = changes();
    for count in 1..4 {
        let call = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        let bytes = VhostMessage::new(request::SET_VRING_CALL, 1u64.to_le_bytes().to_vec()).bytes();
        send_with(&raw, &bytes, call.try_clone().unwrap());
        until("the change is noted", || changes() == before + count);
        let (said, fds) = saved();
        let kept = said["peer"]["device"]["rings"][1]["call"].as_u64().unwrap();
        rustix::io::write(&fds[kept as usize], &1u64.to_ne_bytes()).unwrap();
        assert_eq!(rustix::io::read(&call, &mut [0; 8]), Ok(8), "the new one is kept");
    }
    raw.sync();
    assert_eq!(changes(), before + 3, "requests for values change nothing");
}
