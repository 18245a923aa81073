//! Tests of tunnels between addresses of the loopback interface: frames arrive unchanged and in order, and nothing else
//! arrives.
#![allow(unsafe_code)]

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use netvale_port::{Batch, DropReason, Egress, Ingress, Scratch, Source};
use netvale_vxlan::endpoint::SendOptions;
use netvale_vxlan::tunnel::{ChangeError, GivenAddress, TunnelChange};
use netvale_vxlan::{Endpoint, EndpointError, Tunnel, TunnelEgress, TunnelIngress, TunnelOptions};
use netvale_wire::build::{Udp, udp4};
use netvale_wire::{MacAddr, Sum, VnetHdr, vnet};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

const LIMIT: Duration = Duration::from_secs(20);

fn ip(n: u8) -> IpAddr {
    // The addresses depend on the process ID, so that other test processes can run at the same time.
    let [a, b, ..] = std::process::id().to_le_bytes();
    IpAddr::from([127, 1 | a, b, n])
}

fn options(vni: u32, remotes: &[u8]) -> TunnelOptions {
    TunnelOptions {
        vni,
        remotes: remotes.iter().map(|n| ip(*n)).collect(),
        learning: true,
        any_peer: false,
        ageing: 300,
        send: SendOptions::default(),
        mtu: None,
        key: [0x9e37_79b9_7f4a_7c15, 0xd1b5_4a32_d192_ed03],
    }
}

/// A tunnel with its queues.
struct End {
    tunnel: Arc<Tunnel>,
    egress: TunnelEgress,
    source: Source<TunnelIngress>,
}

fn end(endpoint: &Arc<Endpoint>, options: TunnelOptions) -> End {
    let tunnel = Tunnel::new(Arc::clone(endpoint), options).unwrap();
    let source = Source::new(Box::new(TunnelIngress::new(Arc::clone(&tunnel))));
    End { egress: TunnelEgress::new(Arc::clone(&tunnel)), tunnel, source }
}

fn endpoint(n: u8, port: u16) -> Arc<Endpoint> {
    Arc::new(Endpoint::new(ip(n), port).unwrap())
}

fn frame(to: u8, from: u8, len: usize, tag: u8) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from, 0x88, 0xb5, tag];
    if to == 0xff {
        frame[..6].fill(0xff);
    }
    frame.resize(len, tag);
    frame
}

impl End {
    fn send(&self, frames: &[Vec<u8>]) {
        let mut scratch = Scratch::new();
        for frame in frames {
            Batch::new().lend(frame, |batch| assert_eq!(self.egress.deliver(batch, &[0], &mut scratch), 1));
        }
    }

    /// Waits for `count` frames. Returns the frames in the order of arrival, each with its pending offload.
    fn receive(&mut self, count: usize) -> Vec<(Vec<u8>, VnetHdr)> {
        let mut frames = Vec::new();
        let mut spare = Box::new(Batch::new());
        let until = Instant::now() + LIMIT;
        while frames.len() < count {
            assert!(Instant::now() < until, "{} of {count} frames came", frames.len());
            let batch = self.source.take(&mut spare);
            for one in batch.iter() {
                let mut bytes = vec![0; one.len()];
                one.copy_out(0, &mut bytes);
                frames.push((bytes, one.offload().to_header()));
            }
            let is_idle = batch.is_empty();
            self.source.release(&mut spare);
            if is_idle {
                self.sleep(Duration::from_secs(1));
            }
        }
        frames
    }

    /// Sleeps like a worker that finds no frames.
    fn sleep(&mut self, limit: Duration) {
        if self.source.arm() {
            return;
        }
        let limit = Timespec::try_from(limit).unwrap();
        let fd = self.source.ingress().wake_fd().unwrap();
        let _ = poll(&mut [PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)], Some(&limit));
        self.source.woken();
        self.source.disarm();
    }

    fn bytes(&mut self, count: usize) -> Vec<Vec<u8>> {
        self.receive(count).into_iter().map(|(bytes, _)| bytes).collect()
    }

    fn drops(&self, why: DropReason) -> u64 {
        self.egress.counters().drops(why) + self.source.ingress().counters().drops(why)
    }

    /// Polls once and expects no frames, so that pending drops are counted.
    fn look(&mut self) {
        let mut spare = Box::new(Batch::new());
        assert!(self.source.take(&mut spare).is_empty());
        self.source.release(&mut spare);
    }
}

