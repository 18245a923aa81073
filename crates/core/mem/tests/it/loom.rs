//! Every interleaving of the notification protocol and of the leases, with loom:
//! `RUSTFLAGS="--cfg loom" cargo test --release -p netvale-mem --test it loom::`.
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use loom::thread;
use netvale_mem::lease::Leases;
use netvale_mem::notify::{arm, disarm, wanted};

/// Objective: a sleeper that armed and found no news is always woken for later news.
///
/// Steps: one thread publishes, checks `need_kick` and rings; the other thread arms, re-checks, and would sleep. If the
/// sleeper has neither news nor a ring at the end, a wake-up was lost.
#[test]
fn no_lost_wake_up() {
    loom::model(|| {
        let news = Arc::new(AtomicU32::new(0));
        let need_kick = Arc::new(AtomicU32::new(0));
        let rung = Arc::new(AtomicU32::new(0));
        let waker = {
            let news = news.clone();
            let need_kick = need_kick.clone();
            let rung = rung.clone();
            thread::spawn(move || {
                news.store(1, Ordering::Release);
                if wanted(&need_kick) {
                    rung.store(1, Ordering::Release);
                }
            })
        };
        arm(&need_kick);
        let saw_news = news.load(Ordering::Acquire) == 1;
        if saw_news {
            disarm(&need_kick);
        }
        waker.join().unwrap();
        assert!(saw_news || rung.load(Ordering::Acquire) == 1, "asleep with news and nobody rang");
    });
}

/// Objective: no wake-up is lost if the waker publishes twice, and the sleeper looks once before it arms.
#[test]
fn no_lost_wake_up_twice() {
    loom::model(|| {
        let news = Arc::new(AtomicU32::new(0));
        let need_kick = Arc::new(AtomicU32::new(0));
        let rung = Arc::new(AtomicU32::new(0));
        let waker = {
            let news = news.clone();
            let need_kick = need_kick.clone();
            let rung = rung.clone();
            thread::spawn(move || {
                for n in 1..=2 {
                    news.store(n, Ordering::Release);
                    if wanted(&need_kick) {
                        rung.fetch_add(1, Ordering::AcqRel);
                    }
                }
            })
        };
        // The sleeper looks once while awake, then sleeps until there is a newer value.
        let seen = news.load(Ordering::Acquire);
        arm(&need_kick);
        let asleep = news.load(Ordering::Acquire) == seen;
        waker.join().unwrap();
        let last = news.load(Ordering::Acquire);
        assert!(!asleep || last == seen || rung.load(Ordering::Acquire) > 0, "asleep at {seen} of {last}");
    });
}

/// Objective: no news is lost when a doorbell is drained: a sleeper that wakes, disarms, drains its doorbell, looks,
/// and sleeps again has seen all news, or is woken.
#[test]
fn nothing_is_drained_away() {
    loom::model(|| {
        let [news, need_kick, bell] = [(); 3].map(|()| Arc::new(AtomicU32::new(0)));
        let waker = {
            let news = news.clone();
            let need_kick = need_kick.clone();
            let bell = bell.clone();
            thread::spawn(move || {
                for n in 1..=2 {
                    news.store(n, Ordering::Release);
                    if wanted(&need_kick) {
                        bell.fetch_add(1, Ordering::AcqRel);
                    }
                }
            })
        };
        arm(&need_kick);
        disarm(&need_kick);
        bell.swap(0, Ordering::AcqRel);
        let seen = news.load(Ordering::Acquire);
        arm(&need_kick);
        let asleep = news.load(Ordering::Acquire) == seen;
        waker.join().unwrap();
        let rung = bell.load(Ordering::Acquire) > 0;
        assert!(!asleep || seen == 2 || rung, "asleep at {seen} of 2, and nobody rang");
    });
}

