//! Forged items of a predecessor: a successor checks items as it checks the input of an untrusted peer.

use crate::common::{self, inside_as_root};

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use netvale_afxdp::Nic;
use netvale_afxdp::iface::Interface;
use netvale_afxdp::socket::{BufferLayout, HEADROOM, XdpReceiver};
use netvale_fdio::state::{Fd, State};
use netvale_mem::mapping::{PageKind, sealed_memfd};
use netvale_tap::{Tap, TapOptions};
use rustix::fs::{Mode, OFlags, fcntl_setfl, open};

fn opened(path: &str, flags: OFlags) -> OwnedFd {
    open(path, flags | OFlags::CLOEXEC, Mode::empty()).unwrap()
}

/// Objective: a TAP is restored only from all of its own queues, which must be nonblocking; any other descriptors are
/// refused with the reason.
#[test]
fn only_queues_of_that_tap_are_accepted() {
    if !inside_as_root() {
        return;
    }
    let tap = |name: &str, queues| {
        Tap::open(&TapOptions { name: name.into(), queues, ..TapOptions::default() }).unwrap().into_queues()
    };
    let several = tap("nvt0", 2);
    let one = tap("nvt1", 1);
    let again = |fds: &[OwnedFd]| fds.iter().map(|fd| fd.try_clone().unwrap()).collect::<Vec<_>>();
    let refused = |name: &str, fds: Vec<OwnedFd>| Tap::restore(name, true, fds).unwrap_err().to_string();
    let rw = OFlags::RDWR;
    let nonblock = OFlags::NONBLOCK;
    assert!(refused("nvt0", Vec::new()).contains("0 descriptors received"));
    assert!(refused("nvt0", vec![opened("/dev/net/tun", OFlags::PATH)]).contains("reading and writing"));
    assert!(refused("nvt0", vec![opened("/dev/net/tun", OFlags::RDONLY)]).contains("reading and writing"));
    assert!(refused("nvt0", vec![opened("/dev/null", rw)]).contains("expected an open /dev/net/tun"));
    assert!(refused("nvt0", vec![opened("/dev/net/tun", rw | nonblock)]).contains("no interface"));
    assert!(refused("nvt0", again(&one)).contains("interface nvt1: expected nvt0"));
    let mixed = again(&several[..1]).into_iter().chain(again(&one)).collect();
    assert!(refused("nvt0", mixed).contains("interface nvt1: expected nvt0"));
    assert!(refused("nvt0", again(&several[..1])).contains("another number of queues"));
    fcntl_setfl(&one[0], rw).unwrap();
    assert!(refused("nvt1", again(&one)).contains("blocking"));
    fcntl_setfl(&one[0], rw | nonblock).unwrap();
    let tap = Tap::restore("nvt0", true, again(&several)).unwrap();
    assert_eq!((tap.name(), tap.has_uso()), ("nvt0", true));
    assert_eq!(tap.into_queues().len(), 2);
    assert_eq!(Tap::restore("nvt1", false, again(&one)).unwrap().name(), "nvt1");
}

/// Splits a state into JSON and descriptors, as when the state is sent on a socket.
fn written(state: &impl serde::Serialize) -> (serde_json::Value, Vec<OwnedFd>) {
    let (said, fds) = State::of(state).unwrap().into_parts();
    (said, Fd::take_all(fds).unwrap())
}

/// Objective: an interface is restored only with its own program, map and socket; substitutes are refused with the
/// reason, and the interface keeps its own program, map and socket.
#[test]
fn an_interface_refuses_substitutes_by_name() {
    if !inside_as_root() {
        return;
    }
    common::cable("nva", "nvb", 2);
    let a = Nic::open("nva").unwrap();
    let b = Nic::open("nvb").unwrap();
    let (said, own) = written(&a.save().unwrap());
    let (_, others) = written(&b.save().unwrap());
    let program = a.interface().program();
    let with = |at: usize, other: &OwnedFd| -> Vec<OwnedFd> {
        own.iter().enumerate().map(|(i, fd)| if i == at { other } else { fd }.try_clone().unwrap()).collect()
    };
    let restored = |interface: Interface, fds: Vec<OwnedFd>| {
        let state = State::from_parts(said.clone(), fds).read();
        state.and_then(|state| Nic::restore(interface, a.mode(), false, state)).map_err(|e| e.to_string())
    };
    let go_on = |fds: Vec<OwnedFd>| restored(a.interface().clone(), fds);
    let refused = |fds| go_on(fds).unwrap_err();
    let null = opened_null();
    for at in [0, 1] {
        assert_eq!(refused(with(at, &null)), "a descriptor is not a BPF object");
    }
    assert_eq!(refused(with(0, &own[1])), "a BPF map has the wrong type or size");
    assert_eq!(refused(with(1, &own[0])), "a BPF link has the wrong type or interface");
    assert_eq!(refused(with(1, &others[1])), "a BPF link has the wrong type or interface");
    assert_eq!(refused(with(2, &own[0])), "a descriptor is not a socket of the expected family");
    let with_barrier = |numbers: serde_json::Value, more: usize| {
        let mut said = said.clone();
        said["barrier"] = numbers;
        let fds = with(0, &own[0]).into_iter().chain((0..more).map(|_| opened_null())).collect::<Vec<_>>();
        let state = State::from_parts(said, fds).read();
        state.and_then(|state| Nic::restore(a.interface().clone(), a.mode(), false, state)).map(drop).unwrap_err()
    };
    assert!(with_barrier(serde_json::json!([3]), 1).to_string().contains("invalid length 1"));
    assert_eq!(with_barrier(serde_json::json!([3, 4]), 2).to_string(), "a descriptor is not a BPF object");
    assert!(refused(Vec::new()).contains("is missing"));
    assert!(refused([with(0, &own[0]), with(0, &own[0])].into_iter().flatten().collect()).contains("is left over"));
    let wrong = |change: fn(&mut Interface)| {
        let mut interface = a.interface().clone();
        change(&mut interface);
        restored(interface, with(0, &own[0])).unwrap_err()
    };
    assert_eq!(wrong(|i| i.name = "nosuch0".into()), "the interface does not exist");
    assert_eq!(wrong(|i| i.index += 100), "the interface has another index now");
    assert_eq!(wrong(|i| i.queues = 7), "a BPF map has the wrong type or size");
    queues(&a, &go_on(with(0, &own[0])).unwrap());
    assert_eq!(a.interface().program(), program);
}