/// Objective: frames of all lengths arrive unchanged and in order; a batch of one flow leaves in one message.
#[test]
fn frames_arrive() {
    let one = endpoint(1, 4789);
    let two = endpoint(2, 4789);
    let a = end(&one, options(7, &[2]));
    let mut b = end(&two, options(7, &[1]));
    let lengths = (14..1000).step_by(37).chain([60; 200]).chain([1000, 60, 1000, 999, 1000]);
    let frames: Vec<_> = lengths.enumerate().map(|(i, len)| frame(0xff, 1, len, i as u8)).collect();
    a.send(&frames);
    assert_eq!(b.bytes(frames.len()), frames);
    let [sent, ..] = a.tunnel.peers().all()[0].counters.all();
    assert_eq!(sent, frames.len() as u64);
    // A batch of many frames, as a switch delivers them.
    let many: Vec<_> = (0..250).map(|i| frame(2, 1, 100, i as u8)).collect();
    with_batch(&many, &VnetHdr::default(), |batch, picks| {
        assert_eq!(a.egress.deliver(batch, picks, &mut Scratch::new()), picks.len())
    });
    assert_eq!(b.bytes(many.len()), many);
}

/// Objective: a flood of new sources teaches a tunnel a limited number of addresses per batch; a source that keeps
/// sending is learned.
#[test]
fn a_flood_of_sources_is_learned_in_parts() {
    let one = endpoint(1, 4789);
    let two = endpoint(2, 4789);
    let a = end(&one, options(7, &[2]));
    let mut b = end(&two, options(7, &[1]));
    let frames: Vec<_> = (0..100).map(|from| frame(0xff, from, 60, 0)).collect();
    with_batch(&frames, &VnetHdr::default(), |batch, picks| {
        assert_eq!(a.egress.deliver(batch, picks, &mut Scratch::new()), picks.len())
    });
    // The frames leave from several sockets, so they may arrive in another order.
    let mut came = b.bytes(frames.len());
    came.sort();
    assert!(came == frames);
    let learned = b.tunnel.addresses().len();
    assert!((32..100).contains(&learned), "{learned}");
    for from in 0..100 {
        a.send(&[frame(0xff, from, 60, 0)]);
        b.bytes(1);
    }
    assert_eq!(b.tunnel.addresses().len(), 100);
}

/// A frame of a UDP flow over IPv4.
fn datagram(to: u8, port: u16, len: usize, tag: u8) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let params = Udp {
        src_mac: MacAddr([2, 0, 0, 0, 0, 1]),
        dst_mac: MacAddr([2, 0, 0, 0, 0, to]),
        src: Ipv4Addr::new(10, 0, 0, 1),
        dst: Ipv4Addr::new(10, 0, 0, to),
        src_port: port,
        dst_port: 53,
        ttl: 64,
        payload: &[tag],
    };
    udp4(&mut bytes, &params).unwrap();
    bytes
}

