//! Frames that wait for a lossless or sleeping receiver: owners, time limits, and frames that wait while a control
//! thread wants to remove their queue.
#![allow(unsafe_code)]

use crate::common;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Make, TestPort, attach, bell, frame};
use netvale_mem::host::HostTx;
use netvale_mem::lent::LIMIT;
use netvale_port::ring_in::RingIngress;
use netvale_port::{Batch, DropReason, Egress, Ingress, RingCounters, Task};
use netvale_switch::holding::{FOR_A_BATCH, FOR_A_WAKE_UP, WITHOUT_PROGRESS};
use netvale_switch::{ForwardMemory, Forwarder, PassResult, Switch, SwitchSettings};

/// The ingress of a ring that a control thread waits to remove.
struct Wanted(RingIngress);

impl Ingress for Wanted {
    // SAFETY: as for the inner ingress, which is released and dropped together with this ingress.
    unsafe fn take(&mut self, batch: &mut Batch) {
        // SAFETY: the caller fulfils the same contract as for `take` of the inner ingress.
        unsafe { self.0.take(batch) };
    }

    fn release(&mut self) {
        self.0.release();
    }

    fn is_wanted(&self) -> bool {
        true
    }

    fn arm(&mut self) -> bool {
        self.0.arm()
    }

    fn disarm(&mut self) {
        self.0.disarm();
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.wake_fd()
    }

    fn counters(&self) -> &Arc<RingCounters> {
        self.0.counters()
    }
}

/// Sends a batch to `b`, which reads one frame in each period of `pace`, until the batch is no longer held. Fails after
/// `limit`. Returns the numbers of frames sent and read.
fn held_by_slow_reader(
    a: &mut TestPort,
    b: &mut TestPort,
    work: &mut ForwardMemory,
    pace: Duration,
    limit: Duration,
) -> (u16, u64) {
    b.send(&frame(255, 2, 0, 60));
    b.forward(work);
    let sent = 200;
    (0..sent).for_each(|i| assert!(a.send(&frame(2, 1, i, 60))));
    a.tx.sync();
    a.forwarder.pass(work);
    assert!(a.forwarder.is_held());
    let began = Instant::now();
    let mut read = 0;
    while a.forwarder.is_held() {
        std::thread::sleep(pace);
        b.rx.sync();
        b.rx.advance(1);
        b.rx.sync();
        read += 1;
        a.forwarder.pass(work);
        a.forwarder.pass(work);
        assert!(began.elapsed() < limit, "held for too long");
    }
    (sent, read)
}

/// Objective: while a control thread waits to remove the ring from which a batch was taken, reads of the receiver do
/// not restart the time limit as they normally do. Frames that are unread at the limit are dropped as `Stalled`.
#[test]
fn progress_restarts_no_limit() {
    let switch = Switch::new("vale-test");
    let mut a = attach(&switch, "a", Make { slots: 256, ..Make::default() });
    let mut b = attach(&switch, "b", Make { slots: 4, lossless: true, ..Make::default() });
    let host = HostTx::new(a.mem.tx[0].clone(), bell());
    let ring = RingIngress::new(Arc::clone(&a.mem), host, bell(), 0, Arc::clone(&a.sent));
    a.forwarder = Forwarder::new(Arc::clone(&switch), a.id, 0, Box::new(Wanted(ring)));
    let mut work = ForwardMemory::default();
    // Reading all frames at this pace would take four seconds.
    let (sent, read) = held_by_slow_reader(&mut a, &mut b, &mut work, Duration::from_millis(20), LIMIT);
    let stalled = b.received.counters().drops(DropReason::Stalled);
    assert_eq!(stalled + read + 3, u64::from(sent), "each is delivered, or dropped by name");
    assert!(stalled > 0);
}

