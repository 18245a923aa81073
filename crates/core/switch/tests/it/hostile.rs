//! Applications that write invalid data: each application loses only its own frames, and each loss has a drop reason.

use crate::common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{Make, attach, frame, mac};
use netvale_abi::slot::{NS_INDIRECT, NS_MOREFRAG, NS_UNREADABLE};
use netvale_mem::offsets::OffsetRule;
use netvale_policy::guard::Guard;
use netvale_policy::vlan::Vlans;
use netvale_port::{DropReason, Egress};
use netvale_switch::{CompiledPolicies, ForwardMemory, Switch};
use proptest::prelude::*;

/// Objective: every kind of invalid slot has its own drop reason, and the valid frames around it pass.
#[test]
fn bad_slots_are_named_drops() {
    let switch = Switch::new("vale-test");
    let mut bad = attach(&switch, "bad", Make::default());
    let mut good = attach(&switch, "good", Make::default());
    let mut work = ForwardMemory::default();
    let mut poke = |f: &dyn Fn(&common::TestPort, u32), why: DropReason| {
        let before = bad.sent.drops(why);
        let i = bad.tx.at(1);
        (0..3).for_each(|t| assert!(bad.send(&frame(255, 1, t, 60))));
        let kept = bad.tx.slot(i).buf_idx;
        f(&bad, i);
        bad.forward(&mut work);
        assert_eq!(bad.sent.drops(why), before + 1, "{}", why.name());
        let got = good.take();
        assert_eq!(got, [frame(255, 1, 0, 60), frame(255, 1, 2, 60)], "{}", why.name());
        bad.tx.mem().set_slot_word(i, kept, 0, 0);
    };
    poke(&|p, i| p.tx.mem().set_slot_word(i, 0, 60, 0), DropReason::BadBuffer);
    poke(&|p, i| p.tx.mem().set_slot_word(i, 1, 60, 0), DropReason::BadBuffer);
    poke(&|p, i| p.tx.mem().set_slot_word(i, u32::MAX, 60, 0), DropReason::BadBuffer);
    poke(&|p, i| p.tx.mem().set_slot_word(i, p.tx.mem().num_bufs(), 60, 0), DropReason::BadBuffer);
    poke(&|p, i| p.tx.mem().set_len_flags(i, 257, 0), DropReason::BadLength);
    poke(&|p, i| p.tx.mem().set_len_flags(i, 13, 0), DropReason::Runt);
    poke(&|p, i| p.tx.mem().set_len_flags(i, 0, 0), DropReason::Runt);
    poke(&|p, i| p.tx.mem().set_len_flags(i, 60, NS_INDIRECT | NS_UNREADABLE), DropReason::Indirect);
}

/// Objective: with any `NS_INDIRECT` flag and any `ptr`, only bytes from the slots' own buffers are sent, at most as
/// many as the slot's length; the flags are not forwarded.
#[test]
fn pointers_are_not_followed() {
    let switch = Switch::new("vale-test");
    let mut bad = attach(&switch, "bad", Make::default());
    let mut good = attach(&switch, "good", Make::default());
    let mut work = ForwardMemory::default();
    let secret = frame(255, 1, 0xbad, 200);
    for (tag, ptr) in [0, 1, 0x1000, secret.as_ptr() as u64, u64::MAX, 1 << 63].into_iter().enumerate() {
        let sent = frame(255, 1, tag as u16, 60);
        let i = bad.tx.at(0);
        assert!(bad.send(&sent));
        bad.tx.mem().set_len_flags(i, 60, NS_INDIRECT);
        bad.tx.mem().set_ptr(i, ptr);
        bad.forward(&mut work);
        good.rx.sync();
        assert_eq!(good.rx.slot(good.rx.at(0)).flags & (NS_INDIRECT | NS_UNREADABLE), 0);
        assert_eq!(good.take(), [sent]);
    }
    // Of the frame in several slots, only the bytes of the middle slot, which is marked unreadable, are missing.
    let long = frame(255, 1, 9, 600);
    let middle = bad.tx.at(1);
    assert!(bad.send(&long));
    bad.tx.mem().set_len_flags(middle, 256, NS_MOREFRAG | NS_INDIRECT | NS_UNREADABLE);
    bad.forward(&mut work);
    assert_eq!(good.take(), [[&long[..256], &long[512..]].concat()]);
    // `NS_UNREADABLE` without `NS_INDIRECT` has no meaning.
    let i = bad.tx.at(0);
    assert!(bad.send(&frame(255, 1, 10, 60)));
    bad.tx.mem().set_len_flags(i, 60, NS_UNREADABLE);
    bad.forward(&mut work);
    assert_eq!(good.take(), [frame(255, 1, 10, 60)]);
}

