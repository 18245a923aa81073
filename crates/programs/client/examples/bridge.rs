//! A bridge between two ports: frames that one port receives leave on the other port.
//!
//! `cargo run --release -p netvale --example bridge -- vale0:x vale1:x`, with `netvale up` running. Between ports that
//! share a region, such as a port and its pipes (`vale0:x`, `vale0:x{1`), buffers are swapped and no byte is copied.

use std::time::{Duration, Instant};

use netvale::{Interest, Port, RxRing, TxRing, swap_buffers};

/// Moves available frames, as far as the other port has room. Returns whether any frame was moved.
fn forward(rx: &mut RxRing, tx: &mut TxRing, frame: &mut [u8]) -> bool {
    let n = rx.space().min(tx.space());
    for k in 0..n {
        let from = rx.at(k);
        let to = tx.at(k);
        let slot = rx.slot(from);
        if !swap_buffers(rx, from, tx, to) {
            // The ports are in separate regions, so the frame is copied. A slot's frame is never longer than a buffer.
            let len = rx.read(from, frame);
            tx.mem().write(tx.slot(to).buf_idx, 0, &frame[..len]);
            tx.set_len(to, len as u16, slot.flags);
        }
    }
    // Frames are published before the slots from which they came are released.
    tx.advance(n);
    tx.sync();
    rx.advance(n);
    let _ = rx.sync();
    n > 0
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let names: Vec<String> = std::env::args().skip(1).collect();
    let [a, b] = &names[..] else { return Err("usage: bridge PORT PORT, e.g. vale0:x vale1:x".into()) };
    let mut a = Port::open(a)?;
    let mut b = Port::open(b)?;
    let mut frame = vec![0u8; 65_536];
    let mut idle = Instant::now();
    loop {
        let (a_tx, a_rx) = a.rings();
        let (b_tx, b_rx) = b.rings();
        let there = forward(&mut a_rx[0], &mut b_tx[0], &mut frame);
        let back = forward(&mut b_rx[0], &mut a_tx[0], &mut frame);
        if there || back {
            idle = Instant::now();
        } else if idle.elapsed() > Duration::from_micros(100) {
            // Sleeps on port `a`, and wakes every millisecond to check the other port. Fails when the daemon ends.
            a.wait(Interest::Rx, Some(Duration::from_millis(1)))?;
        }
    }
}