/// Objective: a batch has all kinds of flows, interleaved and in runs, whose frames go to either of two VTEPs or to
/// both. Each VTEP gets its frames once, and the frames of each flow arrive in order.
#[test]
fn mixed_flows_reach_their_vteps_in_order() {
    let one = endpoint(41, 4789);
    let two = endpoint(42, 4789);
    let three = endpoint(43, 4789);
    let a = end(&one, options(7, &[42, 43]));
    let mut ends = [end(&two, options(7, &[41])), end(&three, options(7, &[41]))];
    let station = |n: u8| u64::from_le_bytes([2, 0, 0, 0, 0, n, 0, 0]);
    a.tunnel.learn_all(&[(station(2), ip(42)), (station(3), ip(43)), (station(4), ip(42))]);
    let frames: Vec<_> = (0..240u8)
        .map(|i| match i % 12 {
            0..4 => datagram(2, 1000, 60, i),
            4 | 6 => datagram(3, 1000, 60, i),
            5 => datagram(4, u16::from(i), 100, i),
            7 => datagram(9, 1000, 60, i),
            8 => frame(0xff, 1, 60, i),
            9 => frame(3, 1, 60, i),
            10 => datagram(2, 1000, 200, i),
            _ => datagram(3, u16::from(i), 60, i),
        })
        .collect();
    with_batch(&frames, &VnetHdr::default(), |batch, picks| {
        assert_eq!(a.egress.deliver(batch, picks, &mut Scratch::new()), picks.len())
    });
    for (receiver, places) in ends.iter_mut().zip([[2u8, 4], [3, 3]]) {
        let is_here = |frame: &&Vec<u8>| places.contains(&frame[5]) || matches!(frame[5], 9 | 0xff);
        let expected: Vec<_> = frames.iter().filter(is_here).cloned().collect();
        let got = receiver.bytes(expected.len());
        let flow = |frame: &[u8]| (frame[..14].to_vec(), frame[26..38].to_vec());
        for one in &expected {
            let of_flow = |all: &[Vec<u8>]| all.iter().filter(|f| flow(f) == flow(one)).cloned().collect::<Vec<_>>();
            assert_eq!(of_flow(&got), of_flow(&expected));
        }
        receiver.look();
    }
}

/// Calls `f` with a batch of frames that all have the same pending offload.
fn with_batch(frames: &[Vec<u8>], left: &VnetHdr, f: impl FnOnce(&Batch, &[u16])) {
    let (_, ingress) = netvale_port::loopback::loopback(1).unwrap();
    let mut source = Source::new(Box::new(ingress));
    let count = source.begin_with(frames.iter().map(|frame| [&left.to_bytes_mrg()[..], frame].concat()));
    assert_eq!(count, frames.len());
    f(source.frames(), &(0..count as u16).collect::<Vec<_>>());
}

/// Objective: once the VTEP of an address is learned, frames for the address go only to that VTEP. Frames for unknown
/// and group addresses go to all VTEPs.
#[test]
fn the_vtep_of_an_address_is_learned() {
    let hub: Vec<_> = (11..=13).map(|n| endpoint(n, 4789)).collect();
    let mut ends: Vec<_> = hub
        .iter()
        .zip([&[12, 13][..], &[11, 13], &[11, 12]])
        .map(|(at, remotes)| end(at, options(9, remotes)))
        .collect();
    let [a, b, c] = &mut ends[..] else { unreachable!() };
    a.send(&[frame(0xff, 1, 60, 1)]);
    assert_eq!((b.bytes(1).len(), c.bytes(1).len()), (1, 1));
    b.send(&[frame(1, 2, 60, 2)]);
    assert_eq!(a.bytes(1), [frame(1, 2, 60, 2)]);
    a.send(&[frame(2, 1, 60, 3), frame(9, 1, 60, 4)]);
    assert_eq!(b.bytes(2), [frame(2, 1, 60, 3), frame(9, 1, 60, 4)]);
    assert_eq!(c.bytes(1), [frame(9, 1, 60, 4)], "only frames for all");
    let known = b.tunnel.addresses();
    assert_eq!(known.iter().map(|(entry, _)| entry.vtep).collect::<Vec<_>>(), [ip(11)]);
}