/// Checks which queues of the interface `nic` are accepted by `heir`, the restored copy of that interface.
fn queues(nic: &Arc<Nic>, heir: &Arc<Nic>) {
    let memory = Arc::new(sealed_memfd("netvale-test", 1 << 20, PageKind::Ordinary).unwrap().1);
    let buffers = BufferLayout { first: 0, stride: 2112, count: 400 };
    let opened = nic.queue(0, 64, &memory, buffers).unwrap();
    opened.receive().unwrap();
    let _halves = (opened.socket.receiver().unwrap(), opened.socket.sender().unwrap());
    opened.bind().unwrap();
    let socket = || opened.socket.as_fd().try_clone_to_owned().unwrap();
    let refused = |number, entries, fd| {
        let result = heir.continue_queue(number, entries, &memory, buffers, fd);
        result.err().map(|e| e.to_string()).unwrap_or_default()
    };
    assert_eq!(refused(0, 64, opened_null()), "a descriptor is not a socket of the expected family");
    assert_eq!(refused(2, 64, socket()), "the queue's number exceeds the interface's queues");
    for entries in [0, 65, 1 << 20] {
        assert_eq!(refused(0, entries, socket()), "invalid number of ring entries");
    }
    let again = heir.continue_queue(0, 64, &memory, buffers, socket()).unwrap();
    assert_eq!(refused(0, 64, socket()), "the queue has already been restored");
    assert!(again.socket.receiver().is_ok());
    let larger = heir.continue_queue(1, 8192, &memory, buffers, socket()).unwrap();
    assert!(larger.socket.receiver().is_err(), "its rings are smaller");
}

fn opened_null() -> OwnedFd {
    opened("/dev/null", OFlags::RDWR)
}

/// Objective: a process that restores an interface, and ends before it has taken ownership, leaves the path of frames
/// unchanged; only a process that has ownership returns the queues to the stack.
#[test]
fn a_failed_heir_changes_nothing() {
    if !inside_as_root() {
        return;
    }
    common::cable("nva", "nvb", 1);
    common::heirs::address("nvb");
    let nic = Nic::open("nva").unwrap();
    let memory = Arc::new(sealed_memfd("netvale-test", 1 << 20, PageKind::Ordinary).unwrap().1);
    let buffers = BufferLayout { first: 0, stride: 2112, count: 400 };
    let opened = nic.queue(0, 64, &memory, buffers).unwrap();
    opened.receive().unwrap();
    let mut receiver = opened.socket.receiver().unwrap();
    let _sender = opened.socket.sender().unwrap();
    (1..60).for_each(|index| receiver.fill.put(buffers.at(index).unwrap() - HEADROOM));
    receiver.fill.publish();
    opened.bind().unwrap();
    let stack = std::net::UdpSocket::bind("10.9.0.1:0").unwrap();
    let comes = |receiver: &mut XdpReceiver| {
        receiver.rx.release();
        stack.send_to(b"a frame", (common::heirs::PEER, 9)).unwrap();
        netvale_harness::until(std::time::Duration::from_millis(500), std::time::Duration::ZERO, || {
            let came = receiver.rx.ready();
            for _ in 0..came {
                let _ = receiver.rx.take();
            }
            came > 0
        })
    };
    common::until("a frame", || comes(&mut receiver));
    let heir = || {
        let state = nic.save().unwrap();
        let heir = Nic::restore(nic.interface().clone(), nic.mode(), false, state).unwrap();
        let socket = opened.socket.as_fd().try_clone_to_owned().unwrap();
        let queue = heir.continue_queue(0, 64, &memory, buffers, socket).unwrap();
        (heir, queue)
    };
    drop(heir());
    assert!(comes(&mut receiver), "the queue was given back");
    let (owner, queue) = heir();
    owner.own();
    drop(queue);
    assert!(!comes(&mut receiver), "the queue was not given back");
}
