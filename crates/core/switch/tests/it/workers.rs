//! Several workers forward on one switch at the same time.

use crate::common;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use common::{Make, attach, frame, mac};
use netvale_switch::{Passed, Switch, Work};

const SENDERS: u8 = 4;
const FRAMES: u16 = 4000;
const LIMIT: Duration = Duration::from_secs(240);

/// Objective: four workers deliver to one lossless ring together: every frame arrives exactly once, and each sender's
/// frames arrive in order.
#[test]
fn order_is_kept_and_nothing_is_lost() {
    let switch = Switch::new("vale-test");
    let make = Make { slots: 64, lossless: true, ..Make::default() };
    let mut receiver = attach(&switch, "receiver", make);
    let senders: Vec<_> = (1..=SENDERS).map(|n| (n, attach(&switch, &format!("s{n}"), make))).collect();
    // The receiver's address is known: its frames are held back and not flooded.
    switch.fdb().learn(
        u64::from_le_bytes({
            let [a, b, c, d, e, f] = mac(100);
            [a, b, c, d, e, f, 0, 0]
        }),
        receiver.id,
    );
    let start = Instant::now();
    let mut seen: HashMap<u8, u16> = HashMap::new();
    std::thread::scope(|scope| {
        for (n, mut port) in senders {
            scope.spawn(move || {
                let mut work = Work::default();
                let mut next = 0u16;
                while next < FRAMES || port.forwarder.is_held() || port.tx.space() < 63 {
                    assert!(start.elapsed() < LIMIT, "sender {n} is stuck at {next}");
                    while next < FRAMES && port.send(&frame(100, n, next, 60)) {
                        next += 1;
                    }
                    port.tx.sync();
                    if !matches!(port.forwarder.pass(&mut work), Passed::Frames(_)) {
                        std::thread::yield_now();
                    }
                    port.tx.sync();
                }
            });
        }
        while seen.values().map(|&v| u64::from(v)).sum::<u64>() < u64::from(SENDERS) * u64::from(FRAMES) {
            assert!(start.elapsed() < LIMIT, "frames are missing: {seen:?}");
            for f in receiver.take() {
                let expected = seen.entry(f[11]).or_default();
                assert_eq!(u16::from_be_bytes([f[14], f[15]]), *expected, "sender {}", f[11]);
                *expected += 1;
            }
            std::thread::yield_now();
        }
    });
    assert_eq!(netvale_port::Egress::counters(receiver.received.as_ref()).frames(), 16_000);
}

/// Objective: ports come and go while workers forward; no worker stops, and no frame reaches a port after it has left.
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
        let mut work = Work::default();
        let mut tag = 0u16;
        while !comings.is_finished() {
            tag = tag.wrapping_add(1);
            sender.send(&frame(255, 1, tag, 60));
            sender.forward(&mut work);
        }
    });
    assert_eq!(switch.ports().len(), 1);
}
