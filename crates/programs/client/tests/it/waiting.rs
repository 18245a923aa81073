//! Tests of waiting on one ring of a pipe inside this program.

use std::time::{Duration, Instant};

use netvale::Port;

const LIMIT: Duration = Duration::from_millis(200);

/// Objective: a late kick that an earlier sleep requested does not end a wait for frames or for room.
#[test]
fn a_stale_kick_ends_no_wait() {
    let (mut a, mut b) = Port::pipe_pair(16, 128).unwrap();
    let stale = 1u64.to_ne_bytes();
    let rx = &mut b.rx()[0];
    rustix::io::write(rx.wake_fd(), &stale).unwrap();
    let start = Instant::now();
    assert!(!rx.wait(Duration::ZERO, LIMIT), "nothing was sent");
    assert!(start.elapsed() >= LIMIT);
    let tx = &mut a.tx()[0];
    while tx.send(&[7; 60]) {}
    tx.sync();
    rustix::io::write(tx.wake_fd(), &stale).unwrap();
    let start = Instant::now();
    assert!(!tx.wait(Duration::ZERO, LIMIT), "nothing was read");
    assert!(start.elapsed() >= LIMIT);
}
