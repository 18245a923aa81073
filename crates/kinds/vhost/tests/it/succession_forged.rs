//! Tests that a predecessor's state of a port is checked, and that the error names the wrong part.

use crate::common;
use crate::common::processes;
use crate::common::raw;

use std::os::fd::OwnedFd;

use common::{take, until};
use netvale_fdio::state::{BadState, State};
use netvale_port::service::PausedService;
use netvale_vhost::port::VhostPort;
use netvale_vhost::proto::message::VhostMessage;
use netvale_virtio::driver::options::DriverOptions;
use netvale_virtio::driver::port::VirtioPort;
use processes::{Device, Driver, connected, written};
use raw::{file, started};
use rustix::event::{EventfdFlags, eventfd};
use serde_json::Value;

/// A text that the error must contain, and a function that makes the state wrong.
type Forgery<'a> = (&'a str, &'a dyn Fn(&mut Value, &mut Vec<OwnedFd>));

type Restored<T> = Result<(T, netvale_virtio::VirtioQueues, PausedService), BadState>;

/// Objective: a predecessor's state of a driver is checked, and an error names the wrong part.
#[test]
fn a_forged_driver_is_refused_with_the_wrong_part() {
    let device = Device::new(1);
    let driver = Driver::new(&device, DriverOptions { size: 32, ..DriverOptions::default() });
    let eventfd = || eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    let forgeries: &[Forgery<'_>] = &[
        ("is missing", &|_, fds| drop(fds.pop())),
        ("is left over", &|_, fds| fds.push(eventfd())),
        ("named twice", &|s, _| s["device"]["calls"][0] = s["device"]["calls"][1].clone()),
        ("cannot be reached", &|_, fds| fds[0] = eventfd()),
        ("its memory", &|_, fds| fds[1] = eventfd()),
        ("its memory", &|_, fds| fds[1] = file()),
        ("not an eventfd", &|_, fds| fds[2] = file()),
        ("other queues", &|s, _| s["device"]["queues"]["at"] = Value::Array(vec![])),
        ("other queues", &|s, _| s["device"]["queues"]["at"][0]["size"] = 33.into()),
        ("queue 1", &|s, _| s["device"]["queues"]["at"][1]["buffers"]["any"]["free"] = Value::Array(vec![])),
        ("queue 1", &|s, _| {
            s["device"]["queues"]["at"][1]["buffers"] = serde_json::json!({"ordered": {"oldest": 0, "posted": []}})
        }),
        ("other queues", &|s, _| s["device"]["queues"] = serde_json::json!({"left": [32, 33]})),
        // The queues' sizes do not fit the length of the memory.
        ("its memory", &|s, _| s["device"]["queues"] = serde_json::json!({"left": [4096, 4096]})),
    ];
    for (i, (why, forge)) in forgeries.iter().enumerate() {
        let (state, paused) = driver.given();
        let (mut said, mut fds) = written(&state);
        forge(&mut said, &mut fds);
        let refused: Restored<VirtioPort> =
            State::from_parts(said, fds).read().and_then(|state| driver.restored(state));
        let text = refused.err().unwrap_or_else(|| panic!("forgery {i} ({why}) passes")).to_string();
        assert!(text.contains(why), "forgery {i}: {text}, not {why}");
        drop(paused);
    }
    assert!(driver.port.state().now.running && device.port.state().connections == 1);
}