/// Objective: a frame that comes from an unknown VTEP, has an unknown VNI, or has no valid header is dropped, and each
/// of these reasons has its own counter.
#[test]
fn frames_of_strangers_are_dropped_and_counted() {
    let one = endpoint(21, 4789);
    let two = endpoint(22, 4789);
    let a = end(&one, options(7, &[22]));
    let mut b = end(&two, options(7, &[]));
    a.send(&[frame(0xff, 1, 60, 1)]);
    b.sleep(Duration::from_secs(5));
    b.look();
    assert_eq!(b.drops(DropReason::UnknownVtep), 1);
    b.send(&[frame(0xff, 1, 60, 1)]);
    assert_eq!(b.drops(DropReason::NoVtep), 1);
    let change = TunnelChange { flood: (vec![ip(21)], Vec::new()), ..TunnelChange::default() };
    b.tunnel.change(&change).unwrap();
    a.send(&[frame(0xff, 1, 60, 2)]);
    assert_eq!(b.bytes(1), [frame(0xff, 1, 60, 2)]);
    let raw = UdpSocket::bind((ip(21), 0)).unwrap();
    let with = |header: [u8; 8], rest: &[u8]| [&header[..], rest].concat();
    let bad = [vec![], vec![8; 7], with([0, 0, 0, 0, 0, 0, 7, 0], &[0; 60])];
    let other = [with([8, 0, 0, 0, 0, 0, 8, 0], &[0; 60]), with([8, 0, 0, 0, 0, 0, 7, 0], &[0; 13])];
    for datagram in bad.iter().chain(&other) {
        raw.send_to(datagram, (ip(22), 4789)).unwrap();
    }
    let all = |b: &End| [DropReason::BadVxlan, DropReason::UnknownVni, DropReason::Runt].map(|why| b.drops(why));
    let until = Instant::now() + LIMIT;
    while all(&b) != [3, 1, 1] {
        assert!(Instant::now() < until, "{:?}", all(&b));
        b.look();
        b.sleep(Duration::from_millis(50));
    }
}

/// Returns a frame whose IPv4 packet has this type of service.
fn packet(class: u8, tag: u8) -> Vec<u8> {
    let mut frame = datagram(2, 1000, 60, tag);
    frame[15] = class;
    let sum =
        netvale_wire::checksum::update16(u16::from_be_bytes([frame[24], frame[25]]), 0x4500, 0x4500 | u16::from(class));
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// Receives the next packet at a socket. Returns the packet's type of service and its bytes.
fn class_of_next(socket: &UdpSocket) -> (u8, Vec<u8>) {
    let mut bytes = vec![0u8; 2000];
    let mut control = [0u64; 8];
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: all zeros are a message header: null pointers and numbers.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = size_of_val(&control) as _;
    // SAFETY: the header points to a live part and live control data, which outlive the call.
    let got = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut header, 0) };
    bytes.truncate(usize::try_from(got).expect("a packet"));
    // The only control message: length, level and kind, value.
    assert_eq!(control[1], (libc::IP_TOS as u64) << 32 | libc::IPPROTO_IP as u64);
    (control[2] as u8, bytes)
}

/// Objective: as RFC 6040 requires, a datagram has the codepoint of its frame's packet, together with the configured
/// DSCP, even in a batch with all codepoints. A mark that a router sets is copied to the inner packet; if the inner
/// transport does not support marks, the packet is dropped.
#[test]
fn marks_of_congestion_follow_rfc_6040() {
    let one = endpoint(71, 4789);
    let sending = TunnelOptions { send: SendOptions { dscp: 46, ..SendOptions::default() }, ..options(7, &[72]) };
    let mut a = end(&one, sending);
    let raw = UdpSocket::bind((ip(72), 4789)).unwrap();
    raw.set_read_timeout(Some(LIMIT)).unwrap();
    rustix::net::sockopt::set_ip_recvtos(&raw, true).unwrap();
    let tagged = |class: u8| [&packet(class, 7)[..12], &[0x81, 0, 0, 1], &packet(class, 7)[12..]].concat();
    let frames: Vec<_> = (0..40u8).map(|i| if i % 5 == 4 { tagged(i & 3) } else { packet(i & 3, i) }).collect();
    with_batch(&frames, &VnetHdr::default(), |batch, picks| {
        assert_eq!(a.egress.deliver(batch, picks, &mut Scratch::new()), picks.len())
    });
    for _ in 0..frames.len() {
        let (class, bytes) = class_of_next(&raw);
        let l3 = if bytes[20] == 0x81 { 26 } else { 22 };
        assert_eq!(class, 46 << 2 | bytes[l3 + 1], "{bytes:x?}");
    }
    for (outer, inner, expected) in [(3, 0, None), (3, 1, Some(3)), (3, 2, Some(3)), (1, 2, Some(1)), (2, 0, Some(0))] {
        rustix::net::sockopt::set_ip_tos(&raw, outer).unwrap();
        let drops = a.drops(DropReason::Congestion);
        raw.send_to(&[&[8, 0, 0, 0, 0, 0, 7, 0], &packet(inner, 9)[..]].concat(), (ip(71), 4789)).unwrap();
        match expected {
            Some(class) => assert_eq!(a.bytes(1), [packet(class, 9)], "{inner} in {outer}"),
            None => {
                a.sleep(LIMIT);
                a.look();
                assert_eq!(a.drops(DropReason::Congestion), drops + 1);
            }
        }
    }
}

