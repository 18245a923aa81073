//! Peers that make the descriptors with which the daemon wakes them blocking, and fill these descriptors. On every kind
//! of port, the worker continues to serve all other ports, and the peer loses its port, with a reason.

use crate::common;
use crate::common::published;

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use common::ports::attach_device;
use common::{Daemon, crosses, frame, receive, send, until};
use netvale::Port;
use netvale_abi::ptnet::COMMAND_START;
use netvale_e1000::driver::CardDriverOptions as CardOptions;
use netvale_e1000::driver::remote::SimulatedGuest as Card;
use netvale_guest::BareGuest;
use netvale_harness::attacks::bells::block;
use netvale_mem::fault::Fault;
use netvale_mem::notify::Doorbell;
use netvale_mem::words::Words;
use netvale_port::Ingress;
use netvale_port::listener::Listener;
use netvale_vhost::features::PROTOCOL_FEATURES;
use netvale_vhost::frontend::Frontend;
use netvale_vhost::proto::message::{VhostMessage, request};
use netvale_vhost::proto::wire::{self, ReceiveResult};
use netvale_virtio::driver::options::DriverOptions;
use netvale_virtio::driver::ram::BUF;
use netvale_virtio::driver::started::Kick;
use netvale_virtio::features::VERSION_1;
use published::{Driver, Plugged};
use serde_json::json;

/// Longest permitted delay of other ports' frames. Blocked calls are checked every quarter of a second, and the machine
/// may be busy.
const BOUND: Duration = Duration::from_secs(4);
const REASON: &str = "is full and blocks";

/// Starts a daemon with a device `bad` and two ports for programs. Returns also the path of the device's socket.
fn attached(kind: &str, options: serde_json::Value) -> (Daemon, PathBuf, [Port; 2]) {
    let d = Daemon::start("workers = 1");
    let path = attach_device(&d, kind, "bad", options);
    let others = d.opened(["vale0:a", "vale0:b"]);
    (d, path, others)
}

/// Broadcasts frames from `a` until `evicted` returns true. Each frame must reach `b` within [`BOUND`].
fn serve_others([a, b]: &mut [Port; 2], evicted: impl Fn() -> bool) {
    let began = Instant::now();
    for (sofar, i) in (0..=255).cycle().enumerate() {
        let sent = Instant::now();
        send(a, &frame(255, 1, i));
        while receive(b) != frame(255, 1, i) {}
        assert!(sent.elapsed() < BOUND, "frame {i} took {:?}", sent.elapsed());
        if sofar >= 20 && evicted() {
            break;
        }
        assert!(began.elapsed() < 3 * BOUND, "it is not evicted");
    }
}

/// Like [`serve_others`], until the guest is evicted. After that, the port waits for the next guest.
fn is_evicted(d: &Daemon, others: &mut [Port; 2]) {
    serve_others(others, || d.notes("vale0:bad").contains(REASON));
    assert!(d.notes("vale0:bad").contains("waits for a virtual machine"), "{}", d.notes("vale0:bad"));
}

/// A socket that is full and has no reader, so that writing to it blocks, and its peer.
fn full_socket() -> (UnixStream, UnixStream) {
    let (from, to) = UnixStream::pair().unwrap();
    waits(&to, false);
    while rustix::io::write(&to, &[0; 8]).is_ok() {}
    waits(&to, true);
    (from, to)
}

fn waits(fd: impl AsFd, does: bool) {
    let flags = rustix::fs::fcntl_getfl(&fd).unwrap();
    let others = flags - rustix::fs::OFlags::NONBLOCK;
    rustix::fs::fcntl_setfl(&fd, if does { others } else { others | rustix::fs::OFlags::NONBLOCK }).unwrap();
}

