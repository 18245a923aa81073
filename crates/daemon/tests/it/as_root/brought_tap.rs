//! TAPs that clients pass: accepted and refused descriptors, and effects of the copy of a descriptor that a client
//! keeps.

use crate::common;

use std::fs::File;
use std::net::UdpSocket;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;
use std::time::Duration;

use common::heirs::{PEER, address, answer};
use common::{Daemon, LIMIT, crosses, frame, ip, receive, send, until};
use netvale_control::client::{BringConnection, ClientError};
use netvale_control::types::{AttachParams, PortOptions};
use netvale_harness::net::NamespaceHost;
use netvale_tap::{Tap, TapOptions};
use rustix::fs::{Mode, OFlags};
use serde_json::json;

fn options(name: &str) -> TapOptions {
    TapOptions { name: name.into(), ..TapOptions::default() }
}

fn params(port: &str, options: PortOptions) -> AttachParams {
    AttachParams { switch: "vale0".into(), port: port.into(), options }
}

fn hand_over(d: &Daemon, params: AttachParams, queues: &[OwnedFd]) -> Result<String, ClientError> {
    BringConnection::connect(d.dir()).unwrap().attach(params, queues)
}

fn refused(d: &Daemon, fd: impl Into<OwnedFd>, why: &str) {
    let error = hand_over(d, params("tap:x", PortOptions::default()), &[fd.into()]).unwrap_err().to_string();
    assert!(error.contains(why), "{error} instead of {why}");
    assert!(d.ports().is_empty());
}

fn gone(d: &Daemon, full: &str, why: &str) {
    until("the port is gone", || !d.ports().contains(&full.to_owned()));
    let evicted = d.evicted()[0].to_string();
    assert!(evicted.contains(full) && evicted.contains(why), "{evicted}");
}

/// Opens a TUN/TAP device whose flags differ from the flags that a port needs.
fn tun(flags: &str, mode: OFlags) -> OwnedFd {
    let made = Command::new("ip").args(["tuntap", "add", "dev", "nvp0", "mode"]).args(flags.split(' ')).output();
    assert!(made.unwrap().status.success());
    let tap = Tap::open(&options("nvp0"));
    match tap {
        Ok(tap) if mode.contains(OFlags::NONBLOCK) => tap.into_queues().pop().unwrap(),
        _ => rustix::fs::open("/dev/net/tun", mode, Mode::empty()).unwrap(),
    }
}

/// Objective: every descriptor other than an open, nonblocking TAP queue with virtio-net headers is refused with the
/// reason, and the daemon continues.
#[test]
fn other_descriptors_are_refused_by_name() {
    let Some(d) = Daemon::inside_as_user("") else { return };
    refused(&d, File::open("/dev/null").unwrap(), "open for reading and writing");
    refused(&d, File::options().read(true).write(true).open("/dev/null").unwrap(), "an open /dev/net/tun");
    refused(&d, File::open(d.dir()).unwrap(), "open for reading and writing");
    refused(&d, std::os::unix::net::UnixStream::pair().unwrap().0, "an open /dev/net/tun");
    let memory = rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    refused(&d, memory, "an open /dev/net/tun");
    refused(&d, rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap(), "an open /dev/net/tun");
    let open = |flags| rustix::fs::open("/dev/net/tun", flags, Mode::empty()).unwrap();
    refused(&d, open(OFlags::PATH), "open for reading and writing");
    refused(&d, open(OFlags::RDWR), "the descriptor is blocking");
    refused(&d, open(OFlags::RDWR | OFlags::NONBLOCK), "the TUN device has no interface");
    refused(&d, tun("tap vnet_hdr", OFlags::RDWR | OFlags::NONBLOCK), "nvp0 is persistent");
    let [mut a, mut b] = d.opened(["vale0:a", "vale0:b"]);
    crosses(&mut a, &mut b, &frame(255, 1, 7));
}

/// Objective: requests that contradict their descriptors, or name ports other than TAPs, are refused with the reason.
#[test]
fn contradictory_requests_are_refused_by_name() {
    let Some(d) = Daemon::inside_as_user("") else { return };
    let one = Tap::open(&options("nvb1")).unwrap();
    let two = Tap::open(&options("nvb2")).unwrap();
    let queues: Vec<OwnedFd> = one.into_queues().into_iter().chain(two.into_queues()).collect();
    let refused = |p: AttachParams, queues: &[OwnedFd], why: &str| {
        let error = hand_over(&d, p, queues).unwrap_err().to_string();
        assert!(error.contains(why), "{error} instead of {why}");
    };
    let rings = |rings| PortOptions { rings, ..PortOptions::default() };
    refused(params("tap:x", rings(2)), &queues, "expected queues of one interface, found nvb1 and nvb2");
    refused(params("tap:x", rings(2)), &queues[..1], "expected 2 TAP queues (one per ring), found 1");
    refused(params("null:x", rings(0)), &queues[..1], "only a TAP can be handed over");
    refused(params("tap:x", PortOptions { slots: 9, ..rings(0) }), &queues[..1], "slots applies only to");
    refused(AttachParams { switch: "tap".into(), ..params("tap:x", rings(0)) }, &queues[..1], "invalid switch");
    hand_over(&d, params("tap:x", rings(0)), &queues[..1]).unwrap();
    refused(params("tap:x", rings(0)), &queues[1..], "already has a port x");
    // The daemon itself does not enter network namespaces.
    let asked =
        d.call("port.attach", json!({"switch": "vale0", "port": "tap:y", "options": {"netns": "/run/netns/x"}}));
    assert!(asked["error"]["message"].as_str().unwrap().contains("does not enter network namespaces"), "{asked}");
}