/// Objective: if several VNIs share an address and port, each tunnel gets its frames in order, whichever worker reads
/// the frames.
#[test]
fn several_networks_share_an_address_and_port() {
    let one = endpoint(31, 4789);
    let two = endpoint(32, 4789);
    let from: Vec<_> = [1, 2, 3].map(|vni| end(&one, options(vni, &[32]))).into();
    let mut to: Vec<_> = [1, 2, 3].map(|vni| end(&two, options(vni, &[31]))).into();
    assert!(matches!(Tunnel::new(Arc::clone(&two), options(2, &[])), Err(EndpointError::VniInUse(2))));
    for round in 0..20u8 {
        from.iter().zip(1..).for_each(|(end, vni)| end.send(&[frame(0xff, vni, 60, round)]));
    }
    std::thread::scope(|scope| {
        for (end, vni) in to.iter_mut().zip(1..) {
            scope.spawn(move || {
                let expected: Vec<_> = (0..20).map(|round| frame(0xff, vni, 60, round)).collect();
                assert_eq!(end.bytes(20), expected);
            });
        }
    });
    drop(to.remove(1));
    let again = Tunnel::new(Arc::clone(&two), options(2, &[])).expect("the VNI is free");
    drop(again);
}

/// Objective: a long TCP segment is cut to fit, with valid checksums, even if a larger segment size was requested; a
/// pending checksum is filled in.
#[test]
fn work_left_to_do() {
    let one = endpoint(41, 4789);
    let two = endpoint(42, 4789);
    let sending = TunnelOptions { mtu: Some(1450), ..options(7, &[42]) };
    let a = end(&one, sending);
    let mut b = end(&two, options(7, &[41]));
    let payload = 10_000usize;
    let mut tcp = frame(2, 1, 54 + payload, 5);
    tcp[12..14].copy_from_slice(&[8, 0]);
    let len = (40 + payload) as u16;
    tcp[14..34].copy_from_slice(&[
        0x45,
        0,
        (len >> 8) as u8,
        len as u8,
        0,
        0,
        0x40,
        0,
        64,
        6,
        0,
        0,
        10,
        0,
        0,
        1,
        10,
        0,
        0,
        2,
    ]);
    tcp[34..54].copy_from_slice(&[0, 80, 0, 81, 0, 0, 0, 0, 0, 0, 0, 1, 0x50, 0x18, 1, 0, 0, 0, 0, 0]);
    let half =
        netvale_wire::checksum::pseudo_v4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 6, 20 + payload as u16).fold();
    tcp[50..52].copy_from_slice(&half.to_be_bytes());
    let gso = VnetHdr {
        flags: vnet::F_NEEDS_CSUM,
        gso_type: vnet::GSO_TCPV4,
        hdr_len: 54,
        gso_size: 4000,
        csum_start: 34,
        csum_offset: 16,
        num_buffers: 0,
    };
    with_batch(&[tcp], &gso, |batch, picks| assert_eq!(a.egress.deliver(batch, picks, &mut Scratch::new()), 1));
    let expected = payload.div_ceil(1450 - 40);
    let segments = b.bytes(expected);
    let mut next = 0u32;
    for segment in &segments {
        assert!(segment.len() <= 1464);
        assert_eq!(u32::from_be_bytes(segment[38..42].try_into().unwrap()), next);
        next += segment.len() as u32 - 54;
        let pseudo =
            netvale_wire::checksum::pseudo_v4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 6, segment.len() as u16 - 34);
        assert_eq!(pseudo.add_bytes(&segment[34..]).fold(), 0xffff, "its checksum");
        assert_eq!(Sum::of(&segment[14..34]).fold(), 0xffff);
    }
    assert_eq!(next, payload as u32);
}