/// Objective: a receiver that reads slowly holds its senders back no longer than the limit for a batch, and afterwards
/// may not hold them for a while, even if the receiver has room.
#[test]
fn a_slow_receiver_loses_its_right() {
    let switch = Switch::new("vale-test");
    let mut a = attach(&switch, "a", Make { slots: 256, ..Make::default() });
    let mut b = attach(&switch, "b", Make { slots: 4, lossless: true, ..Make::default() });
    let mut work = ForwardMemory::default();
    // Reading all frames at this pace would take twenty seconds.
    let (sent, read) = held_by_slow_reader(&mut a, &mut b, &mut work, Duration::from_millis(100), 3 * FOR_A_BATCH);
    let stalled = || b.received.counters().drops(DropReason::Stalled);
    assert_eq!(stalled() + read + 3, u64::from(sent), "each is delivered, or dropped by name");
    let before = stalled();
    b.rx.sync();
    b.rx.advance(3);
    b.rx.sync();
    (0..10).for_each(|i| assert!(a.send(&frame(2, 1, i, 60))));
    a.forward(&mut work);
    assert!(!a.forwarder.is_held());
    assert_eq!(stalled() - before, 7);
}

/// Objective: a sender that finds no room because another sender takes that room keeps waiting. A receiver that takes
/// frames of any sender is not stalled.
#[test]
fn a_receiver_that_takes_others_frames_is_not_stalled() {
    let switch = Switch::new("vale-test");
    let mut a = attach(&switch, "a", Make { slots: 64, ..Make::default() });
    let mut other = attach(&switch, "other", Make { slots: 64, ..Make::default() });
    let mut b = attach(&switch, "b", Make { slots: 4, lossless: true, ..Make::default() });
    let mut work = ForwardMemory::default();
    b.send(&frame(255, 2, 0, 60));
    b.forward(&mut work);
    (0..8).for_each(|i| assert!(a.send(&frame(2, 1, i, 60))));
    a.forward(&mut work);
    assert!(a.forwarder.is_held());
    let began = Instant::now();
    while began.elapsed() < WITHOUT_PROGRESS * 3 / 2 {
        std::thread::sleep(WITHOUT_PROGRESS / 50);
        b.rx.sync();
        b.rx.advance(1);
        b.rx.sync();
        assert!(other.send(&frame(2, 3, 0, 60)));
        other.forward(&mut work);
        assert!(!other.forwarder.is_held(), "the other sender finds the room");
        a.forwarder.pass(&mut work);
        assert!(a.forwarder.is_held());
    }
    assert_eq!(b.received.counters().drops(DropReason::Stalled), 0);
}

/// Objective: a full lossless port holds back its owner's senders; frames of other owners are dropped, unless the
/// switch is configured otherwise.
#[test]
fn owners_senders_are_held_back() {
    for holds_others in [false, true] {
        let switch = Switch::with("vale-test", SwitchSettings { holds_others, ..SwitchSettings::default() });
        let mut own = attach(&switch, "own", Make { slots: 64, owner: 1, ..Make::default() });
        let mut other = attach(&switch, "other", Make { slots: 64, owner: 2, ..Make::default() });
        let mut b = attach(&switch, "b", Make { slots: 4, lossless: true, owner: 1, ..Make::default() });
        let mut work = ForwardMemory::default();
        b.send(&frame(255, 2, 0, 60));
        b.forward(&mut work);
        for sender in [&mut own, &mut other] {
            (0..8).for_each(|i| assert!(sender.send(&frame(2, 1, i, 60))));
            sender.forward(&mut work);
        }
        assert!(own.forwarder.is_held());
        assert_eq!(other.forwarder.is_held(), holds_others);
        assert_eq!(b.received.counters().drops(DropReason::NoRoom), if holds_others { 0 } else { 8 });
    }
}