/// Objective: with two producers, all completed slots become visible, positions only grow, and no two publications
/// overlap.
///
/// Steps: two threads each lease one slot and complete it; afterwards both slots are visible, and the last publication
/// covers both.
#[test]
fn leases_publish_everything_in_order() {
    loom::model(|| {
        let leases = Arc::new(Leases::new(4));
        let visible = Arc::new(AtomicU64::new(0));
        let produce = |leases: Arc<Leases>, visible: Arc<AtomicU64>| {
            let lease = leases.reserve(1, |room| room, || 0).unwrap().unwrap();
            leases.complete(lease, |_, tail| {
                let before = visible.load(Ordering::Relaxed);
                assert!(u64::from(tail) > before, "published {tail} after {before}");
                visible.store(u64::from(tail), Ordering::Relaxed);
            });
        };
        let other = {
            let leases = leases.clone();
            let visible = visible.clone();
            thread::spawn(move || produce(leases, visible))
        };
        produce(leases.clone(), visible.clone());
        other.join().unwrap();
        assert_eq!(leases.tail(), 2, "a completed lease was not published");
        assert_eq!(visible.load(Ordering::Relaxed), 2);
    });
}

/// Objective: a worker that waits for room and requested a kick gets a kick: the worker never continues to sleep while
/// there is room.
///
/// Steps: the ring is full; the receiver releases a slot and rings if a kick is requested; the worker requests a kick,
/// tries once more, and would sleep.
#[test]
fn a_worker_that_waits_for_room_is_told() {
    loom::model(|| {
        let ring = Arc::new((Leases::new(2), AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0)));
        let full = ring.0.reserve(1, |room| room, || 0).unwrap().unwrap();
        ring.0.complete(full, |_, _| {});
        let receiver = {
            let ring = ring.clone();
            thread::spawn(move || {
                let (_, head, asked, rung) = &*ring;
                head.store(1, Ordering::Release);
                if wanted(asked) {
                    rung.store(1, Ordering::Release);
                }
            })
        };
        let (leases, head, asked, rung) = &*ring;
        let room = || leases.reserve(1, |room| room, || head.load(Ordering::Acquire)).unwrap();
        let found = room().is_some() || {
            arm(asked);
            let found = room().is_some();
            if found {
                disarm(asked);
            }
            found
        };
        receiver.join().unwrap();
        assert!(found || rung.load(Ordering::Acquire) == 1, "asleep with room and nobody rang");
    });
}

/// Objective: all completed slots become visible if one producer takes each step for two rings together, and the other
/// completes its leases one by one, in the opposite order of rings.
///
/// Steps: both producers lease a slot in each of two rings; one producer takes the steps, the other completes its
/// leases; afterwards both slots of both rings are visible.
#[test]
fn staged_completion_publishes_everything() {
    loom::model(|| {
        let rings = Arc::new([Leases::new(4), Leases::new(4)]);
        let lease = |ring: &Leases| ring.reserve(1, |room| room, || 0).unwrap().unwrap();
        let other = {
            let rings = rings.clone();
            let leases = [lease(&rings[1]), lease(&rings[0])];
            thread::spawn(move || {
                for (ring, lease) in [&rings[1], &rings[0]].into_iter().zip(leases) {
                    ring.complete(lease, |_, _| {});
                }
            })
        };
        let leases = [lease(&rings[0]), lease(&rings[1])];
        rings.iter().zip(leases).for_each(|(ring, lease)| ring.end(lease));
        fence(Ordering::SeqCst);
        let mine = [rings[0].begin(), rings[1].begin()];
        for (ring, _) in rings.iter().zip(mine).filter(|(_, mine)| *mine) {
            ring.publish(|_, _| {});
        }
        for (ring, _) in rings.iter().zip(mine).filter(|(_, mine)| *mine) {
            ring.stop();
        }
        fence(Ordering::SeqCst);
        for (ring, _) in rings.iter().zip(mine).filter(|(ring, mine)| *mine && ring.has_more()) {
            ring.pass_on(&mut |_, _| {});
        }
        other.join().unwrap();
        assert_eq!([rings[0].tail(), rings[1].tail()], [2, 2], "a completed lease was not published");
    });
}
