//! A link against its settings: order, times, losses, bounds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use netvale_policy::bucket::Limit;
use netvale_wire::offload::{Gso, GsoKind, Offload};

use super::*;
use crate::tests::{bytes, deliver};
use crate::{Ingress, Source};

fn settings(words: &str) -> LinkSettings {
    let impair = (!words.is_empty()).then(|| words.parse().unwrap());
    LinkSettings { impair, rates: Vec::new(), bytes: 1 << 20, frames: None, seed: 7 }
}

fn link(words: &str) -> (Arc<Link>, Source<LinkEnd>) {
    let (link, end) = Link::new(settings(words), 2, None, Arc::default()).unwrap();
    (link, Source::new(Box::new(end)))
}

fn frames(count: u16, len: usize) -> Vec<Vec<u8>> {
    (0..count).map(|n| [n.to_be_bytes().repeat(7), vec![n as u8; len.saturating_sub(14)]].concat()).collect()
}

/// Takes frames until nothing is in flight, with the time by which each had arrived.
fn drain(link: &Link, source: &mut Source<LinkEnd>) -> Vec<(Vec<u8>, Instant)> {
    let mut got = Vec::new();
    let mut spare = Box::default();
    let begun = Instant::now();
    while link.under_way() > 0 {
        assert!(begun.elapsed() < Duration::from_secs(30), "frames stay");
        let taken = bytes(source.take(&mut spare));
        // Taken late on purpose: the thread may have waited for its CPU until the frames came.
        let now = Instant::now();
        got.extend(taken.into_iter().map(|frame| (frame, now)));
        source.release(&mut spare);
    }
    got
}

/// Objective: frames arrive after their delay and not before, in order, byte for byte; the end gives the time to sleep.
#[test]
fn delay() {
    let (link, mut source) = link("delay 20ms");
    let sent = frames(40, 333);
    let begun = Instant::now();
    assert_eq!(deliver(&*link, &sent, |_| {}), 40);
    let mut spare = Box::default();
    assert!(source.take(&mut spare).is_empty());
    source.release(&mut spare);
    let nap = source.ingress().nap().unwrap();
    assert!(nap <= Duration::from_millis(20), "{nap:?}");
    let got = drain(&link, &mut source);
    assert!(got.iter().all(|(_, at)| at.duration_since(begun) >= Duration::from_millis(20)));
    assert_eq!(got.into_iter().map(|(frame, _)| frame).collect::<Vec<_>>(), sent);
    assert_eq!((source.ingress().nap(), link.under_way()), (None, 0));
}

