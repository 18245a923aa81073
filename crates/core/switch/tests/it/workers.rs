//! Tests with several workers that forward on one switch at the same time.

use crate::common;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Make, attach, frame, mac};
use netvale_port::DropReason;
use netvale_switch::{ForwardMemory, PassResult, Switch};

const SENDERS: u8 = 4;
const FRAMES: u16 = 4000;
const LIMIT: Duration = Duration::from_secs(240);
/// Shortest pause of the receiver for which the test tolerates lost frames: the limit of 500 ms, less a margin for
/// differences between the threads' clocks.
const STOPPED: Duration = Duration::from_millis(400);

/// Objective: four workers deliver to one lossless ring at the same time: every frame arrives exactly once, and each
/// sender's frames arrive in order. Frames are lost only if the machine stops the receiver for at least [`STOPPED`];
/// lost frames are counted.
#[test]
fn order_is_kept_and_nothing_is_lost() {
    let switch = Switch::new("vale-test");
    let make = Make { slots: 64, lossless: true, ..Make::default() };
    let mut receiver = attach(&switch, "receiver", make);
    let senders: Vec<_> = (1..=SENDERS).map(|n| (n, attach(&switch, &format!("s{n}"), make))).collect();
    // Learn the receiver's address, so that frames are not flooded, and thus held back when the ring is full.
    switch.fdb().learn(
        u64::from_le_bytes({
            let [a, b, c, d, e, f] = mac(100);
            [a, b, c, d, e, f, 0, 0]
        }),
        receiver.id,
    );
    let start = Instant::now();
    let mut seen: HashMap<u8, u16> = HashMap::new();
    let mut count = 0u64;
    let mut last = start;
    let mut longest_pause = Duration::ZERO;
    let counters = Arc::clone(netvale_port::Egress::counters(receiver.received.as_ref()));
    let lost = || counters.drops(DropReason::Stalled) + counters.drops(DropReason::NoRoom);
    std::thread::scope(|scope| {
        for (n, mut port) in senders {
            scope.spawn(move || {
                let mut work = ForwardMemory::default();
                let mut next = 0u16;
                while next < FRAMES || port.forwarder.is_held() || port.tx.space() < 63 {
                    assert!(start.elapsed() < LIMIT, "sender {n} is stuck at {next}");
                    while next < FRAMES && port.send(&frame(100, n, next, 60)) {
                        next += 1;
                    }
                    port.tx.sync();
                    if !matches!(port.forwarder.pass(&mut work), PassResult::Frames(_)) {
                        std::thread::yield_now();
                    }
                    port.tx.sync();
                }
            });
        }
        while count + lost() < u64::from(SENDERS) * u64::from(FRAMES) {
            assert!(start.elapsed() < LIMIT, "frames are missing: {seen:?}");
            longest_pause = longest_pause.max(last.elapsed());
            last = Instant::now();
            for f in receiver.take() {
                let next = seen.entry(f[11]).or_default();
                let number = u16::from_be_bytes([f[14], f[15]]);
                assert!(number >= *next, "sender {}: {number} after {next}", f[11]);
                *next = number + 1;
                count += 1;
            }
            std::thread::yield_now();
        }
    });
    assert_eq!(count, counters.frames());
    assert!(lost() == 0 || longest_pause >= STOPPED, "{} frames lost, pauses of {longest_pause:?}", lost());
}

/// Objective: ports can be attached and detached while a worker forwards flooded frames; afterwards, the sender's port
/// is the only one left.
#[test]
fn ports_come_and_go_under_load() {
    let switch = Switch::new("vale-test");
    let mut sender = attach(&switch, "sender", Make { slots: 64, ..Make::default() });
    std::thread::scope(|scope| {
        let comings = scope.spawn(|| {
            for round in 0..200 {
                let mut port = attach(&switch, &format!("p{round}"), Make::default());
                port.take();
                switch.detach(port.id);
            }
        });
        let mut work = ForwardMemory::default();
        let mut tag = 0u16;
        while !comings.is_finished() {
            tag = tag.wrapping_add(1);
            sender.send(&frame(255, 1, tag, 60));
            sender.forward(&mut work);
        }
    });
    assert_eq!(switch.ports().len(), 1);
}