/// Objective: a frame without a last slot is dropped once the ring is full or the frame has more than 64 slots, and the
/// ring keeps working.
#[test]
fn an_endless_frame_is_dropped() {
    for slots in [16u32, 128] {
        let switch = Switch::new("vale-test");
        let mut bad = attach(&switch, "bad", Make { slots, ..Make::default() });
        let mut good = attach(&switch, "good", Make { slots: 256, ..Make::default() });
        let mut work = ForwardMemory::default();
        let n = bad.tx.space();
        (0..n).for_each(|k| bad.tx.mem().set_len_flags(bad.tx.at(k), 60, NS_MOREFRAG));
        bad.tx.advance(n);
        bad.forward(&mut work);
        assert_eq!(bad.sent.drops(DropReason::EndlessFrame), 1);
        assert_eq!(bad.tx.space(), n, "the slots are free again");
        assert!(good.take().is_empty());
        bad.send(&frame(255, 1, 7, 60));
        bad.forward(&mut work);
        assert_eq!(good.take().len(), 1);
    }
}

/// Objective: each `head` outside its ring is counted once, and stops only that ring; the ring works again when `head`
/// is valid.
#[test]
fn a_bad_head_stops_only_its_ring() {
    let switch = Switch::new("vale-test");
    let mut bad = attach(&switch, "bad", Make::default());
    let mut good = attach(&switch, "good", Make::default());
    let mut work = ForwardMemory::default();
    for head in [16, 17, 1 << 31, u32::MAX] {
        bad.mem.tx[0].csb.publish_head(head, head);
        for _ in 0..5 {
            bad.forwarder.pass(&mut work);
        }
    }
    assert_eq!(bad.sent.drops(DropReason::BadHead), 4);
    bad.send(&frame(255, 1, 1, 60));
    bad.forward(&mut work);
    assert_eq!(good.take().len(), 1);
    // The switch reads a receiver's `head` only when the switch needs room.
    good.mem.rx[0].csb.publish_head(16, 16);
    (0..20).for_each(|t| {
        bad.send(&frame(255, 1, t, 60));
        bad.forward(&mut work);
    });
    assert!(good.received.counters().drops(DropReason::BadHead) > 0);
}

fn behind(header: &[u8], frame: &[u8]) -> Vec<u8> {
    [header, frame].concat()
}

/// Objective: a frame for a receive slot without a valid buffer is dropped with a reason, and other frames arrive.
#[test]
fn a_bad_receive_slot_loses_its_frame_by_name() {
    let switch = Switch::new("vale-test");
    let mut a = attach(&switch, "a", Make::default());
    let b = attach(&switch, "b", Make::default());
    let mut work = ForwardMemory::default();
    b.rx.mem().set_slot_word(1, u32::MAX, 0, 0);
    (0..3).for_each(|t| assert!(a.send(&frame(255, 1, t, 60))));
    a.forward(&mut work);
    let c = b.received.counters();
    assert_eq!((c.frames(), c.drops(DropReason::BadRxBuffer)), (2, 1));
}

