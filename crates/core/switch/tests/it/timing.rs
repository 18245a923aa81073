//! Latencies: each frame of a timed batch is counted with the time until it reaches its destination.

use crate::common;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use common::{Make, TestPort, attach, frame};
use netvale_mem::latency::set_sampling;
use netvale_policy::bucket::RateLimit;
use netvale_port::link::{Link, LinkSettings};
use netvale_switch::trace::{Trace, TraceOptions};
use netvale_switch::{CompiledPolicies, ForwardMemory, Forwarder, PassResult, Switch};

/// A guard that allows one test at a time to set the share of batches that this process times. Dropping the guard turns
/// timing off.
struct Sampling(#[expect(dead_code, reason = "held")] MutexGuard<'static, ()>);

fn sampling(one_of: u32) -> Sampling {
    static ONE: Mutex<()> = Mutex::new(());
    let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    set_sampling(one_of);
    Sampling(one)
}

impl Drop for Sampling {
    fn drop(&mut self) {
        set_sampling(0);
    }
}

/// Two ports; the switch knows the address behind the second port.
fn pair(make: Make) -> (TestPort, TestPort) {
    pair_on(&Switch::new("vale0"), make)
}

fn pair_on(switch: &Arc<Switch>, make: Make) -> (TestPort, TestPort) {
    let [a, mut b] = ["a", "b"].map(|name| attach(switch, name, make));
    assert!(b.send(&frame(255, 2, 0, 60)));
    b.forward(&mut ForwardMemory::default());
    (a, b)
}

/// Sends frames in one batch.
fn send(from: &mut TestPort, frames: usize) {
    (0..frames).for_each(|_| assert!(from.send(&frame(2, 1, 0, 60))));
    from.forward(&mut ForwardMemory::default());
}

/// Makes room for the frames, then sends them like `send`.
fn exchange(from: &mut TestPort, to: &mut TestPort, frames: usize) {
    to.take();
    send(from, frames);
}

fn timed(port: &TestPort) -> u64 {
    port.sent.latency().parts().iter().sum()
}

/// Objective: nothing is timed unless timing is enabled; if it is, each frame of a batch is counted, including dropped
/// frames and frames of a traced port.
#[test]
fn all_of_a_batch() {
    let _alone = sampling(0);
    let (mut a, mut b) = pair(Make::default());
    send(&mut a, 5);
    assert_eq!((timed(&a), a.sent.latency().sum()), (0, 0));
    let begun = Instant::now();
    set_sampling(1);
    exchange(&mut a, &mut b, 5);
    assert_eq!(timed(&a), 5);
    assert_eq!(timed(&b), 0, "received frames count for the sender");
    let sum = a.sent.latency().sum();
    let most = begun.elapsed().as_nanos() as u64;
    assert!(sum > 0 && sum <= 5 * most, "{sum} of {most}");
    // The ring has room for ten more frames.
    send(&mut a, 15);
    assert_eq!((timed(&a), b.take().len()), (20, 15));
    let switch = Switch::new("vale1");
    let mut alone = attach(&switch, "c", Make::default());
    let trace = Arc::new(Trace::new(TraceOptions { filter: None, only_drops: false, one_of: 1, room: 9 }));
    switch.trace("c", &trace).unwrap();
    send(&mut alone, 3);
    assert_eq!((timed(&alone), std::iter::from_fn(|| trace.next()).count()), (3, 3));
    set_sampling(0);
    exchange(&mut a, &mut b, 5);
    assert_eq!(timed(&a), 20);
}

/// Objective: on average, one batch in the configured number is timed, whatever the size of the batches; passes without
/// a frame are not counted; a higher rate takes effect soon.
#[test]
fn one_of_the_configured_number_of_batches_is_timed() {
    let _alone = sampling(10);
    let (mut a, mut b) = pair(Make::default());
    for round in 0..2000 {
        exchange(&mut a, &mut b, 1 + round % 3);
    }
    let all = a.sent.frames();
    assert!((all / 14..all / 7).contains(&timed(&a)), "{} of {all}", timed(&a));
    set_sampling(1_000_000_000);
    let before = timed(&a);
    (0..50).for_each(|_| exchange(&mut a, &mut b, 1));
    let first = timed(&a) - before;
    assert!(first <= 1, "{first} of 50 batches, if one of a billion is timed");
    set_sampling(1);
    (0..50).for_each(|_| exchange(&mut a, &mut b, 1));
    assert!(timed(&a) - before >= 47, "{} of 50 batches", timed(&a) - before);
}

/// Objective: frames that wait for room are timed until they are delivered; the time of other frames does not include
/// the wait.
#[test]
fn waiting_frames_are_timed_until_they_are_taken() {
    let _alone = sampling(1);
    let (mut a, mut b) = pair(Make { slots: 8, lossless: true, ..Make::default() });
    let mut work = ForwardMemory::default();
    send(&mut a, 5);
    let before = timed(&a);
    (0..5).for_each(|_| assert!(a.send(&frame(2, 1, 0, 60))));
    a.tx.sync();
    // Two of the five frames find room.
    assert!(matches!(a.forwarder.pass(&mut work), PassResult::Held), "they wait");
    assert_eq!(timed(&a) - before, 2);
    let at_once = a.sent.latency().sum();
    let wait = Duration::from_millis(3);
    let asleep = Instant::now();
    while asleep.elapsed() < wait {
        std::hint::spin_loop();
    }
    b.take();
    finish(&mut a);
    assert_eq!(timed(&a) - before, 5);
    let waited = a.sent.latency().sum() - at_once;
    assert!(waited >= 3 * wait.as_nanos() as u64, "{waited}");
}

/// Forwards until no frame waits.
fn finish(port: &mut TestPort) {
    let begun = Instant::now();
    let mut work = ForwardMemory::default();
    while port.forwarder.is_held() {
        port.forwarder.pass(&mut work);
        assert!(begun.elapsed() < Duration::from_secs(10), "frames still wait");
    }
}

/// Objective: a flooded frame that waits at several ports is counted once, when the last port has received it.
#[test]
fn a_flooded_frame_counts_once() {
    let _alone = sampling(1);
    let switch = Switch::new("vale0");
    let make = Make { slots: 4, lossless: true, ..Make::default() };
    let [mut a, mut b, mut c] = ["a", "b", "c"].map(|name| attach(&switch, name, make));
    for (port, host) in [(&mut b, 2), (&mut c, 3)] {
        switch.learn(0, u64::from_le_bytes([2, 0, 0, 0, 0, host, 0, 0]), port.id);
    }
    // Fill both receivers' rings.
    for host in [2, 2, 2, 3, 3, 3] {
        assert!(a.send(&frame(host, 1, 0, 60)));
        a.forward(&mut ForwardMemory::default());
    }
    let before = timed(&a);
    for host in [2, 3, 255] {
        assert!(a.send(&frame(host, 1, 0, 60)));
    }
    a.tx.sync();
    assert!(
        matches!(a.forwarder.pass(&mut ForwardMemory::default()), PassResult::Held),
        "four copies wait, two of them of one frame"
    );
    assert_eq!(timed(&a), before);
    b.take();
    a.forwarder.pass(&mut ForwardMemory::default());
    c.take();
    finish(&mut a);
    assert_eq!(timed(&a) - before, 3);
    assert_eq!((b.take().len(), c.take().len()), (2, 2));
}

/// Objective: frames that begin to wait after timing was disabled are not timed, even if timing is enabled again while
/// they wait.
#[test]
fn frames_after_the_end_of_timing_do_not_count() {
    let _alone = sampling(1);
    let (mut a, mut b) = pair(Make { slots: 4, lossless: true, ..Make::default() });
    send(&mut a, 3);
    set_sampling(0);
    let before = timed(&a);
    assert_eq!(before, 3);
    assert!(a.send(&frame(2, 1, 0, 60)));
    a.tx.sync();
    assert!(matches!(a.forwarder.pass(&mut ForwardMemory::default()), PassResult::Held), "it waits");
    set_sampling(1);
    b.take();
    finish(&mut a);
    assert_eq!((timed(&a), b.take().len()), (before, 1));
}

/// Objective: frames that wait because of the sending port's rate limit are timed until they are sent.
#[test]
fn frames_held_back_are_timed_until_sent() {
    let _alone = sampling(1);
    let switch = Switch::new("vale0");
    let (mut a, mut b) = pair_on(&switch, Make::default());
    let policies = CompiledPolicies { rates: vec![RateLimit::frames(10, 1)], ..CompiledPolicies::default() };
    switch.set_policies(a.id, Some(Arc::new(policies)), None);
    let begun = Instant::now();
    send(&mut a, 4);
    assert!(timed(&a) < 4, "{} of 4 are sent", timed(&a));
    finish(&mut a);
    let all = begun.elapsed();
    assert_eq!((timed(&a), b.take().len()), (4, 4));
    // One frame is the burst, and the bucket may be in debt by one more frame; the last two frames are sent 100 ms
    // apart.
    let least = Duration::from_millis(100);
    let sum = Duration::from_nanos(a.sent.latency().sum());
    assert!(sum >= least && sum <= 4 * all, "{sum:?} of {all:?}");
}

/// Objective: frames that are put on a link are timed until they are on the link, and are not timed again when they
/// leave it.
#[test]
fn frames_on_a_link_are_timed_until_there() {
    let _alone = sampling(1);
    let switch = Switch::new("vale0");
    let (mut a, mut b) = pair_on(&switch, Make::default());
    let wait = Duration::from_millis(20);
    let settings =
        LinkSettings { impair: Some("delay 20ms".parse().unwrap()), bytes: 1 << 16, ..LinkSettings::default() };
    let (link, end) = Link::new(settings, 1, None, Arc::clone(&a.sent)).unwrap();
    switch.set_policies(
        a.id,
        Some(Arc::new(CompiledPolicies { link: Some(link), ..CompiledPolicies::default() })),
        None,
    );
    let begun = Instant::now();
    send(&mut a, 5);
    let put = timed(&a);
    let took = begun.elapsed();
    assert_eq!((put, b.take().len()), (5, 0));
    assert!(a.sent.latency().sum() <= 5 * took.as_nanos() as u64);
    let mut out = Forwarder::of_link(switch, a.id, end);
    let mut got = 0;
    let mut work = ForwardMemory::default();
    while got < 5 {
        _ = out.pass(&mut work);
        got += b.take().len();
        assert!(begun.elapsed() < Duration::from_secs(10), "{got} of 5 came");
    }
    assert!(begun.elapsed() >= wait);
    assert_eq!(timed(&a), put);
}
