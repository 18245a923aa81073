//! Pairs of bystanders, one for each kind of port. They are never attacked directly; the first pair is on the
//! attackers' switch.

use std::net::UdpSocket;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use netvale::{Port, raw};
use netvale_abi::nmreq::{NETMAP_REQ_VALE_ATTACH, NETMAP_REQ_VALE_NEWIF, NR_REG_ALL_NIC};
use netvale_control::attach::{AttachRequest, FLAG_SHARED, FilePlacement, PoolSizes};
use netvale_control::device::DeviceRequest;
use netvale_e1000::driver::CardDriverOptions;
use netvale_e1000::driver::remote::SimulatedGuest as Card;
use netvale_harness::net::ip;
use rustix::fs::MemfdFlags;
use serde_json::json;

use crate::ends::{BEHIND, CardEnd, PairEnd, RingsEnd, STACK, SocketEnd, Wrap, station};
use crate::pairs::{PairFlow, SoakPair};
use crate::replayed;
use crate::world::{ATTACKED, CABLE, TARGETS, VTEPS, World};

/// Time limit for the kernel to release a process's resources.
const GIVEN_BACK: Duration = Duration::from_secs(5);

type PairMaker = fn(&World) -> Result<SoakPair, String>;

/// A kind of pair: the ports at its ends, and how its frames and waits are judged.
pub struct PairKind {
    /// The kind's name in the report.
    pub name: &'static str,
    /// Attaches and opens the ports of a pair.
    pub make: PairMaker,
    /// Whether the pair also has ports on the second daemon.
    pub needs_second: bool,
    /// Whether attackers also receive the pair's frames. Attackers' corrupted rings may send these frames again:
    /// shortened, partly overwritten, duplicated. That is not the daemon's fault.
    pub is_sent_again: bool,
    /// Whether the kernel's network stack also moves the pair's frames.
    pub is_by_stack: bool,
    /// Whether other pairs are compared with this pair: no daemon moves its frames, so no daemon causes its waits.
    pub is_compared: bool,
}

const fn kind(name: &'static str, make: PairMaker) -> PairKind {
    PairKind { name, make, needs_second: false, is_sent_again: false, is_by_stack: false, is_compared: false }
}

const fn by_stack(name: &'static str, make: PairMaker) -> PairKind {
    PairKind { is_by_stack: true, ..kind(name, make) }
}

/// All kinds of pairs.
pub const KINDS: &[PairKind] = &[
    PairKind { is_sent_again: true, ..kind("local, attacked switch", attacked) },
    kind("local", local),
    PairKind { is_compared: true, ..kind("pipe", pipe) },
    PairKind { is_compared: true, ..by_stack("sockets", sockets) },
    kind("persistent", persistent),
    by_stack("tap", tap),
    by_stack("interface", interface),
    PairKind { needs_second: true, ..kind("vhost and virtio", vhost) },
    kind("ptnet", ptnet),
    kind("e1000", e1000),
    kind("echo", echo),
    kind("replay", replay),
    kind("extmem", extmem),
    by_stack("tunnel", tunnel),
];

/// Opens two ports on the attacked switch, and a monitor of the frames that one of them receives. The other port also
/// broadcasts, so that attackers' ports receive other users' frames.
fn attacked(w: &World) -> Result<SoakPair, String> {
    let [a, b] = TARGETS;
    let announced = [&[0xff; 6][..], &station(a), &[0; 48]].concat();
    let ends = [w.announcing("vale0:ba", [a, b], announced)?, w.end(0, "vale0:bb", b, a)?];
    let monitor = w.end(0, "vale0:bb/r", a, b)?;
    w.first().attach(ATTACKED, "null:", json!({}))?;
    let mut pair = two(ends, &[(0, "vale0:ba"), (0, "vale0:bb"), (0, "vale0:bb/r")]);
    pair.ends.push(monitor);
    pair.flows.push(PairFlow { name: "monitor".into(), from: Some(0), to: 2, copies: Some(0), cycle: None });
    Ok(pair)
}

fn two([a, b]: [Box<dyn PairEnd>; 2], ports: &[(usize, &str)]) -> SoakPair {
    SoakPair::two(a, b, ports)
}

fn local(w: &World) -> Result<SoakPair, String> {
    Ok(two([w.end(0, "vale1:a", 11, 12)?, w.end(0, "vale1:b", 12, 11)?], &[(0, "vale1:a"), (0, "vale1:b")]))
}

fn pipe(w: &World) -> Result<SoakPair, String> {
    Ok(two([w.end(0, "netmap:soak{1", 13, 14)?, w.end(0, "netmap:soak}1", 14, 13)?], &[]))
}