/// Sets sockets as the call descriptors of a front end's queues. The daemon makes each socket nonblocking. After that,
/// this function makes all of them blocking at the same time, because the peer may be evicted for the first socket.
fn call_by(socket: &UnixStream, all: &[(UnixStream, UnixStream)]) {
    for (queue, (_, to)) in (0u64..).zip(all) {
        let mut m = VhostMessage::new(request::SET_VRING_CALL, queue.to_le_bytes().to_vec());
        m.fds.push(to.try_clone().unwrap().into());
        wire::send(socket.as_fd(), &m).unwrap();
        until("it is taken", || rustix::fs::fcntl_getfl(to).unwrap().contains(rustix::fs::OFlags::NONBLOCK));
    }
    all.iter().for_each(|(_, to)| waits(to, true));
}

/// Objective: a front end delays no other port if it makes the kick, call and error descriptors of a queue with calls
/// enabled block, or if its call descriptors are full sockets.
#[test]
fn a_blocking_vhost_front_end_delays_no_other() {
    [false, true].into_iter().for_each(vhost_called);
}

fn vhost_called(by_socket: bool) {
    let (d, path, mut others) = attached("vhost", json!({}));
    let socket = UnixStream::connect(&path).unwrap();
    let stop = Doorbell::new().unwrap();
    let fault = Fault::new().unwrap();
    let calls = [(); 2].map(|()| Doorbell::new().unwrap());
    let running = Frontend::new(socket.as_fd(), stop.as_fd(), &fault).start(DriverOptions::default(), &calls).unwrap();
    let mut queues = running.pairs;
    let _memory = running.ram;
    let (rx, tx) = &mut queues[0];
    let error = Doorbell::new().unwrap();
    let mut m = VhostMessage::new(request::SET_VRING_ERR, 0u64.to_le_bytes().to_vec());
    m.fds.push(error.as_fd().try_clone_to_owned().unwrap());
    wire::send(socket.as_fd(), &m).unwrap();
    while let Some(id) = rx.queue.take(1) {
        rx.queue.post(&rx.ram, id, |_| true, |_| BUF);
    }
    rx.queue.publish();
    rx.queue.arm();
    until("both queues run", || d.notes("vale0:bad").contains("2 queues running"));
    for kick in [&rx.kick, &tx.kick] {
        if let Kick::Bell(bell) = kick {
            block(bell).unwrap();
        }
    }
    block(&error).unwrap();
    let sockets = [full_socket(), full_socket()];
    if by_socket {
        call_by(&socket, &sockets);
    } else {
        calls.iter().for_each(|call| block(call).unwrap());
    }
    serve_others(&mut others, || d.notes("vale0:bad").contains(REASON));
    // The next peer is served, possibly only after the lockout.
    let again = UnixStream::connect(&path).unwrap();
    let running = Frontend::new(again.as_fd(), stop.as_fd(), &fault).start(DriverOptions::default(), &calls);
    assert!(running.is_err() || running.is_ok_and(|r| r.pairs.len() == 1));
}

/// Objective: a hypervisor that makes all vectors and doorbells of an ivshmem ptnet device block delays no other port.
#[test]
fn a_blocking_ptnet_hypervisor_delays_no_other() {
    let (d, path, mut others) = attached("ptnet", json!({}));
    let guest = BareGuest::connect(&path).unwrap();
    assert_eq!(guest.command(COMMAND_START, 0, 0).unwrap(), 0);
    // Set nm_csb_atok.appl_need_kick, so that both rings need interrupts.
    let status = Words::new(guest.memory(), 0x1000, 32).unwrap();
    [2, 18].into_iter().for_each(|word| status.store(word, 1));
    guest.vectors().iter().chain(guest.doorbells()).for_each(|bell| block(bell).unwrap());
    is_evicted(&d, &mut others);
    // The next guest is served after the lockout.
    assert_eq!(BareGuest::connect(&path).unwrap().command(COMMAND_START, 0, 0).unwrap(), 0);
}