/// Objective: an end that sleeps is woken by the first frame.
#[test]
fn wakes() {
    let (link, mut source) = link("delay 1ms");
    assert!(!source.arm());
    assert_eq!(deliver(&*link, &frames(1, 60), |_| {}), 1);
    let fd = source.ingress().wake_fd().unwrap();
    let mut ready = [rustix::event::PollFd::from_borrowed_fd(fd, rustix::event::PollFlags::IN)];
    assert_eq!(rustix::event::poll(&mut ready, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(1));
    assert!(source.arm(), "there are news");
}

/// Objective: lost frames are counted by name, and their room is free again; the rest arrives.
#[test]
fn loss() {
    let (link, mut source) = link("loss 50% seed 3");
    let mut got = 0;
    for _ in 0..100 {
        assert_eq!(deliver(&*link, &frames(100, 700), |_| {}), 100);
        got += drain(&link, &mut source).len() as u64;
    }
    let lost = link.counters().drops(DropReason::LinkLoss);
    assert_eq!(got + lost, 10_000);
    // Six standard deviations.
    assert!((4700..5300).contains(&got), "{got}");
    assert_eq!(link.shared.used.load(Ordering::Relaxed), 0);
}

/// Objective: duplicates arrive twice, damage is one bit of one of them, reordered frames arrive too; nothing else
/// changes.
#[test]
fn duplicates_and_damage() {
    let (link, mut source) = link("duplicate 100% corrupt 50% seed 5");
    let sent = frames(60, 200);
    assert_eq!(deliver(&*link, &sent, |_| {}), 60);
    let got = drain(&link, &mut source);
    assert_eq!(got.len(), 120);
    let differing = |a: &[u8], b: &[u8]| a.iter().zip(b).map(|(a, b)| (a ^ b).count_ones()).sum::<u32>();
    let mut damaged = 0;
    for (frame, _) in &got {
        let nearest = sent.iter().map(|sent| differing(sent, frame)).min().unwrap();
        assert!(nearest <= 1);
        damaged += nearest;
    }
    assert!((20..100).contains(&damaged), "{damaged}");
    assert_eq!(link.shared.used.load(Ordering::Relaxed), 0);
}

/// Objective: frames beyond the limits in flight, in bytes or in frames, are dropped by name; no frame in flight is
/// dropped.
#[test]
fn bounds() {
    let (link, mut source) = link("delay 50ms limit 30");
    assert_eq!(deliver(&*link, &frames(50, 60), |_| {}), 50);
    assert_eq!(drain(&link, &mut source).len(), 30);
    assert_eq!(link.counters().drops(DropReason::LinkFull), 20);
    link.set(LinkSettings { bytes: 4000, ..settings("delay 50ms") });
    assert_eq!(deliver(&*link, &frames(10, 1000), |_| {}), 10);
    assert_eq!(drain(&link, &mut source).len(), 3);
    assert_eq!(link.counters().drops(DropReason::LinkFull), 27);
}

/// Objective: frames of any length wrap around the ring of bytes again and again, from several threads at the same
/// time, each whole and each once.
#[test]
fn threads() {
    let (link, mut source) = link("delay 100us");
    let total = std::thread::scope(|scope| {
        let senders: Vec<_> = (0..3u8)
            .map(|id| {
                let link = &link;
                scope.spawn(move || {
                    for round in 0..200usize {
                        let frames: Vec<_> = (0..20).map(|n| vec![id; 20 + (round * 37 + n * 101) % 9000]).collect();
                        assert_eq!(deliver(&**link, &frames, |_| {}), 20);
                        std::thread::yield_now();
                    }
                })
            })
            .collect();
        let mut got = 0u64;
        let mut spare = Box::default();
        while !senders.iter().all(std::thread::ScopedJoinHandle::is_finished) || link.under_way() > 0 {
            for frame in bytes(source.take(&mut spare)) {
                assert!(frame.iter().all(|byte| *byte == frame[0]) && frame.len() >= 20);
                got += 1;
            }
            source.release(&mut spare);
        }
        got
    });
    assert_eq!(total + link.counters().drops(DropReason::LinkFull), 3 * 200 * 20);
    assert!(total > 1000);
    assert_eq!(link.shared.used.load(Ordering::Relaxed), 0);
}

/// Objective: a link with nothing but a rate passes allowed frames directly, keeps the rest in order, and says how long
/// they wait; a full one lets its senders wait.
#[test]
fn slow() {
    let rates = vec![Limit::bits(8_000_000, 5000)];
    let (to, from) = crate::loopback::loopback(10_000).unwrap();
    let slow = LinkSettings { impair: None, rates, bytes: 1 << 20, frames: None, seed: 0 };
    let (link, end) = Link::new(slow, 1, Some(Arc::new(to)), Arc::default()).unwrap();
    let mut source = Source::new(Box::new(end));
    let mut direct = Source::new(Box::new(from));
    let mut spare = Box::default();
    let sent = frames(40, 1000);
    let begun = Instant::now();
    assert_eq!(deliver(&*link, &sent, |_| {}), 40);
    let mut got = bytes(direct.take(&mut spare));
    direct.release(&mut spare);
    assert!((5..8).contains(&got.len()), "{}", got.len());
    got.extend(drain(&link, &mut source).into_iter().map(|(frame, _)| frame));
    assert_eq!(got, sent);
    assert!(begun.elapsed() >= Duration::from_millis(33), "{:?}", begun.elapsed());
    let done = deliver(&*link, &frames(255, 60_000), |_| {});
    assert!((10..30).contains(&done), "{done}");
    link.flush();
    let flushed = Instant::now();
    drain(&link, &mut source);
    assert!(flushed.elapsed() < Duration::from_secs(1));
}

/// Objective: a link knows all its memory from the start: frames beyond the bytes allowed need no more, other settings
/// get no more, and settings that need more are recognised.
#[test]
fn memory() {
    let bytes = 1 << 20;
    let all = settings("delay 1ms limit 4000000000");
    let lanes = 3 * bytes;
    assert!((lanes + 1..2 * lanes).contains(&all.memory(2)), "{}", all.memory(2));
    let few = settings("delay 1ms limit 100");
    assert!((lanes + 100..lanes + (1 << 17)).contains(&few.memory(2)), "{}", few.memory(2));
    let (link, end) = Link::new(few.clone(), 2, None, Arc::default()).unwrap();
    let mut source = Source::new(Box::new(end));
    assert_eq!(link.memory(), few.memory(2));
    assert!(link.has_room_for(&settings("loss 1% limit 100")));
    assert!(!link.has_room_for(&all));
    assert!(!link.has_room_for(&LinkSettings { bytes: bytes + 1, ..few }));
    let before = link.memory();
    link.set(all);
    assert_eq!(deliver(&*link, &frames(150, 60), |_| {}), 150);
    assert_eq!((drain(&link, &mut source).len(), link.memory()), (100, before));
}

/// Objective: a segment takes a link's time for all frames that it is cut into, with their headers.
#[test]
fn segments() {
    let (link, mut source) = link("rate 800kbit");
    let gso = Gso { kind: GsoKind::Tcp4, gso_size: 100, hdr_len: 54, csum_start: 34, csum_offset: 16, ecn: false };
    let begun = Instant::now();
    assert_eq!(deliver(&*link, &frames(3, 1054), |batch| batch.set_offload(Offload::Gso(gso))), 3);
    let got = drain(&link, &mut source);
    // A byte takes 10 µs: two frames of 1,054 bytes, and ten of 154.
    assert!(got[1].1.duration_since(begun) >= Duration::from_micros(21_080));
    assert!(got[2].1.duration_since(begun) >= Duration::from_micros(36_480));
}

/// Objective: a frame's marks cross the link with it.
#[test]
fn marks() {
    let (link, mut source) = link("delay 1us");
    assert_eq!(deliver(&*link, &frames(4, 60), Batch::set_no_learn), 4);
    let mut spare = Box::default();
    let mut got = Vec::new();
    while link.under_way() > 0 {
        let batch = source.take(&mut spare);
        got.extend((0..batch.len()).filter_map(|i| Some(batch.get(i)?.no_learn())));
        source.release(&mut spare);
    }
    assert_eq!(got, [false, false, true, false]);
}

/// Objective: a reader that finishes frames immediately never sees its count fall below what it holds; the counts
/// balance once all frames have arrived, and never exceed the limits.
#[test]
fn books() {
    let (link, mut source) = link("loss 100%");
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| (0..20_000).for_each(|_| _ = deliver(&*link, &frames(1, 60), |_| {})));
        let mut spare = Box::default();
        while !sender.is_finished() || link.under_way() > 0 {
            source.take(&mut spare);
            source.release(&mut spare);
            let used = link.shared.used.load(Ordering::Relaxed);
            assert!(used <= 1 << 20, "{used}");
        }
    });
    assert_eq!(link.counters().drops(DropReason::LinkLoss), 20_000);
}

/// Objective: frames delivered after the far end has gone are counted once the link goes.
#[test]
fn left() {
    let (link, source) = link("delay 1ms");
    drop(source);
    let counters = Arc::clone(link.counters());
    assert_eq!(deliver(&*link, &frames(3, 60), |_| {}), 3);
    assert_eq!(counters.drops(DropReason::NoPort), 0);
    drop(link);
    assert_eq!(counters.drops(DropReason::NoPort), 3);
}