/// Opens two UDP sockets of this host.
fn sockets(_: &World) -> Result<SoakPair, String> {
    let bound = || UdpSocket::bind((std::net::Ipv4Addr::LOCALHOST, 0));
    let joined = || -> std::io::Result<[UdpSocket; 2]> {
        let ends = [bound()?, bound()?];
        ends[0].connect(ends[1].local_addr()?)?;
        ends[1].connect(ends[0].local_addr()?)?;
        ends.iter().try_for_each(|end| end.set_nonblocking(true))?;
        Ok(ends)
    };
    let [a, b] = joined().map_err(|e| e.to_string())?;
    Ok(two([Box::new(SocketEnd(a)), Box::new(SocketEnd(b))], &[]))
}

fn persistent(w: &World) -> Result<SoakPair, String> {
    let ask = |reqtype: u16, name: &str, body: &[(usize, u8)]| -> Result<(), String> {
        let mut request = DeviceRequest { reqtype, name: name.into(), ..DeviceRequest::default() };
        body.iter().for_each(|(at, byte)| request.body[*at] = *byte);
        let line = raw::connect_to(Some(w.first().dir())).map_err(|e| e.to_string())?;
        let reply = raw::request(line.as_fd(), &request).map_err(|e| e.to_string())?;
        if reply.status == 0 { Ok(()) } else { Err(format!("request {reqtype} of {name}: errno {}", reply.status)) }
    };
    for name in ["v0", "v1"] {
        ask(NETMAP_REQ_VALE_NEWIF, name, &[])?;
        // Byte 16 is the lowest one of `nmreq_vale_attach.reg.nr_mode`.
        ask(NETMAP_REQ_VALE_ATTACH, &format!("vale2:{name}"), &[(16, NR_REG_ALL_NIC as u8)])?;
    }
    Ok(two([w.end(0, "vale2:v0", 15, 16)?, w.end(0, "vale2:v1", 16, 15)?], &[(0, "vale2:v0"), (0, "vale2:v1")]))
}

/// Opens a port on the switch, and a socket of the network stack behind a TAP.
fn tap(w: &World) -> Result<SoakPair, String> {
    const NAME: &str = "nvsoakt";
    w.first().attach("vale3", &format!("tap:{NAME}"), json!({}))?;
    let quiet = format!("/proc/sys/net/ipv6/conf/{NAME}/disable_ipv6");
    std::fs::write(&quiet, "1").map_err(|e| format!("{quiet}: {e}"))?;
    let address = |[a, b, c, d]: [u8; 4]| format!("{a}.{b}.{c}.{d}");
    let stack = address(STACK.0);
    let behind = address(BEHIND.0);
    let hardware = |n: u8| station(n).map(|byte| format!("{byte:02x}")).join(":");
    for line in [
        format!("link set {NAME} address {}", hardware(18)),
        format!("addr add {stack}/24 dev {NAME}"),
        format!("link set {NAME} up"),
        format!("neigh replace {behind} lladdr {} dev {NAME}", hardware(17)),
    ] {
        ip(&line).map_err(|e| e.to_string())?;
    }
    let port = RingsEnd::of(w.open(0, "vale3:a")?, Wrap::datagram(station(18), station(17)));
    Ok(two([port, socket().map_err(|e| e.to_string())?], &[(0, "vale3:a"), (0, &format!("vale3:{NAME}"))]))
}

fn socket() -> std::io::Result<Box<dyn PairEnd>> {
    let socket = UdpSocket::bind((std::net::Ipv4Addr::from(STACK.0), STACK.1))?;
    socket.set_nonblocking(true)?;
    socket.connect((std::net::Ipv4Addr::from(BEHIND.0), BEHIND.1))?;
    Ok(Box::new(SocketEnd(socket)))
}

/// Attaches one end of a veth pair to a switch, and opens the other end as a port of a program.
fn interface(w: &World) -> Result<SoakPair, String> {
    // After a daemon was killed, the kernel takes a moment to release its queues.
    let mut outcome = Ok(());
    netvale_harness::until(GIVEN_BACK, Duration::from_millis(5), || {
        outcome = w.first().attach("vale4", &format!("netmap:{}", CABLE[0]), json!({}));
        outcome.is_ok()
    });
    outcome?;
    let attached = format!("vale4:{}", CABLE[0]);
    let opened = format!("netmap:{}", CABLE[1]);
    let ends = [w.end(0, "vale4:a", 18, 19)?, w.end(0, &opened, 19, 18)?];
    Ok(two(ends, &[(0, "vale4:a"), (0, &attached), (0, &opened)]))
}

fn vhost(w: &World) -> Result<SoakPair, String> {
    let socket = w.first().path("bystander.sock");
    w.first().attach("vale5", &format!("vhost:{}", socket.display()), json!({"name": "device"}))?;
    w.daemons[1].attach("vale5", &format!("virtio:{}", socket.display()), json!({"name": "driver"}))?;
    let ports = [(0, "vale5:a"), (0, "vale5:device"), (1, "vale5:driver"), (1, "vale5:b")];
    Ok(two([w.end(0, "vale5:a", 20, 21)?, w.end(1, "vale5:b", 21, 20)?], &ports))
}

