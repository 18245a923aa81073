//! Tests of a link against its settings: order, times, losses, limits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use netvale_policy::bucket::RateLimit;
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

/// Takes frames until nothing is in flight. Returns each frame with a time by which the frame had arrived.
fn drain(link: &Link, source: &mut Source<LinkEnd>) -> Vec<(Vec<u8>, Instant)> {
    let mut got = Vec::new();
    let mut spare = Box::default();
    let begun = Instant::now();
    while link.under_way() > 0 {
        assert!(begun.elapsed() < Duration::from_secs(30), "frames stay");
        let taken = bytes(source.take(&mut spare));
        // Read the clock after the frames: the thread may have been preempted before it took them.
        let now = Instant::now();
        got.extend(taken.into_iter().map(|frame| (frame, now)));
        source.release(&mut spare);
    }
    got
}

/// Objective: frames arrive unchanged and in order, not before their delay has elapsed; the far end reports how long to
/// sleep.
#[test]
fn frames_arrive_after_their_delay_in_order() {
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

/// Objective: the first frame wakes a sleeping far end.
#[test]
fn the_first_frame_wakes_a_sleeping_end() {
    let (link, mut source) = link("delay 1ms");
    assert!(!source.arm());
    assert_eq!(deliver(&*link, &frames(1, 60), |_| {}), 1);
    let fd = source.ingress().wake_fd().unwrap();
    let mut ready = [rustix::event::PollFd::from_borrowed_fd(fd, rustix::event::PollFlags::IN)];
    assert_eq!(rustix::event::poll(&mut ready, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(1));
    assert!(source.arm(), "there is a frame already");
}

/// Objective: lost frames are counted as `LinkLoss`, and their room is free again; all other frames arrive.
#[test]
fn lost_frames_are_counted_by_name() {
    let (link, mut source) = link("loss 50% seed 3");
    let mut got = 0;
    for _ in 0..100 {
        assert_eq!(deliver(&*link, &frames(100, 700), |_| {}), 100);
        got += drain(&link, &mut source).len() as u64;
    }
    let lost = link.counters().drops(DropReason::LinkLoss);
    assert_eq!(got + lost, 10_000);
    // The limits are six standard deviations from the mean.
    assert!((4700..5300).contains(&got), "{got}");
    assert_eq!(link.shared.used.load(Ordering::Relaxed), 0);
}

/// Objective: duplicated frames arrive twice, and damage inverts one bit of a copy; nothing else changes.
#[test]
fn duplicates_arrive_twice_and_damage_is_one_bit() {
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

/// Objective: frames beyond the limits in flight, in bytes or in frames, are dropped as `LinkFull`; no frame in flight
/// is dropped.
#[test]
fn frames_beyond_the_limits_are_dropped_by_name() {
    let (link, mut source) = link("delay 50ms limit 30");
    assert_eq!(deliver(&*link, &frames(50, 60), |_| {}), 50);
    assert_eq!(drain(&link, &mut source).len(), 30);
    assert_eq!(link.counters().drops(DropReason::LinkFull), 20);
    link.set(LinkSettings { bytes: 4000, ..settings("delay 50ms") });
    assert_eq!(deliver(&*link, &frames(10, 1000), |_| {}), 10);
    assert_eq!(drain(&link, &mut source).len(), 3);
    assert_eq!(link.counters().drops(DropReason::LinkFull), 27);
}

/// Objective: frames of any length, from several threads at the same time, wrap around the ring of bytes many times,
/// and each frame arrives whole and once, or is counted as dropped.
#[test]
fn frames_of_several_threads_arrive_whole_and_once() {
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

/// Objective: a link that only limits a rate delivers allowed frames directly and the rest later, in order; if it is
/// full, its senders may wait; flushing ends all delays.
#[test]
fn a_slow_link_passes_allowed_frames_directly() {
    let rates = vec![RateLimit::bits(8_000_000, 5000)];
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

/// Objective: a link's memory is fixed at its creation: neither more frames nor other settings make it grow, and
/// settings that need more memory are recognised.
#[test]
fn a_link_knows_its_memory_from_the_start() {
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

/// Objective: a large segment occupies the link for as long as all frames into which it is cut, with their headers.
#[test]
fn a_segment_takes_the_time_of_all_its_frames() {
    let (link, mut source) = link("rate 800kbit");
    let gso = Gso { kind: GsoKind::Tcp4, gso_size: 100, hdr_len: 54, csum_start: 34, csum_offset: 16, ecn: false };
    let begun = Instant::now();
    assert_eq!(deliver(&*link, &frames(3, 1054), |batch| batch.set_offload(Offload::Gso(gso))), 3);
    let got = drain(&link, &mut source);
    // A byte takes 10 µs: two frames of 1,054 bytes, and ten frames of 154.
    assert!(got[1].1.duration_since(begun) >= Duration::from_micros(21_080));
    assert!(got[2].1.duration_since(begun) >= Duration::from_micros(36_480));
}

/// Objective: a frame's offload and its no-learn flag cross the link with the frame.
#[test]
fn marks_cross_the_link_with_their_frame() {
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

/// Objective: the counts of frames and bytes in flight do not underflow if the reader finishes frames immediately; no
/// frames are in flight once all frames are lost, and the bytes in flight never exceed their limit.
#[test]
fn the_counts_balance_once_all_frames_arrive() {
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

/// Objective: frames delivered after the far end was dropped are counted when the link is dropped.
#[test]
fn frames_left_on_a_link_are_counted() {
    let (link, source) = link("delay 1ms");
    drop(source);
    let counters = Arc::clone(link.counters());
    assert_eq!(deliver(&*link, &frames(3, 60), |_| {}), 3);
    assert_eq!(counters.drops(DropReason::NoPort), 0);
    drop(link);
    assert_eq!(counters.drops(DropReason::NoPort), 3);
}
