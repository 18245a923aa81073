//! Ports with and without a virtio-net header: checksum and segmentation are done in software only for destinations
//! that lack the offload.

use crate::common;

use std::net::Ipv4Addr;
use std::sync::Arc;

use common::{Make, TestPort, attach, bell, mac};
use netvale_abi::slot::NS_MOREFRAG;
use netvale_mem::host::{HostRx, HostTx};
use netvale_port::ring_in::RingIngress;
use netvale_port::ring_out::RingEgress;
use netvale_port::{DropReason, Egress, Scratch, Source};
use netvale_switch::{ForwardMemory, Switch};
use netvale_wire::vnet::VnetHdr;
use netvale_wire::{MacAddr, build};

const HEADERS: usize = build::UDP4_PAYLOAD;

fn udp(to: u8, from: u8, payload: usize) -> Vec<u8> {
    let mut frame = vec![0; HEADERS + payload];
    let params = build::Udp {
        src_mac: MacAddr(mac(from)),
        dst_mac: MacAddr(mac(to)),
        src: Ipv4Addr::new(10, 0, 0, 1),
        dst: Ipv4Addr::new(10, 0, 0, 2),
        src_port: 1000,
        dst_port: 2000,
        ttl: 64,
        payload: b"0123456789abcdefghijklmnopq",
    };
    build::udp4(&mut frame, &params).unwrap();
    frame
}

fn has_right_checksum(frame: &[u8]) -> bool {
    let mut again = frame.to_vec();
    build::refresh_udp_checksum(&mut again).unwrap();
    again == frame
}

/// A virtio-net header that leaves the checksum pending. If `size` is not 0, the segmentation into payloads of `size`
/// bytes is pending as well.
fn header(size: u16) -> VnetHdr {
    VnetHdr {
        flags: 1,
        // The value 5 is VIRTIO_NET_HDR_GSO_UDP_L4.
        gso_type: if size > 0 { 5 } else { 0 },
        hdr_len: HEADERS as u16,
        gso_size: size,
        csum_start: 34,
        csum_offset: 6,
        ..VnetHdr::default()
    }
}

fn send_with(port: &mut TestPort, work: &mut ForwardMemory, hdr_len: usize, header: &VnetHdr, frame: &[u8]) {
    let bytes = [&header.to_bytes_mrg()[..hdr_len], frame].concat();
    assert!(port.send(&bytes));
    port.forward(work);
}

fn ports(hdr_len: u32) -> (TestPort, TestPort, TestPort, ForwardMemory) {
    let switch = Switch::new("vale-test");
    let make = |hdr_len| Make { slots: 64, buf_size: 2112, hdr_len, ..Make::default() };
    let a = attach(&switch, "a", make(hdr_len));
    let plain = attach(&switch, "plain", make(0));
    let with = attach(&switch, "with", make(12));
    (a, plain, with, ForwardMemory::default())
}

/// Objective: a frame with pending segmentation reaches a port with virtio-net headers whole, with the same header. A
/// port without such headers gets segments with the frame's payload and correct checksums.
#[test]
fn segmentation_only_where_it_is_needed() {
    for hdr_len in [10, 12] {
        let (mut a, mut plain, mut with, mut work) = ports(hdr_len);
        let frame = udp(255, 1, 4500);
        send_with(&mut a, &mut work, hdr_len as usize, &header(1000), &frame);
        let whole = with.take();
        assert_eq!(whole.len(), 1);
        assert_eq!(whole[0][12..], frame);
        let got = VnetHdr::from_bytes_mrg(whole[0][..12].try_into().unwrap());
        assert_eq!((got.gso_type, got.gso_size, got.csum_start, got.flags), (5, 1000, 34, 1));
        let segments = plain.take();
        assert_eq!(segments.iter().map(|s| s.len() - HEADERS).collect::<Vec<_>>(), [1000, 1000, 1000, 1000, 500]);
        assert!(segments.iter().all(|s| has_right_checksum(s)));
        let payload: Vec<u8> = segments.iter().flat_map(|s| s[HEADERS..].to_vec()).collect();
        assert_eq!(payload, frame[HEADERS..]);
    }
}

/// Objective: a pending checksum is filled in for a port without virtio-net headers, and left pending for a port with
/// such headers.
#[test]
fn checksum_only_where_it_is_needed() {
    let (mut a, mut plain, mut with, mut work) = ports(12);
    let finished = udp(255, 1, 300);
    let mut open = finished.clone();
    // The field's value as a network stack sets it: the sum over the pseudo header only, not complemented.
    let pseudo = netvale_wire::checksum::pseudo_v4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2), 17, 308);
    open[40..42].copy_from_slice(&(!pseudo.checksum()).to_be_bytes());
    send_with(&mut a, &mut work, 12, &header(0), &open);
    assert_eq!(plain.take(), [finished]);
    let got = with.take();
    assert_eq!(got[0][12..], open);
    assert_eq!(got[0][0], 1, "the header reports the pending checksum");
}