/// A sender with 250 slots, and a sleeping receiver with 4 slots, which have room for 3 frames.
fn with_sleeper(settings: SwitchSettings, owners: [u32; 2]) -> (TestPort, TestPort, ForwardMemory) {
    let switch = Switch::with("vale-test", settings);
    let a = attach(&switch, "a", Make { slots: 250, owner: owners[0], ..Make::default() });
    let mut b = attach(&switch, "b", Make { slots: 4, owner: owners[1], ..Make::default() });
    let mut work = ForwardMemory::default();
    b.send(&frame(255, 2, 0, 60));
    b.forward(&mut work);
    assert!(!b.rx.arm());
    (a, b, work)
}

fn send(a: &mut TestPort, tags: std::ops::Range<u16>, work: &mut ForwardMemory) {
    tags.for_each(|tag| assert!(a.send(&frame(2, 1, tag, 60))));
    a.forward(work);
}

fn tags(frames: &[Vec<u8>]) -> Vec<u16> {
    frames.iter().map(|f| u16::from_be_bytes([f[14], f[15]])).collect()
}

/// Objective: a sleeping receiver with a small ring gets every frame in order: the first frames wake it, it reads all
/// frames, and sleeps again.
#[test]
fn a_waking_receiver_is_waited_for() {
    let (mut a, mut b, mut work) = with_sleeper(SwitchSettings::default(), [0, 0]);
    send(&mut a, 0..100, &mut work);
    let mut got = Vec::new();
    while a.forwarder.is_held() {
        b.rx.disarm();
        got.extend(tags(&b.take()));
        assert!(!b.rx.arm());
        a.forward(&mut work);
    }
    got.extend(tags(&b.take()));
    assert_eq!(got, (0..100).collect::<Vec<_>>());
    assert_eq!(b.received.counters().drops(DropReason::NoRoom), 0);
}

/// Objective: senders do not wait for a running receiver, neither before its first sleep nor when its ring fills up
/// again after a wake-up.
#[test]
fn one_that_runs_is_not() {
    let (mut a, mut b, mut work) = with_sleeper(SwitchSettings::default(), [0, 0]);
    let drops = |b: &TestPort| b.received.counters().drops(DropReason::NoRoom);
    b.rx.disarm();
    send(&mut a, 0..10, &mut work);
    assert_eq!((a.forwarder.is_held(), drops(&b)), (false, 7));
    assert_eq!(b.take().len(), 3);
    assert!(!b.rx.arm());
    send(&mut a, 0..10, &mut work);
    assert!(a.forwarder.is_held());
    b.rx.disarm();
    assert_eq!(b.take().len(), 3);
    a.forward(&mut work);
    assert_eq!((a.forwarder.is_held(), drops(&b), b.take().len()), (false, 7 + 4, 3));
}

/// Objective: for a receiver that was woken but is stopped and does not run, senders wait only once, not for each
/// batch; after the receiver has run, senders wait for it again.
#[test]
fn one_that_was_stopped_is_waited_for_once() {
    let (mut a, mut b, mut work) = with_sleeper(SwitchSettings::default(), [0, 0]);
    let began = Instant::now();
    send(&mut a, 0..10, &mut work);
    while a.forwarder.is_held() {
        a.forward(&mut work);
        assert!(began.elapsed() < Duration::from_secs(20), "held for good");
    }
    assert!(began.elapsed() > FOR_A_WAKE_UP);
    let drops = |b: &TestPort| b.received.counters().drops(DropReason::NoRoom);
    assert_eq!(drops(&b), 7);
    for batch in 1..=100 {
        send(&mut a, 0..10, &mut work);
        assert_eq!((a.forwarder.is_held(), drops(&b)), (false, 7 + 10 * batch));
    }
    assert_eq!(b.take().len(), 3);
    assert!(!b.rx.arm());
    send(&mut a, 0..10, &mut work);
    assert!(a.forwarder.is_held());
}

