//! Two switches that are joined through the far ends of rings, as by a persistent port that is on both switches.

use crate::common;

use std::sync::Arc;

use common::{Make, TestPort, attach, bell, frame};
use netvale_abi::slot::NS_MOREFRAG;
use netvale_port::far_end::FarEnd;
use netvale_port::ring_in::RingIngress;
use netvale_port::{DropReason, Egress};
use netvale_switch::{ForwardMemory, Forwarder, PassResult, Switch, Task};

/// Creates the forwarder through which frames that `port` receives enter `switch`, as if `from`, a port of `switch`,
/// had sent them.
fn over(port: &TestPort, switch: &Arc<Switch>, from: &TestPort) -> Forwarder {
    let end = FarEnd::new(Arc::clone(&port.received));
    let ingress = RingIngress::new(Arc::clone(&port.mem), end, bell(), 0, Arc::default());
    Forwarder::new(Arc::clone(switch), from.id, 0, Box::new(ingress))
}

/// Creates two switches, each with a station and a port named `v`, and the forwarders that join the two ports.
fn joined() -> ([TestPort; 2], [TestPort; 2], [Forwarder; 2]) {
    let switches = [Switch::new("vale-x"), Switch::new("vale-y")];
    let make = |i: usize, name| attach(&switches[i], name, Make::default());
    let stations = [make(0, "a"), make(1, "b")];
    let sides = [make(0, "v"), make(1, "v")];
    let there = over(&sides[0], &switches[1], &sides[1]);
    let back = over(&sides[1], &switches[0], &sides[0]);
    (stations, sides, [there, back])
}

/// Objective: frames of any length cross to the other switch in order, in both directions; no frame returns to its
/// sender.
#[test]
fn frames_cross_in_order_both_ways() {
    let ([mut a, mut b], _sides, [mut there, mut back]) = joined();
    let mut work = ForwardMemory::default();
    for round in 0..20 {
        let frames: Vec<_> = (0..4).map(|t| frame(255, 1, 100 * round + t, 60 + 200 * usize::from(t))).collect();
        frames.iter().for_each(|f| assert!(a.send(f)));
        a.forward(&mut work);
        assert_eq!(there.pass(&mut work), PassResult::Frames(4));
        assert_eq!(back.pass(&mut work), PassResult::Idle);
        assert_eq!(b.take(), frames);
        let answer = frame(1, 2, round, 700);
        assert!(b.send(&answer));
        b.forward(&mut work);
        assert_eq!(back.pass(&mut work), PassResult::Frames(1));
        assert_eq!(there.pass(&mut work), PassResult::Idle);
        assert_eq!(a.take(), [answer]);
        assert!(b.take().is_empty());
    }
}

/// Objective: frames that find no room at the joint are dropped with a reason, and the other frames cross.
#[test]
fn frames_without_room_are_lost_by_name() {
    let ([mut a, mut b], sides, [mut there, _back]) = joined();
    let mut work = ForwardMemory::default();
    for t in 0..20 {
        assert!(a.send(&frame(255, 1, t, 60)));
        a.forward(&mut work);
    }
    let counters = sides[0].received.counters();
    assert_eq!((counters.frames(), counters.drops(DropReason::NoRoom)), (15, 5));
    assert_eq!(there.pass(&mut work), PassResult::Frames(15));
    assert_eq!(b.take(), (0..15).map(|t| frame(255, 1, t, 60)).collect::<Vec<_>>());
}

/// Objective: a process that maps the rings' memory and overwrites status block and slots makes the joint lose frames,
/// but does not stop it.
#[test]
fn spoilt_rings_do_not_stop_the_joint() {
    let ([mut a, mut b], sides, [mut there, _back]) = joined();
    let mut work = ForwardMemory::default();
    let side = &sides[0].mem.rx[0];
    for (head, tail) in [(0, 0), (7, 9), (16, 16), (u32::MAX, u32::MAX), (15, 3)] {
        assert!(a.send(&frame(255, 1, 1, 60)));
        a.forward(&mut work);
        side.csb.publish_head(head, head);
        side.csb.publish_tail(tail, tail);
        side.ring.set_indices(head, tail, head);
        (0..16).for_each(|i| side.ring.set_slot_word(i, head, tail as u16, NS_MOREFRAG));
        for t in 0..40 {
            assert!(a.send(&frame(255, 1, t, 60)));
            a.forward(&mut work);
            there.pass(&mut work);
        }
        // After the slots have valid buffer indices again, frames cross again.
        (0..16).for_each(|i| side.ring.set_slot_word(i, 2 + i, 0, 0));
        b.take();
        let mut last = None;
        for t in 0..40 {
            assert!(a.send(&frame(255, 1, t, 60)));
            a.forward(&mut work);
            while let PassResult::Frames(_) = there.pass(&mut work) {}
            last = b.take().pop();
        }
        assert_eq!(last, Some(frame(255, 1, 39, 60)), "after {head}, {tail}");
    }
}

/// Objective: a delivery wakes an armed far end; arming reports frames that are already available.
#[test]
fn frames_wake_only_an_armed_far_end() {
    let ([mut a, _b], sides, [mut there, _back]) = joined();
    let mut work = ForwardMemory::default();
    let kicks = || sides[0].received.host().kicks().sent();
    assert!(!there.arm());
    assert!(a.send(&frame(255, 1, 1, 60)));
    a.forward(&mut work);
    assert_eq!(kicks(), 1);
    there.disarm();
    assert!(there.arm(), "frames are available");
    assert_eq!(there.pass(&mut work), PassResult::Frames(1));
    assert!(a.send(&frame(255, 1, 2, 60)));
    a.forward(&mut work);
    assert_eq!(kicks(), 1, "it was not armed");
}