/// Objective: if a frame was lost because a slot has an invalid buffer index, the slot contains a blank virtio-net
/// header, or nothing if the receiver has no headers.
#[test]
fn lost_frames_leave_a_header() {
    for (hdr_len, receiver_names) in [(0, 1), (10, 1), (12, 1), (12, u32::MAX)] {
        let switch = Switch::new("vale-test");
        let mut a = attach(&switch, "a", Make { hdr_len: 12, ..Make::default() });
        let b = attach(&switch, "b", Make { hdr_len, ..Make::default() });
        let mut work = ForwardMemory::default();
        let own = b.rx.slot(0).buf_idx;
        // The receiver's slot has an invalid buffer index, and the frame takes the path for frames that are copied
        // unchanged.
        b.rx.mem().write(own, 0, &[0xaa; 12]);
        b.rx.mem().set_slot_word(0, receiver_names, 77, 0);
        assert!(a.send(&behind(&[0; 12], &frame(255, 1, 1, 60))));
        a.forward(&mut work);
        b.rx.mem().set_slot_word(0, own, b.rx.slot(0).len, b.rx.slot(0).flags);
        assert_eq!((u32::from(b.rx.slot(0).len), b.rx.slot(0).flags), (hdr_len, 0), "{receiver_names}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    /// Objective: forwarding neither panics nor loops, and two other ports still reach each other, with any contents of
    /// an application's slots and any `head`, with and without a virtio-net header.
    #[test]
    fn no_ring_contents_stop_honest_ports(
        slots in proptest::collection::vec((any::<u32>(), any::<u16>(), any::<u16>(), any::<bool>()), 16),
        heads in proptest::collection::vec((0u32..20, 0u32..20), 1..8),
        hdr_len in prop::sample::select(vec![0u32, 10, 12]),
        header in proptest::array::uniform12(any::<u8>()),
    ) {
        let switch = Switch::new("vale-test");
        let mut bad = attach(&switch, "bad", Make { hdr_len, ..Make::default() });
        let mut a = attach(&switch, "a", Make::default());
        let mut b = attach(&switch, "b", Make::default());
        let mut work = ForwardMemory::default();
        for (i, &(buf, len, flags, sane)) in slots.iter().enumerate() {
            let i = i as u32;
            let own = bad.tx.slot(i).buf_idx;
            bad.tx.mem().write(own, 0, &header);
            bad.tx.mem().set_slot_word(i, if sane { own } else { buf % 40 }, if sane { len % 300 } else { len }, flags);
            bad.rx.mem().set_slot_word(i, if sane { bad.rx.slot(i).buf_idx } else { buf }, len, flags);
        }
        for (t, r) in heads {
            bad.mem.tx[0].csb.publish_head(t, t);
            bad.mem.rx[0].csb.publish_head(r, r);
            for _ in 0..4 { bad.forwarder.pass(&mut work); }
            a.take();
            b.take();
            a.send(&frame(255, 1, 1, 60));
            a.forward(&mut work);
            prop_assert_eq!(b.take(), vec![frame(255, 1, 1, 60)]);
        }
    }
}

/// Attaches a port whose slots contain offsets (netmap's `ptr` field).
fn with_offsets(switch: &Arc<Switch>, name: &str, make: Make, rule: OffsetRule) -> common::TestPort {
    let port = attach(switch, name, make);
    [&port.mem.tx[0], &port.mem.rx[0]].into_iter().for_each(|side| side.begin_offsets(rule));
    port
}

fn a_rule() -> impl Strategy<Value = OffsetRule> {
    (9u32..=64, 0u32..=256).prop_flat_map(|(bits, max)| {
        (Just(bits), Just(max), 0..=max).prop_map(|(bits, max, initial)| OffsetRule { bits, max, initial })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    /// Objective: with any offsets, lengths and flags of a sender, each frame contains only bytes from the buffers of
    /// its own slots, and the ring keeps working.
    #[test]
    fn any_offset_of_a_sender(
        rule in a_rule(),
        slots in proptest::collection::vec((any::<u64>(), any::<bool>(), 0u16..400, any::<u16>()), 1..15),
    ) {
        let switch = Switch::new("vale-test");
        let mut bad = with_offsets(&switch, "bad", Make::default(), rule);
        let mut good = attach(&switch, "good", Make::default());
        let mut work = ForwardMemory::default();
        // Each buffer is filled with a different odd byte, so that the frames have group addresses and are flooded.
        let ring = bad.tx.mem().clone();
        (2..ring.num_bufs()).for_each(|buf| assert!(ring.write(buf, 0, &[(2 * buf + 1) as u8; 256])));
        let mut may_arrive = Vec::new();
        for (k, &(ptr, small, len, flags)) in slots.iter().enumerate() {
            let i = bad.tx.at(k as u32);
            let flags = flags & !NS_MOREFRAG;
            let ptr = if small { ptr % 300 } else { ptr };
            ring.set_ptr(i, ptr);
            ring.set_len_flags(i, len, flags);
            let offset = if flags & NS_INDIRECT != 0 { 0 } else { (ptr & rule.mask()).min(rule.max.into()) };
            let lost = flags & (NS_INDIRECT | NS_UNREADABLE) == NS_INDIRECT | NS_UNREADABLE;
            if u64::from(len) + offset <= 256 && len >= 14 && !lost {
                may_arrive.push(vec![(2 * bad.tx.slot(i).buf_idx + 1) as u8; len.into()]);
            }
        }
        bad.tx.advance(slots.len() as u32);
        bad.forward(&mut work);
        prop_assert_eq!(good.take(), may_arrive);
        prop_assert_eq!(bad.tx.space(), 15);
    }

    /// Objective: with any offsets of a receiver, a frame is either written into the buffers of the receiver's slots,
    /// at the offsets that the slots contain afterwards, or not written; no byte is written elsewhere.
    #[test]
    fn any_offset_of_a_receiver(
        rule in a_rule(),
        ptrs in proptest::collection::vec((any::<u64>(), any::<bool>()), 16),
        lens in proptest::collection::vec(16usize..700, 1..6),
        hdr_len in prop::sample::select(vec![0u32, 10, 12]),
    ) {
        let switch = Switch::new("vale-test");
        let mut a = attach(&switch, "a", Make::default());
        let mut bad = with_offsets(&switch, "bad", Make { hdr_len, ..Make::default() }, rule);
        let mut work = ForwardMemory::default();
        let ring = bad.rx.mem().clone();
        (2..ring.num_bufs()).for_each(|buf| assert!(ring.write(buf, 0, &[0; 256])));
        for (i, &(ptr, small)) in ptrs.iter().enumerate() {
            ring.set_ptr(i as u32, if small { ptr % 300 } else { ptr });
        }
        let sent: Vec<Vec<u8>> = lens.iter().map(|&len| vec![0x55; len]).collect();
        for frame in &sent {
            if a.send(frame) {
                a.forward(&mut work);
            }
        }
        bad.rx.sync();
        let mut expected = sent.into_iter();
        let mut frame = 0usize;
        let n = bad.rx.space();
        for k in 0..ring.num_slots() {
            let i = bad.rx.at(k);
            let slot = ring.slot(i);
            let at = rule.of(slot.ptr) as usize;
            let len = if k < n { usize::from(slot.len) } else { 0 };
            prop_assert!(at + len <= 256);
            let mut bytes = [0u8; 256];
            prop_assert!(ring.read(slot.buf_idx, 0, &mut bytes));
            prop_assert!(bytes[..at].iter().chain(&bytes[at + len..]).all(|&b| b == 0), "slot {}", k);
            frame += bytes[at..at + len].iter().filter(|&&b| b == 0x55).count();
            if len > 0 && slot.flags & NS_MOREFRAG == 0 {
                let whole = std::mem::take(&mut frame);
                // If a frame found no room, the slots may contain only its virtio-net header.
                let lost = whole == 0 && len == hdr_len as usize;
                prop_assert!(lost || expected.any(|sent| sent.len() == whole), "a frame of {} bytes", whole);
            }
        }
        prop_assert_eq!(frame, 0, "the last frame is incomplete");
    }
}

/// Objective: an application that constantly changes its slots while they are forwarded affects only its own frames.
#[test]
fn slots_changed_while_forwarding() {
    let switch = Switch::new("vale-test");
    let mut bad = attach(&switch, "bad", Make { slots: 64, ..Make::default() });
    let mut good = attach(&switch, "good", Make { slots: 64, ..Make::default() });
    let mut work = ForwardMemory::default();
    let stop = AtomicBool::new(false);
    let ring = bad.tx.mem().clone();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut x = 1u64;
            while !stop.load(Ordering::Relaxed) {
                x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                ring.set_slot_word(
                    (x >> 33) as u32 % 64,
                    (x >> 20) as u32 % 200,
                    (x >> 40) as u16,
                    (x >> 50) as u16 & 0x31,
                );
            }
        });
        for _ in 0..20_000 {
            bad.tx.advance(8);
            bad.forward(&mut work);
            good.rx.sync();
            for k in 0..good.rx.space() {
                assert!(u32::from(good.rx.slot(good.rx.at(k)).len) <= 256);
            }
            good.rx.advance(good.rx.space());
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// Objective: an application that constantly changes its frames' headers while policies decide on them gets no
/// forbidden frame through: no foreign source address and no other VLAN, in frames of one or two pieces.
#[test]
fn headers_changed_under_policies() {
    let switch = Switch::new("vale-test");
    let make = Make { slots: 64, buf_size: 512, ..Make::default() };
    let mut bad = attach(&switch, "bad", make);
    let mut good = attach(&switch, "good", make);
    let guard = Guard::new("mac".parse().unwrap(), "02:00:00:00:00:01".parse().unwrap()).unwrap();
    let trunk = |vlans: &str| Some(Vlans::trunk(vlans.parse().unwrap(), None).unwrap());
    let guarded = CompiledPolicies { vlans: trunk("10"), guard: Some(guard), ..CompiledPolicies::default() };
    switch.set_policies(bad.id, Some(Arc::new(guarded)), None);
    switch.set_policies(
        good.id,
        Some(Arc::new(CompiledPolicies { vlans: trunk("10,99"), ..CompiledPolicies::default() })),
        None,
    );
    let header = |source: u8, vlan: u8| [&mac(source)[..], &[0x81, 0, 0, vlan]].concat();
    let right = header(1, 10);
    let mut work = ForwardMemory::default();
    let stop = AtomicBool::new(false);
    let ring = bad.tx.mem().clone();
    let buffers = (0..64).map(|i| bad.tx.slot(i).buf_idx).collect::<Vec<_>>();
    let mut got = 0;
    let mut refused = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let headers = [right.clone(), header(7, 10), right.clone(), header(1, 99)];
            for header in headers.iter().cycle().take_while(|_| !stop.load(Ordering::Relaxed)) {
                buffers.iter().for_each(|&buf| assert!(ring.write(buf, 6, header)));
            }
        });
        for round in 0..20_000u16 {
            for n in 0..16 {
                let sent = frame(255, 1, round, if n % 4 == 3 { 400 } else { 60 });
                assert!(bad.send(&[&sent[..6], &right, &sent[12..]].concat()));
            }
            bad.forward(&mut work);
            for frame in good.take() {
                assert_eq!(frame[6..16], right, "round {round}");
                got += 1;
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    for why in [DropReason::SpoofedMac, DropReason::Vlan] {
        refused += bad.sent.drops(why);
    }
    assert!(got > 0 && refused > 0, "the changes were seen: {got} {refused}");
}
