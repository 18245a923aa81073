//! Applications that write nonsense: each costs itself frames, by name, and nobody else anything.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};

use common::{Make, attach, frame};
use netvale_abi::slot::{NS_INDIRECT, NS_MOREFRAG};
use netvale_port::{DropReason, Egress};
use netvale_switch::{Switch, Work};
use proptest::prelude::*;

/// Objective: every kind of bad slot has its own named drop, and the good frames around it pass.
#[test]
fn bad_slots_are_named_drops() {
    let switch = Switch::new("vale-test");
    let mut bad = attach(&switch, "bad", Make::default());
    let mut good = attach(&switch, "good", Make::default());
    let mut work = Work::default();
    let mut poke = |f: &dyn Fn(&common::TestPort, u32), why: DropReason| {
        let (before, i) = (bad.sent.drops(why), bad.tx.at(1));
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
    poke(&|p, i| p.tx.mem().set_len_flags(i, 60, NS_INDIRECT), DropReason::Indirect);
}

/// Objective: a frame that never ends is dropped when its ring is full or it has more than 64 slots, and the ring goes on.
#[test]
fn endless_frames() {
    for slots in [16u32, 128] {
        let switch = Switch::new("vale-test");
        let mut bad = attach(&switch, "bad", Make { slots, ..Make::default() });
        let mut good = attach(&switch, "good", Make { slots: 256, ..Make::default() });
        let mut work = Work::default();
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

/// Objective: a head outside the ring is counted once, stops that ring only, and the ring goes on once it is mended.
#[test]
fn bad_heads() {
    let switch = Switch::new("vale-test");
    let mut bad = attach(&switch, "bad", Make::default());
    let mut good = attach(&switch, "good", Make::default());
    let mut work = Work::default();
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
    // The receive side, looked at when room is needed.
    good.mem.rx[0].csb.publish_head(16, 16);
    (0..20).for_each(|t| {
        bad.send(&frame(255, 1, t, 60));
        bad.forward(&mut work);
    });
    assert!(good.received.counters().drops(DropReason::BadHead) > 0);
}

/// Objective: a receive slot that names no buffer loses the frame by name; others arrive.
#[test]
fn bad_receive_slots() {
    let switch = Switch::new("vale-test");
    let mut a = attach(&switch, "a", Make::default());
    let b = attach(&switch, "b", Make::default());
    let mut work = Work::default();
    b.rx.mem().set_slot_word(1, u32::MAX, 0, 0);
    (0..3).for_each(|t| assert!(a.send(&frame(255, 1, t, 60))));
    a.forward(&mut work);
    let c = b.received.counters();
    assert_eq!((c.frames(), c.drops(DropReason::BadRxBuffer)), (2, 1));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    /// Objective: whatever an application writes into its slots and heads, with and without a virtio-net header, forwarding neither
    /// panics nor loops, and two honest ports still reach each other.
    #[test]
    fn any_ring_contents(
        slots in proptest::collection::vec((any::<u32>(), any::<u16>(), any::<u16>(), any::<bool>()), 16),
        heads in proptest::collection::vec((0u32..20, 0u32..20), 1..8),
        hdr_len in prop::sample::select(vec![0u32, 10, 12]),
        header in proptest::array::uniform12(any::<u8>()),
    ) {
        let switch = Switch::new("vale-test");
        let mut bad = attach(&switch, "bad", Make { hdr_len, ..Make::default() });
        let mut a = attach(&switch, "a", Make::default());
        let mut b = attach(&switch, "b", Make::default());
        let mut work = Work::default();
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

/// Objective: an application that changes its slots all the time, while they are forwarded, causes nothing but frames of its own
/// making.
#[test]
fn slots_changed_while_forwarding() {
    let switch = Switch::new("vale-test");
    let mut bad = attach(&switch, "bad", Make { slots: 64, ..Make::default() });
    let mut good = attach(&switch, "good", Make { slots: 64, ..Make::default() });
    let mut work = Work::default();
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