/// Objective: a hypervisor that makes the vectors of a published device block delays no other port.
#[test]
fn a_blocking_published_device_delays_no_other() {
    let (d, path, mut others) = attached("ptnet", json!({"vfio_user": true}));
    let mut plugged = Plugged::new(&path);
    let mut driver = Driver::probe(&mut plugged, false);
    driver.open();
    driver.plugged.vectors().iter().for_each(|bell| block(bell).unwrap());
    is_evicted(&d, &mut others);
}

/// Objective: a hypervisor that makes the interrupt of an e1000 block delays no other port.
#[test]
fn a_blocking_e1000_delays_no_other() {
    let (d, path, mut others) = attached("e1000", json!({"mac": "02:00:00:00:00:09"}));
    let mut guest = Card::new(&path, CardOptions::default()).unwrap();
    // Clear earlier interrupts (link up), so that the driver waits for frames.
    guest.ingress.woken();
    assert!(!guest.ingress.arm());
    block(guest.ingress.wake_fd().unwrap()).unwrap();
    is_evicted(&d, &mut others);
}

/// A guard that rings a doorbell when it is dropped, even after a failure.
struct Rings<'a>(&'a Doorbell);

impl Drop for Rings<'_> {
    fn drop(&mut self) {
        self.0.ring();
    }
}

/// Plays a back end that accepts all messages, and makes its kick descriptors block.
fn back_end(connection: OwnedFd, stop: &Doorbell) {
    let mut kept = Vec::new();
    while let Ok(ReceiveResult::Message(mut m)) = wire::receive(connection.as_fd(), stop.as_fd()) {
        let answer = match m.request {
            request::GET_FEATURES => Some(VERSION_1 | PROTOCOL_FEATURES),
            request::GET_PROTOCOL_FEATURES => Some(0),
            _ => None,
        };
        if let Some(answer) = answer {
            wire::send(connection.as_fd(), &VhostMessage::reply(m.request, answer.to_le_bytes().to_vec())).unwrap();
        }
        if m.request == request::SET_VRING_KICK {
            block(&m.fds[0]).unwrap();
        }
        kept.append(&mut m.fds);
    }
}

/// Objective: a back end that makes the kick descriptors of its driver's queues block delays no other port.
#[test]
fn a_blocking_virtio_back_end_delays_no_other() {
    let d = Daemon::start("workers = 1");
    let (listener, _file) = Listener::listen(&d.path("bad.sock").into()).unwrap();
    let mut others = d.opened(["vale0:a", "vale0:b"]);
    let stop = Doorbell::new().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while let Some(connection) = listener.accept(stop.as_fd()) {
                back_end(connection, &stop);
            }
        });
        let _end = Rings(&stop);
        attach_device(&d, "virtio", "bad", json!({}));
        serve_others(&mut others, || d.notes("vale0:bad").contains(REASON));
    });
}

/// Objective: a program that makes the wake-up and the doorbell of its ring block loses its port; the program can open
/// a port again.
#[test]
fn a_blocking_program_loses_its_port() {
    let d = Daemon::start("workers = 1");
    let mut others = d.opened(["vale0:a", "vale0:b"]);
    let mut bad = d.open("vale0:bad").unwrap();
    assert!(!bad.rx()[0].arm());
    block(bad.rx()[0].wake_fd()).unwrap();
    serve_others(&mut others, || !d.ports().contains(&"vale0:bad".to_owned()));
    // The port no longer exists, but the reason is still reported.
    let gone = d.call("port.show", json!({"port": "vale0:bad"}))["error"]["message"].to_string();
    assert!(gone.contains("does not exist") && gone.contains(REASON), "{gone}");
    let evicted = &d.evicted();
    assert_eq!((evicted.as_array().unwrap().len(), &evicted[0]["port"]), (1, &json!("vale0:bad")), "{evicted}");
    assert!(evicted[0]["reason"].to_string().contains(REASON) && evicted[0]["owner"]["pid"] == std::process::id());
    let mut again = d.open("vale0:bad").unwrap();
    assert!(d.notes("vale0:bad").contains(REASON));
    crosses(&mut others[0], &mut again, &frame(255, 1, 7));
}
