//! What another process says of a port is checked, and refused by name.

use crate::common;
use crate::common::processes;
use crate::common::raw;

use std::os::fd::OwnedFd;

use common::{take, until};
use netvale_port::service::Paused;
use netvale_vhost::port::continued::Given;
use netvale_vhost::port::{VhostError, VhostPort};
use netvale_vhost::proto::message::Message;
use netvale_virtio::driver::options::DriverOptions;
use netvale_virtio::driver::port::continued;
use processes::{Device, Driver, connected, read, written};
use raw::{file, started};
use rustix::event::{EventfdFlags, eventfd};
use serde_json::Value;

/// What must be said of it, and what it does.
type Forgery<'a> = (&'a str, &'a dyn Fn(&mut Value, &mut Vec<OwnedFd>));

type Continued = Result<(VhostPort, netvale_virtio::Queues, Paused), VhostError>;

/// Objective: what another process says of a driver is checked, and refused by name.
#[test]
fn forged_driver() {
    let device = Device::new(1);
    let driver = Driver::new(&device, DriverOptions { size: 32, ..DriverOptions::default() });
    let eventfd = || eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    let forgeries: &[Forgery<'_>] = &[
        ("number of its descriptors", &|_, fds| drop(fds.pop())),
        ("number of its descriptors", &|_, fds| fds.push(eventfd())),
        ("cannot be reached", &|_, fds| fds[0] = eventfd()),
        ("its memory", &|_, fds| fds[1] = eventfd()),
        ("its memory", &|_, fds| fds[1] = file()),
        ("no eventfd", &|_, fds| fds[2] = file()),
        ("would not have", &|s, _| s["device"]["queues"]["at"] = Value::Array(vec![])),
        ("would not have", &|s, _| s["device"]["queues"]["at"][0]["size"] = 33.into()),
        ("queue 1", &|s, _| s["device"]["queues"]["at"][1]["buffers"]["any"]["free"] = Value::Array(vec![])),
        ("queue 1", &|s, _| {
            s["device"]["queues"]["at"][1]["buffers"] = serde_json::json!({"ordered": {"oldest": 0, "posted": []}})
        }),
        ("would not have", &|s, _| s["device"]["queues"] = serde_json::json!({"left": [32, 33]})),
        // A size that rings of this length cannot have been left with.
        ("its memory", &|s, _| s["device"]["queues"] = serde_json::json!({"left": [4096, 4096]})),
    ];
    for (i, (why, forge)) in forgeries.iter().enumerate() {
        let continued::Given { state, mut fds, paused } = driver.given();
        let mut said = serde_json::to_value(&state).unwrap();
        forge(&mut said, &mut fds);
        let refused = driver.continued(&serde_json::from_value(said).unwrap(), fds);
        let text = refused.err().unwrap_or_else(|| panic!("forgery {i} ({why}) passes")).to_string();
        assert!(text.contains(why), "forgery {i}: {text}, not {why}");
        drop(paused);
    }
    assert!(driver.port.state().now.running && device.port.state().connections == 1);
}

/// Objective: what another process says is checked as if a front end had said it, and refused by name; the one that
/// goes on instead is not harmed.
#[test]
fn forged() {
    let mut device = Device::new(1);
    let (raw, _memory) = started(&device.path());
    let eventfd = || eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    let forgeries: &[Forgery<'_>] = &[
        ("without the descriptors", &|_, fds| drop(fds.pop())),
        ("without the descriptors", &|_, fds| fds.push(eventfd())),
        ("without the descriptors", &|_, fds| fds.truncate(1)),
        ("without the descriptors", &|s, _| s["listens"] = false.into()),
        ("without the descriptors", &|s, _| s["kicks"] = Value::Array(vec![])),
        ("without the descriptors", &|s, _| drop(s["peer"]["device"]["rings"].as_array_mut().unwrap().pop())),
        ("without the descriptors", &|s, _| s["peer"]["device"]["regions"][0][1] = u64::MAX.into()),
        ("continue its socket", &|_, fds| fds[0] = eventfd()),
        ("no UNIX stream socket", &|_, fds| fds[1] = eventfd()),
        ("not in memory", &|_, fds| fds[2] = eventfd()),
        ("no eventfd", &|_, fds| fds[3] = file()),
        ("behind its file", &|s, _| s["peer"]["device"]["regions"][0][0]["size"] = u64::from(u32::MAX).into()),
        ("wraps around", &|s, _| s["peer"]["device"]["regions"][0][0]["guest"] = u64::MAX.into()),
        ("features", &|s, _| s["peer"]["device"]["features"] = u64::MAX.into()),
        ("features", &|s, _| s["peer"]["device"]["protocol"] = u64::MAX.into()),
        ("queue 1", &|s, _| s["peer"]["device"]["rings"][1]["addresses"]["desc"] = 1.into()),
        ("queue 1", &|s, _| s["peer"]["device"]["rings"][1]["addresses"] = Value::Null),
        ("out of range", &|s, _| s["peer"]["device"]["rings"][1]["size"] = 40_000.into()),
        ("unread bytes", &|s, _| s["peer"]["unread"][0] = Message::new(1, vec![]).bytes().into()),
        ("version 1", &|s, _| s["peer"]["unread"][0] = vec![0u8; 12].into()),
        ("without the descriptors", &|s, _| s["peer"]["unread"][1] = 100.into()),
    ];
    for (i, (why, forge)) in forgeries.iter().enumerate() {
        let Given { state, mut fds, paused } = device.given();
        let mut said = written(&state);
        forge(&mut said, &mut fds);
        let refused: Continued = VhostPort::continued(&device.options, read(said), fds);
        let text = refused.err().unwrap_or_else(|| panic!("forgery {i} ({why}) passes")).to_string();
        assert!(text.contains(why), "forgery {i}: {text}, not {why}");
        drop(paused);
        raw.sync();
    }
    let mut got = 0;
    until("the frame in the ring", || {
        got += take(&mut device.end, |_| ());
        got == 1
    });
    device.succeed();
    raw.sync();
    assert_eq!(take(&mut device.end, |_| ()), 0, "not again");
}

/// Objective: a packed ring's position outside of it is refused.
#[test]
fn forged_position() {
    let device = Device::new(1);
    let (_driver, _end) = connected(&device, DriverOptions { packed: true, size: 32, ..DriverOptions::default() });
    for position in [32u32, 32 << 16 | 1, 0x7fff] {
        let Given { state, fds, .. } = device.given();
        let mut said = written(&state);
        said["peer"]["device"]["rings"][0]["position"] = position.into();
        let refused = VhostPort::continued(&device.options, read(said), fds).err().expect("refused").to_string();
        assert!(refused.contains("queue 0"), "{refused}");
    }
}