/// Objective: the sender of a packet that does not fit gets a reply; nothing else is sent instead.
#[test]
fn senders_of_too_long_packets_get_a_reply() {
    let one = endpoint(51, 4789);
    let two = endpoint(52, 4789);
    let sending = TunnelOptions { mtu: Some(1450), ..options(7, &[52]) };
    let mut a = end(&one, sending);
    let _b = end(&two, options(7, &[51]));
    let mut packet = frame(2, 1, 1500, 5);
    packet[12..34].copy_from_slice(&[8, 0, 0x45, 0, 5, 0xce, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    a.send(&[packet]);
    let answer = a.bytes(1).remove(0);
    assert_eq!((&answer[..6], answer[34], &answer[40..42]), (&[2, 0, 0, 0, 0, 1][..], 3, &[5, 0xaa][..]));
    assert_eq!(a.drops(DropReason::TooLong), 1);
}

/// Objective: given entries are used, and learned entries do not replace them; an impossible change changes nothing.
#[test]
fn learned_items_do_not_replace_given_ones() {
    let hub: Vec<_> = (61..=63).map(|n| endpoint(n, 4789)).collect();
    let evpn = TunnelOptions { learning: false, ..options(9, &[]) };
    let a = end(&hub[0], evpn);
    let mut others: Vec<_> = hub[1..].iter().map(|at| end(at, options(9, &[61]))).collect();
    let mac = |n: u8| u64::from_le_bytes([2, 0, 0, 0, 0, n, 0, 0]);
    let at = |n: u8, vtep| GivenAddress { mac: mac(n), vtep, sticky: false, sequence: 1 };
    let give = |all: Vec<GivenAddress>| TunnelChange { addresses: (all, Vec::new()), ..TunnelChange::default() };
    a.tunnel.change(&give(vec![at(1, ip(62)), at(2, ip(63))])).unwrap();
    a.send(&[frame(1, 9, 60, 1), frame(2, 9, 60, 2), frame(3, 9, 60, 3)]);
    assert_eq!(others[0].bytes(1), [frame(1, 9, 60, 1)]);
    assert_eq!(others[1].bytes(1), [frame(2, 9, 60, 2)]);
    assert_eq!(a.drops(DropReason::NoVtep), 1);
    let refused = |change: TunnelChange| a.tunnel.change(&change).unwrap_err();
    assert_eq!(refused(give(vec![at(3, ip(62)), at(4, ip(61))])), ChangeError::Own(ip(61)));
    assert!(matches!(refused(give(vec![at(3, "fd00::1".parse().unwrap())])), ChangeError::Version(..)));
    assert!(matches!(refused(give(vec![at(3, [224, 0, 0, 1].into())])), ChangeError::NoHost(_)));
    assert!(matches!(
        refused(give(vec![GivenAddress { mac: 1, ..at(3, ip(62)) }])),
        ChangeError::NoStation(MacAddr([1, 0, 0, 0, 0, 0]))
    ));
    assert!(!a.tunnel.knows(mac(3)), "nothing was changed");
    // Add many entries, then replace them all.
    let many = |n: u32| GivenAddress { mac: u64::from(n) << 16 | 2, ..at(0, ip(62)) };
    a.tunnel.change(&give((1..50_000).map(many).collect())).unwrap();
    assert!((1..50_000).all(|n| a.tunnel.knows(many(n).mac)));
    a.tunnel.change(&TunnelChange { replace: true, ..give(vec![at(1, ip(63))]) }).unwrap();
    assert!(a.tunnel.knows(mac(1)) && !a.tunnel.knows(many(7).mac) && a.tunnel.count_given() == 1);
    a.send(&[frame(1, 9, 60, 4)]);
    assert_eq!(others[1].bytes(1), [frame(1, 9, 60, 4)]);
}
