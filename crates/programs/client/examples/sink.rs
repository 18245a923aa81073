//! A traffic sink: takes every frame of a port, and prints the rate once per second.
//!
//! `cargo run --release -p netvale --example sink -- vale0:sink`, with `netvale up` running.

use std::time::{Duration, Instant};

use netvale::{Interest, Port};

/// Maximum time for which the program polls before it sleeps; it is longer than a wake-up takes.
const SPIN: Duration = Duration::from_micros(100);
const SECOND: Duration = Duration::from_secs(1);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let name = std::env::args().nth(1).ok_or("usage: sink PORT, e.g. vale0:sink")?;
    let mut port = Port::open(&name)?;
    port.set_spin(SPIN);
    let mut frames = 0u64;
    let mut bytes = 0u64;
    let mut last = Instant::now();
    loop {
        // `wait` fails when the daemon ends. It returns `false` if no frame has arrived, which is not an error.
        port.wait(Interest::Rx, Some(SECOND))?;
        for ring in port.rx() {
            let n = ring.space();
            for k in 0..n {
                // A slot is read once. A long frame spans several slots, all of which but the last have NS_MOREFRAG
                // set.
                let slot = ring.slot(ring.at(k));
                bytes += u64::from(slot.len);
                frames += u64::from(slot.flags & netvale::slot::NS_MOREFRAG == 0);
            }
            // The sync in the next `wait` returns the slots.
            ring.advance(n);
        }
        if last.elapsed() >= SECOND {
            let seconds = last.elapsed().as_secs_f64();
            let mpps = frames as f64 / seconds / 1e6;
            let gbps = bytes as f64 * 8.0 / seconds / 1e9;
            println!("{mpps:.3} Mpps, {gbps:.3} Gbit/s");
            frames = 0;
            bytes = 0;
            last = Instant::now();
        }
    }
}