fn ptnet(w: &World) -> Result<SoakPair, String> {
    let socket = w.first().path("bystander-ptnet.sock");
    w.first().attach("vale6", &format!("ptnet:{}", socket.display()), json!({"name": "guest"}))?;
    let guest = Port::as_guest(&socket, 0).map_err(|e| e.to_string())?;
    let guest = RingsEnd::of(guest, Wrap::ethernet(station(22), station(23)));
    Ok(two([w.end(0, "vale6:a", 22, 23)?, guest], &[(0, "vale6:a"), (0, "vale6:guest")]))
}

fn e1000(w: &World) -> Result<SoakPair, String> {
    let socket = w.first().path("bystander-e1000.sock");
    w.first().attach("vale7", &format!("e1000:{}", socket.display()), json!({"name": "guest"}))?;
    let guest = Card::new(&socket, CardDriverOptions::default()).map_err(|e| e.to_string())?;
    // The guest sends and receives with its card's address.
    let own = station(24);
    let mac = guest.mac;
    let program = RingsEnd::of(w.open(0, "vale7:a")?, Wrap::ethernet(mac, own));
    Ok(two([program, CardEnd::of(guest, Wrap::ethernet(own, mac))], &[(0, "vale7:a"), (0, "vale7:guest")]))
}

fn echo(w: &World) -> Result<SoakPair, String> {
    w.first().attach("vale8", "echo:", json!({}))?;
    let end = w.end(0, "vale8:a", 25, 26)?;
    let ports = vec![(0, "vale8:a".to_owned()), (0, "vale8:echo".to_owned())];
    Ok(SoakPair { ends: vec![end], flows: vec![PairFlow::between("round", 0, 0)], ports })
}

/// Attaches a replayed file, and opens a port that receives its frames.
fn replay(w: &World) -> Result<SoakPair, String> {
    let end = w.end(0, "vale9:a", 27, 28)?;
    let file = w.file(replayed::NAME);
    w.first().attach("vale9", &format!("pcap:in={}", file.display()), json!({"name": "file", "loop": true}))?;
    let flow = PairFlow { name: "heard".into(), from: None, to: 0, copies: None, cycle: Some(replayed::FRAMES) };
    let ports = vec![(0, "vale9:a".to_owned()), (0, "vale9:file".to_owned())];
    Ok(SoakPair { ends: vec![end], flows: vec![flow], ports })
}

/// Size of the memory that a program brings for its port (extmem), in bytes.
const BROUGHT: u64 = 4 << 20;

/// Requests a port whose memory is `file`, made by [`memory`]. Returns the connection, which keeps the port, and the
/// port's rings.
pub fn bring(
    dir: &std::path::Path,
    name: &str,
    file: &OwnedFd,
) -> Result<(OwnedFd, raw::AttachedRings), netvale::Error> {
    let line = raw::connect_to(Some(dir))?;
    let pools = PoolSizes { ifs: (8, 1024), rings: (8, 16_384), bufs: (514, 2048) };
    let request = AttachRequest { name: name.into(), pools, flags: FLAG_SHARED, ..AttachRequest::default() };
    let request = AttachRequest { tx_slots: 128, rx_slots: 128, ..request };
    let place = FilePlacement { offset: 0, len: BROUGHT };
    raw::attach_in(line.as_fd(), &request, file.as_fd(), place).map(|attached| (line, attached))
}

/// Creates a file for [`bring`].
pub fn memory() -> rustix::io::Result<OwnedFd> {
    let file = rustix::fs::memfd_create("soak", MemfdFlags::CLOEXEC)?;
    rustix::fs::ftruncate(&file, BROUGHT)?;
    Ok(file)
}

fn extmem(w: &World) -> Result<SoakPair, String> {
    let end = |name: &str, (from, to): (u8, u8)| -> Result<Box<dyn PairEnd>, String> {
        let file = memory().map_err(|e| e.to_string())?;
        let (line, attached) = bring(w.first().dir(), name, &file).map_err(|e| format!("{name}: {e}"))?;
        let keep = Box::new((line, attached.region, file));
        Ok(RingsEnd::among(attached.tx, attached.rx, Wrap::ethernet(station(to), station(from)), keep))
    };
    Ok(two([end("vale10:a", (29, 30))?, end("vale10:b", (30, 29))?], &[(0, "vale10:a"), (0, "vale10:b")]))
}

/// Opens two switches with a tunnel between them.
fn tunnel(w: &World) -> Result<SoakPair, String> {
    let [here, there] = VTEPS;
    for (switch, local, remote) in [("vale11", here, there), ("vale12", there, here)] {
        w.first().attach(switch, &format!("vxlan:11,local={local},remote={remote}"), json!({"name": "tunnel"}))?;
    }
    let ports = [(0, "vale11:a"), (0, "vale11:tunnel"), (0, "vale12:tunnel"), (0, "vale12:b")];
    Ok(two([w.end(0, "vale11:a", 31, 32)?, w.end(0, "vale12:b", 32, 31)?], &ports))
}