/// Objective: a predecessor's state is checked like a front end's messages, and an error names the wrong part; a
/// predecessor that resumes afterwards still works.
#[test]
fn a_forged_state_is_refused_with_the_wrong_part() {
    let mut device = Device::new(1);
    let (raw, _memory) = started(&device.path());
    let eventfd = || eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    let forgeries: &[Forgery<'_>] = &[
        ("is missing", &|_, fds| drop(fds.pop())),
        ("is left over", &|_, fds| fds.push(eventfd())),
        ("is missing", &|_, fds| fds.truncate(1)),
        ("is left over", &|s, _| s["listener"] = Value::Null),
        ("another mode", &|s, fds| {
            s["listener"] = Value::Null;
            s["peer"] = Value::Null;
            fds.clear();
        }),
        ("other queues", &|s, _| s["kicks"] = Value::Array(vec![])),
        ("is left over", &|s, _| drop(s["peer"]["device"]["rings"].as_array_mut().unwrap().pop())),
        ("the number of saved queues", &|s, _| {
            let rings = s["peer"]["device"]["rings"].as_array_mut().unwrap();
            rings.push(serde_json::json!({
                "size": 0, "addresses": null, "log": false, "enabled": false, "started": false, "position": 0,
                "kick": null, "call": null
            }));
        }),
        ("belongs to no memory region", &|s, fds| {
            s["peer"]["device"]["files"].as_array_mut().unwrap().push(fds.len().into());
            fds.push(file());
        }),
        ("belongs to no memory region", &|s, _| s["peer"]["device"]["regions"][0][1] = u64::MAX.into()),
        ("a memory region has no file", &|s, _| {
            let regions = s["peer"]["device"]["regions"].as_array_mut().unwrap();
            let mut more = regions[0].clone();
            more[1] = u64::MAX.into();
            regions.push(more);
        }),
        ("restore its socket", &|_, fds| fds[0] = eventfd()),
        ("not a UNIX stream socket", &|_, fds| fds[1] = eventfd()),
        ("not in memory", &|_, fds| fds[2] = eventfd()),
        ("not an eventfd", &|_, fds| fds[3] = file()),
        ("the end of its file", &|s, _| s["peer"]["device"]["regions"][0][0]["size"] = u64::from(u32::MAX).into()),
        ("exceeds the address space", &|s, _| s["peer"]["device"]["regions"][0][0]["guest"] = u64::MAX.into()),
        ("features", &|s, _| s["peer"]["device"]["features"] = u64::MAX.into()),
        ("features", &|s, _| s["peer"]["device"]["protocol"] = u64::MAX.into()),
        ("queue 1", &|s, _| s["peer"]["device"]["rings"][1]["addresses"]["desc"] = 1.into()),
        ("queue 1", &|s, _| s["peer"]["device"]["rings"][1]["addresses"] = Value::Null),
        ("out of range", &|s, _| s["peer"]["device"]["rings"][1]["size"] = 40_000.into()),
        ("unread bytes", &|s, _| s["peer"]["unread"]["bytes"] = VhostMessage::new(1, vec![]).bytes().into()),
        ("version 1", &|s, _| s["peer"]["unread"]["bytes"] = vec![0u8; 12].into()),
        ("is missing", &|s, _| s["peer"]["unread"]["fds"] = serde_json::json!([100])),
        ("named twice", &|s, _| s["peer"]["unread"]["fds"] = serde_json::json!([0])),
    ];
    for (i, (why, forge)) in forgeries.iter().enumerate() {
        let (state, paused) = device.given();
        let (mut said, mut fds) = written(&state);
        forge(&mut said, &mut fds);
        let refused: Restored<VhostPort> =
            State::from_parts(said, fds).read().and_then(|state| VhostPort::restore(&device.options, state));
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

/// Objective: a saved position that is outside a packed ring is refused.
#[test]
fn a_position_outside_a_packed_ring_is_refused() {
    let device = Device::new(1);
    let (_driver, _end) = connected(&device, DriverOptions { packed: true, size: 32, ..DriverOptions::default() });
    for position in [32u32, 32 << 16 | 1, 0x7fff] {
        let (state, _paused) = device.given();
        let (mut said, fds) = written(&state);
        said["peer"]["device"]["rings"][0]["position"] = position.into();
        let state = State::from_parts(said, fds).read().unwrap();
        let refused = VhostPort::restore(&device.options, state).err().expect("refused").to_string();
        assert!(refused.contains("queue 0"), "{refused}");
    }
}