/// Objective: a receiver that claims to sleep while it reads one frame at a time holds a batch back no longer than the
/// limit for a woken receiver.
#[test]
fn one_that_claims_to_sleep() {
    let (mut a, mut b, mut work) = with_sleeper(SwitchSettings::default(), [0, 0]);
    let began = Instant::now();
    let sent = 200;
    let mut read = 0;
    send(&mut a, 0..sent, &mut work);
    while a.forwarder.is_held() {
        // Reading all frames at this pace would take 400 ms.
        std::thread::sleep(Duration::from_millis(2));
        b.rx.sync();
        b.rx.advance(1);
        b.rx.sync();
        read += 1;
        a.forwarder.pass(&mut work);
        assert!(began.elapsed() < Duration::from_secs(20), "held for too long");
    }
    let dropped = b.received.counters().drops(DropReason::NoRoom);
    assert!(dropped > 0);
    assert_eq!(dropped + read + 3, u64::from(sent), "each is delivered, or dropped by name");
}

/// Objective: a sleeping receiver holds back its owner's senders; frames of other owners are dropped, unless the switch
/// is configured otherwise.
#[test]
fn a_sleeper_holds_back_its_owners_senders() {
    for (holds_others, owners, held) in [(false, [1, 1], true), (false, [1, 2], false), (true, [1, 2], true)] {
        let (mut a, b, mut work) = with_sleeper(SwitchSettings { holds_others, ..SwitchSettings::default() }, owners);
        send(&mut a, 0..10, &mut work);
        assert_eq!(a.forwarder.is_held(), held);
        assert_eq!(b.received.counters().drops(DropReason::NoRoom), if held { 0 } else { 7 });
    }
}

/// Objective: a receiver that makes room rings the room doorbell only if the sender asked for a signal and has not
/// withdrawn that request.
#[test]
fn a_receiver_says_when_there_is_room() {
    let (mut a, mut b, mut work) = with_sleeper(SwitchSettings::default(), [0, 0]);
    send(&mut a, 0..10, &mut work);
    assert!(a.forwarder.is_held());
    assert!(a.forwarder.ask_for_room().is_some() && !b.room.drain());
    b.rx.sync();
    assert!(!b.room.drain(), "nothing was released");
    b.take();
    assert!(b.room.drain());
    let mut forgotten = 0;
    a.forwarder.stop_asking(&mut |_| forgotten += 1);
    a.forwarder.stop_asking(&mut |_| forgotten += 1);
    a.forward(&mut work);
    b.take();
    assert_eq!((forgotten, b.room.drain()), (1, false));
}

/// Objective: after a sender has ended, none of its frames waits for a lossless receiver. Every lost frame is counted:
/// the frames that waited, and the frames that follow them in the sender's ring.
#[test]
fn a_sender_that_ends() {
    let switch = Switch::new("vale-test");
    let mut a = attach(&switch, "a", Make { slots: 1024, ..Make::default() });
    let mut b = attach(&switch, "b", Make { slots: 8, lossless: true, ..Make::default() });
    let mut work = ForwardMemory::default();
    b.send(&frame(255, 2, 0, 60));
    b.forward(&mut work);
    (0..900).for_each(|i| assert!(a.send(&frame(2, 1, i, 60))));
    a.forward(&mut work);
    assert!(a.forwarder.is_held());
    a.forwarder.stop_waiting();
    let mut passes = 0;
    while a.forwarder.pass(&mut work) != PassResult::Idle {
        passes += 1;
        assert!(passes < 100, "frames still wait");
    }
    assert_eq!(tags(&b.take()), (0..7).collect::<Vec<_>>());
    assert_eq!(b.received.counters().drops(DropReason::NoRoom), 900 - 7);
    let mut c = attach(&switch, "c", Make { slots: 64, ..Make::default() });
    (0..9).for_each(|i| assert!(c.send(&frame(2, 3, i, 60))));
    c.forward(&mut work);
    assert!(c.forwarder.is_held(), "other senders are held back as before");
}
