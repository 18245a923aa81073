//! Filter rules on payload, and frames with pending offloads: rules see the bytes that are delivered.

use crate::common;

use std::net::Ipv4Addr;
use std::sync::Arc;

use common::{Make, TestPort, attach, mac};
use netvale_policy::bpf::{FilterProgram, Insn};
use netvale_policy::vlan::Vlans;
use netvale_port::DropReason;
use netvale_switch::filters::{FilterRule, Filters};
use netvale_switch::policies::CompiledPolicies;
use netvale_switch::{ForwardMemory, Switch};
use netvale_wire::vnet::VnetHdr;
use netvale_wire::{MacAddr, build};

const HEADERS: usize = build::UDP4_PAYLOAD;
/// Payload in bytes of each datagram cut from a segment.
const SIZE: usize = 100;
const MARK: [u8; 2] = [0xde, 0xad];

/// A UDP segment to host `to`, from which datagrams of [`SIZE`] bytes are cut. Each datagram begins with the two bytes
/// at its index in `begins`.
fn udp(to: u8, begins: &[[u8; 2]]) -> Vec<u8> {
    let payload: Vec<u8> = begins.iter().flat_map(|begin| [&begin[..], &[7; SIZE - 2]].concat()).collect();
    let mut frame = vec![0; HEADERS + payload.len()];
    let params = build::Udp {
        src_mac: MacAddr(mac(1)),
        dst_mac: MacAddr(mac(to)),
        src: Ipv4Addr::new(10, 0, 0, 1),
        dst: Ipv4Addr::new(10, 0, 0, 2),
        src_port: 1000,
        dst_port: 2000,
        ttl: 64,
        payload: &payload,
    };
    build::udp4(&mut frame, &params).unwrap();
    frame[HEADERS..].copy_from_slice(&payload);
    frame
}

/// `udp[8:2] = 0xdead`, as compiled by libpcap.
fn marked() -> FilterProgram {
    let insn = |code, jt, jf, k| Insn { code, jt, jf, k };
    let insns = [
        insn(0x28, 0, 0, 12),
        insn(0x15, 0, 8, 0x800),
        insn(0x30, 0, 0, 23),
        insn(0x15, 0, 6, 17),
        insn(0x28, 0, 0, 20),
        insn(0x45, 4, 0, 0x1fff),
        insn(0xb1, 0, 0, 14),
        insn(0x48, 0, 0, 22),
        insn(0x15, 0, 1, 0xdead),
        insn(0x06, 0, 0, 1),
        insn(0x06, 0, 0, 0),
    ];
    FilterProgram::verify(&insns).unwrap()
}

/// The filter program for `udp dst port 9`, which reads only headers.
fn to_port_9() -> FilterProgram {
    let insn = |code, jt, jf, k| Insn { code, jt, jf, k };
    let insns = [
        insn(0x28, 0, 0, 12),
        insn(0x15, 0, 5, 0x800),
        insn(0xb1, 0, 0, 14),
        insn(0x48, 0, 0, 16),
        insn(0x15, 0, 2, 9),
        insn(0x06, 0, 0, 1),
        insn(0x06, 0, 0, 0),
        insn(0x06, 0, 0, 0),
    ];
    FilterProgram::verify(&insns).unwrap()
}

fn drops(program: FilterProgram) -> Filters {
    Filters::new(vec![FilterRule::new(true, program)])
}

/// A switch with a sender whose frames have virtio-net headers, and two receivers: a receiver with such headers, and a
/// receiver without them.
struct Bench {
    switch: Arc<Switch>,
    from: TestPort,
    with: TestPort,
    plain: TestPort,
    work: ForwardMemory,
}

impl Bench {
    fn new() -> Bench {
        let switch = Switch::new("vale-test");
        let make = |hdr_len| Make { slots: 64, buf_size: 2112, hdr_len, ..Make::default() };
        let [from, with, plain] = [("a", 12), ("with", 12), ("plain", 0)].map(|(n, len)| attach(&switch, n, make(len)));
        Bench { switch, from, with, plain, work: ForwardMemory::default() }
    }

    fn set(&self, port: &TestPort, policies: CompiledPolicies) {
        self.switch.set_policies(port.id, Some(Arc::new(policies)), None);
    }

    /// Sends a frame. Returns the number of frames that each receiver got.
    fn send(&mut self, header: &VnetHdr, frame: &[u8]) -> [usize; 2] {
        assert!(self.from.send(&[&header.to_bytes_mrg()[..], frame].concat()));
        self.from.forward(&mut self.work);
        [self.with.take().len(), self.plain.take().len()]
    }

    fn lost(&self, reason: DropReason) -> u64 {
        self.from.sent.drops(reason)
    }
}

/// A virtio-net header that leaves a checksum pending. If `size` is not 0, the segmentation into datagrams is pending
/// as well.
fn header(size: usize, csum_start: usize, csum_offset: u16) -> VnetHdr {
    VnetHdr {
        flags: 1,
        // The value 5 is VIRTIO_NET_HDR_GSO_UDP_L4.
        gso_type: if size > 0 { 5 } else { 0 },
        hdr_len: HEADERS as u16,
        gso_size: size as u16,
        csum_start: csum_start as u16,
        csum_offset,
        ..VnetHdr::default()
    }
}