/// Objective: a TAP that a client has created carries frames in both directions even after the client has closed it,
/// with one queue and with several queues; the TAP's network namespace is shown.
#[test]
fn a_brought_tap_carries_frames_both_ways() {
    let Some(d) = Daemon::inside_as_user("") else { return };
    let mut a = d.open("vale0:a").unwrap();
    let mac = [2, 0, 0, 0, 9, 9];
    let tap = Tap::open(&TapOptions { queues: 2, mtu: Some(4000), mac: Some(mac), ..options("nvb0") }).unwrap();
    let asked = PortOptions { rings: 2, netns: Some("/run/netns/\u{7}web".into()), ..PortOptions::default() };
    assert_eq!(hand_over(&d, params("tap:nvb0", asked), &tap.into_queues()).unwrap(), "vale0:nvb0");
    address("nvb0");
    let socket = UdpSocket::bind("10.9.0.1:0").unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    socket.send_to(b"there", (PEER, 9)).unwrap();
    let frame = receive(&mut a);
    assert_eq!((&frame[6..12], &frame[42..47]), (&mac[..], &b"there"[..]));
    send(&mut a, &answer(&frame));
    let mut place = [0; 100];
    let (n, _) = socket.recv_from(&mut place).unwrap();
    assert_eq!(&place[..n], b"there");
    let shown = d.notes("vale0:nvb0");
    let inode = std::fs::read_link("/proc/self/ns/net").unwrap().display().to_string();
    let inode = inode.trim_start_matches("net:[").trim_end_matches(']').to_owned();
    assert!(shown.contains(&format!("network namespace {inode} (/run/netns/web)")), "{shown}");
    d.call("port.detach", json!({"switch": "vale0", "port": "nvb0"}));
    until("the interface is gone", || !std::path::Path::new("/proc/sys/net/ipv4/conf/nvb0").exists());
}

/// Objective: when the interface of a passed TAP is deleted, its port ends, with the reason; no other port ends.
#[test]
fn a_brought_tap_ends_with_its_deleted_interface() {
    let Some(d) = Daemon::inside_as_user("") else { return };
    let [mut a, mut b] = d.opened(["vale0:a", "vale0:b"]);
    let tap = Tap::open(&options("nvb0")).unwrap();
    hand_over(&d, params("tap:nvb0", PortOptions::default()), &tap.into_queues()).unwrap();
    ip("link del nvb0");
    gone(&d, "vale0:nvb0", netvale_tap::link::GONE);
    crosses(&mut a, &mut b, &frame(255, 1, 1));
}

/// Objective: a restarted container gets its port's name back immediately, even if the kernel takes long to remove the
/// former interface; a name stays taken as long as its interface exists.
#[test]
fn a_restarted_container_gets_its_ports_name_back() {
    let Some(d) = Daemon::inside_as_user("") else { return };
    let bring = || {
        let queues = Tap::open(&options("nvb0")).unwrap().into_queues();
        let done = hand_over(&d, params("tap:nvb0", PortOptions::default()), &queues);
        done.map(drop).map_err(|e| e.to_string())
    };
    for round in 0..30 {
        let container = NamespaceHost::new().unwrap();
        let brought = bring();
        ip(&format!("link set nvb0 netns {}", container.pid()));
        let twice = if round == 0 { bring() } else { Err("already".into()) };
        drop(container);
        assert_eq!(brought, Ok(()), "round {round}");
        assert!(twice.is_err_and(|why| why.contains("already")));
    }
    assert!(d.evicted()[0].to_string().contains(netvale_tap::link::GONE));
}

/// Objective: if a client makes its copy of the TAP's descriptor blocking, the client loses its port; the worker
/// continues.
#[test]
fn a_client_with_a_blocking_copy_loses_its_port() {
    let Some(d) = Daemon::inside_as_user("workers = 1") else { return };
    let kept = Tap::open(&options("nvb0")).unwrap().into_queues();
    hand_over(&d, params("tap:nvb0", PortOptions::default()), &kept).unwrap();
    ip("link set nvb0 up");
    rustix::fs::fcntl_setfl(kept[0].as_fd(), OFlags::empty()).unwrap();
    // After a frame, or one of the stack's own multicasts, the worker reads until the TAP has no more frames: the last
    // read blocks, and ends without help only if another frame arrives.
    let sent = UdpSocket::bind("0.0.0.0:0").unwrap();
    ip("addr add 10.9.0.1/24 dev nvb0");
    ip("neigh add 10.9.0.2 lladdr 02:00:00:00:00:02 dev nvb0");
    let port_is_there = || d.ports().contains(&"vale0:nvb0".to_owned());
    let is_gone = || {
        let _ = sent.send_to(b"x", (PEER, 9));
        netvale_harness::until(Duration::from_secs(1), Duration::from_millis(20), || !port_is_there())
    };
    assert!(netvale_harness::until(LIMIT, Duration::ZERO, is_gone), "the worker is not free again");
    gone(&d, "vale0:nvb0", "made blocking");
    let [mut a, mut b] = d.opened(["vale0:a", "vale0:b"]);
    for tag in 0..20 {
        crosses(&mut a, &mut b, &frame(255, 1, tag));
    }
}