/// Objective: a frame from a port without headers gets a header of zeros; frames with invalid headers are dropped with
/// a reason.
#[test]
fn headers_are_added_and_checked() {
    let (mut a, mut plain, mut with, mut work) = ports(12);
    let frame = udp(255, 2, 100);
    assert!(plain.send(&frame));
    plain.forward(&mut work);
    assert_eq!(with.take(), [[&[0u8; 12][..], &frame].concat()]);
    assert_eq!(a.take(), [[&[0u8; 12][..], &frame].concat()]);
    let bad = [
        VnetHdr { csum_start: 5000, ..header(0) },
        VnetHdr { gso_size: 0, gso_type: 5, ..header(0) },
        VnetHdr { gso_type: 77, ..header(1000) },
    ];
    for h in &bad {
        send_with(&mut a, &mut work, 12, h, &frame);
    }
    a.send(&[0; 7]);
    a.forward(&mut work);
    assert_eq!(a.sent.drops(DropReason::BadVnetHeader), 4);
    assert!(plain.take().is_empty() && with.take().is_empty());
}

/// Objective: a frame whose segments do not all fit into the remaining room is dropped whole, as `NoRoom` or `TooLong`,
/// and the ring keeps working.
#[test]
fn segments_without_room_are_dropped_by_name() {
    let switch = Switch::new("vale-test");
    let mut a = attach(&switch, "a", Make { slots: 64, buf_size: 2112, hdr_len: 12, ..Make::default() });
    let mut small = attach(&switch, "small", Make { slots: 8, buf_size: 2112, ..Make::default() });
    let mut work = ForwardMemory::default();
    let frame = udp(255, 1, 4500);
    for _ in 0..2 {
        send_with(&mut a, &mut work, 12, &header(1000), &frame);
    }
    assert_eq!(small.take().len(), 5, "seven slots: one frame's five segments fit, two frames' do not");
    let counters = netvale_port::Egress::counters(small.received.as_ref());
    assert_eq!(counters.drops(DropReason::NoRoom), 1);
    send_with(&mut a, &mut work, 12, &header(100), &frame);
    assert_eq!(counters.drops(DropReason::TooLong), 1, "45 segments never fit into 8 slots");
    send_with(&mut a, &mut work, 12, &header(1000), &frame);
    assert_eq!(small.take().len(), 5);
}

/// Objective: if a sender corrupts its frame between the check and the segmentation, the slots that were reserved for
/// the segments are released, and no slot is published.
#[test]
fn a_frame_spoilt_under_way_leaves_no_slot() {
    let (mut a, plain, with, _) = ports(12);
    let uncut = RingEgress::new(Arc::clone(&with.mem), HostRx::new(with.mem.rx[0].clone(), bell()), 12, Arc::default());
    let first = a.tx.slot(0).buf_idx;
    assert!(a.send(&[&header(1000).to_bytes_mrg()[..], &udp(255, 1, 4500)].concat()));
    a.tx.sync();
    let host = HostTx::new(a.mem.tx[0].clone(), bell());
    let ingress = RingIngress::new(Arc::clone(&a.mem), host, bell(), 12, Arc::default());
    let mut source = Source::new(Box::new(ingress));
    let mut spare = Box::default();
    let batch = source.take(&mut spare);
    // Overwrite the IP header: the frame is then no longer an IP packet.
    assert!(a.tx.mem().write(first, 12 + 14, &[0xff; 20]));
    for egress in [&uncut.without_uso(), &*plain.received] {
        for spoilt in 1..4 {
            assert_eq!(egress.deliver(batch, &[0], &mut Scratch::default()), 1);
            assert_eq!((egress.counters().frames(), egress.counters().drops(DropReason::BadVnetHeader)), (0, spoilt));
            assert_eq!(egress.host().hwtail(), 0, "no slot is published");
        }
    }
}

/// Objective: no published slot is empty if each segment takes several slots and the last segment takes fewer.
#[test]
fn no_slot_is_empty() {
    for payload in [4001, 4100, 6500, 8001, 12_000] {
        let (mut a, mut plain, _, mut work) = ports(12);
        send_with(&mut a, &mut work, 12, &header(4000), &udp(255, 1, payload));
        plain.rx.sync();
        let slots = |bytes: usize| (HEADERS + bytes).div_ceil(2112) as u32;
        let whole = (payload - 1) / 4000;
        let last = payload - 4000 * whole;
        assert_eq!(plain.rx.space(), whole as u32 * slots(4000) + slots(last), "{payload} bytes");
        assert!((0..plain.rx.space()).all(|i| plain.rx.slot(i).len > 0));
        let lengths: Vec<_> = plain.take().iter().map(|frame| frame.len() - HEADERS).collect();
        assert_eq!(lengths.iter().sum::<usize>(), payload);
        assert_eq!(lengths.len(), whole + 1);
    }
}

/// Objective: each slot of a frame, even of a single-slot frame, contains the number of the frame's slots, with and
/// without a virtio-net header.
#[test]
fn slots_say_how_many_they_are() {
    for payload in [20, 2112 - 12 - HEADERS, 2112 - HEADERS, 2113 - HEADERS, 6000] {
        let (mut a, mut plain, mut with, mut work) = ports(0);
        assert!(a.send(&udp(255, 1, payload)));
        a.forward(&mut work);
        for (port, hdr_len) in [(&mut plain, 0), (&mut with, 12)] {
            port.rx.sync();
            let slots = (hdr_len + HEADERS + payload).div_ceil(2112) as u16;
            assert_eq!(port.rx.space(), u32::from(slots));
            for i in 0..slots {
                let more = if i + 1 < slots { NS_MOREFRAG } else { 0 };
                assert_eq!(port.rx.slot(i.into()).flags, slots << 8 | more, "slot {i} of {payload} bytes");
            }
        }
    }
}