/// Objective: a rule on payload, at the sender's or a receiver's port, finds a marked datagram at any place of a
/// segment, even if a tag is added or removed. Segments without a marked datagram pass whole.
#[test]
fn each_datagram_of_a_segment() {
    let segment = header(SIZE, 34, 6);
    for count in [2, 20] {
        for marked_one in [None, Some(0), Some(1), Some(count - 1)] {
            let begins: Vec<_> = (0..count).map(|i| if Some(i) == marked_one { MARK } else { [1, 1] }).collect();
            for vlans in [false, true] {
                let policies = |access| CompiledPolicies {
                    vlans: vlans.then_some(access).flatten(),
                    ..CompiledPolicies::default()
                };
                let access = || Vlans::access(10).ok();
                let mut bench = Bench::new();
                bench.set(&bench.plain, policies(access()));
                bench.set(&bench.with, policies(access()));
                bench.set(
                    &bench.from,
                    CompiledPolicies { filters: [drops(marked()), Filters::default()], ..policies(access()) },
                );
                let got = bench.send(&segment, &udp(255, &begins));
                let whole = [1, count];
                assert_eq!(
                    got,
                    if marked_one.is_some() { [0, 0] } else { whole },
                    "in: {marked_one:?} of {count}, {vlans}"
                );
                assert_eq!(bench.lost(DropReason::Filter), u64::from(marked_one.is_some()));
                bench.set(&bench.from, policies(access()));
                bench.set(
                    &bench.with,
                    CompiledPolicies { filters: [Filters::default(), drops(marked())], ..policies(access()) },
                );
                let got = bench.send(&segment, &udp(255, &begins));
                let left = if marked_one.is_some() { [0, count] } else { whole };
                assert_eq!(got, left, "out: {marked_one:?} of {count}, {vlans}");
                assert_eq!(bench.lost(DropReason::BadVnetHeader), 0);
            }
        }
    }
}

/// Objective: rules at a receiver whose port adds or removes a tag see the segment with the tag that the port delivers.
#[test]
fn segments_that_are_retagged() {
    let mut bench = Bench::new();
    bench.set(
        &bench.from,
        CompiledPolicies { vlans: Vlans::trunk("10".parse().unwrap(), None).ok(), ..CompiledPolicies::default() },
    );
    let out = [Filters::default(), drops(marked())];
    let access = || Vlans::access(10).ok();
    bench.set(&bench.with, CompiledPolicies { vlans: access(), filters: out, ..CompiledPolicies::default() });
    bench.set(&bench.plain, CompiledPolicies { vlans: access(), ..CompiledPolicies::default() });
    for (begins, left) in [([[1, 1]; 5], [1, 5]), ([[1, 1], MARK, [1, 1], [1, 1], [1, 1]], [0, 5])] {
        let mut frame = udp(255, &begins);
        frame.splice(12..12, [0x81, 0, 0, 10]);
        let segment = VnetHdr { hdr_len: HEADERS as u16 + 4, ..header(SIZE, 38, 6) };
        assert_eq!(bench.send(&segment, &frame), left);
    }
    assert_eq!(bench.lost(DropReason::BadVnetHeader), 0);
}

/// Objective: a frame whose pending checksum begins after its UDP header is dropped with a reason if a rule, at the
/// sender's or a receiver's port, reads the bytes that the checksum overwrites. The frame passes without such rules, as
/// does a frame with only its UDP checksum pending.
#[test]
fn sums_that_are_filled_in_later() {
    let over_mark = header(0, HEADERS, 0);
    let own = header(0, 34, 6);
    let frame = udp(255, &[[1, 1], [2, 2]]);
    let filters = [
        ("payload, in", [drops(marked()), Filters::default()], [0, 0]),
        ("headers, in", [drops(to_port_9()), Filters::default()], [1, 1]),
        ("none", [Filters::default(), Filters::default()], [1, 1]),
    ];
    for (what, filters, got) in filters {
        let mut bench = Bench::new();
        bench.set(&bench.from, CompiledPolicies { filters, ..CompiledPolicies::default() });
        assert_eq!(bench.send(&over_mark, &frame), got, "{what}");
        assert_eq!(bench.lost(DropReason::BadVnetHeader), u64::from(got == [0, 0]), "{what}");
        assert_eq!(bench.send(&own, &frame), [1, 1], "{what}");
        assert_eq!(bench.send(&own, &udp(255, &[MARK])), if got == [0, 0] { got } else { [1, 1] }, "{what}");
    }
    let mut bench = Bench::new();
    bench.set(
        &bench.with,
        CompiledPolicies { filters: [Filters::default(), drops(marked())], ..CompiledPolicies::default() },
    );
    assert_eq!(bench.send(&over_mark, &frame), [0, 1]);
    assert_eq!(bench.send(&own, &frame), [1, 1]);
    assert_eq!(bench.lost(DropReason::BadVnetHeader), 1);
}
