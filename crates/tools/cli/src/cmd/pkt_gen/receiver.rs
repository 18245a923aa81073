//! Receiving: -f rx and rxseq.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use netvale::RxRing;
use netvale_abi::slot::NS_MOREFRAG;

use super::report::{ThreadCounts, TrafficSum, watch};
use super::sender::SEQUENCE_AT;
use super::{PktGenJob, SPIN, pin};
use crate::{CliError, out};

/// With -W, a receiver stops after this time without a frame.
const IDLE: Duration = Duration::from_secs(1);

/// Receives on all rings, each in its own thread.
///
/// # Errors
/// The daemon has ended.
pub fn run(job: &PktGenJob<'_>, rings: Vec<RxRing>, sequence: bool, closed: &dyn Fn() -> bool) -> Result<(), CliError> {
    let counts: Vec<ThreadCounts> = rings.iter().map(|_| ThreadCounts::default()).collect();
    let gaps = AtomicU64::new(0);
    let reordered = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let order = sequence.then_some((&gaps, &reordered));
        let start = |(k, (ring, counts))| {
            scope.spawn(move || {
                pin(job.args, k);
                PktReceiver { job, ring, partial: 0, next: 0 }.run(counts, order);
            })
        };
        let handles: Vec<_> = rings.into_iter().zip(&counts).enumerate().map(start).collect();
        let idle = std::cell::Cell::new((Instant::now(), 0u64));
        let over = |sum: &TrafficSum| {
            if sum.frames != idle.get().1 {
                idle.set((Instant::now(), sum.frames));
            }
            let idle_end = job.args.exit_idle && sum.frames > 0 && idle.get().0.elapsed() > IDLE;
            closed() || idle_end || (job.count > 0 && sum.frames >= job.count)
        };
        watch(job, "Received", &counts, &handles, &over)
    })?;
    if sequence && !job.args.json {
        let g = gaps.load(Ordering::Relaxed);
        let r = reordered.load(Ordering::Relaxed);
        out::line(format_args!("Sequence: {g} frames missing, {r} out of order"))?;
    }
    if closed() { Err(super::gone()) } else { Ok(()) }
}

struct PktReceiver<'a> {
    job: &'a PktGenJob<'a>,
    ring: RxRing,
    /// Number of received bytes of a frame whose last slot has not arrived.
    partial: u64,
    /// The next expected sequence number.
    next: u64,
}

impl PktReceiver<'_> {
    fn run(&mut self, counts: &ThreadCounts, order: Option<(&AtomicU64, &AtomicU64)>) {
        let burst = super::burst(self.job.args, self.ring.num_slots());
        while !self.job.stop.load(Ordering::Relaxed) {
            let _ = self.ring.sync();
            let n = self.ring.space().min(burst);
            if n == 0 {
                self.ring.wait(SPIN, Duration::from_millis(50));
                continue;
            }
            let mut frames = 0;
            let mut bytes = 0;
            for k in 0..n {
                let i = self.ring.at(k);
                let slot = self.ring.slot(i);
                self.partial += u64::from(slot.len);
                if slot.flags & NS_MOREFRAG == 0 {
                    frames += 1;
                    bytes += self.partial.saturating_sub(self.job.hdr_len as u64);
                    self.partial = 0;
                }
                self.look(i, order);
            }
            self.ring.advance(n);
            counts.add(frames, bytes);
        }
        let _ = self.ring.sync();
    }

    /// Reads the bytes of a received frame if the options require it: to check sequence numbers, to touch the bytes, or
    /// to print them.
    #[inline]
    fn look(&mut self, i: u32, order: Option<(&AtomicU64, &AtomicU64)>) {
        let args = self.job.args;
        if let Some((gaps, reordered)) = order {
            let mut bytes = [0u8; SEQUENCE_AT + 8];
            if self.ring.read(i, &mut bytes) == bytes.len() {
                let number = bytes[SEQUENCE_AT..].iter().fold(0u64, |n, &b| n << 8 | u64::from(b));
                if number < self.next {
                    reordered.fetch_add(1, Ordering::Relaxed);
                } else {
                    gaps.fetch_add(number - self.next, Ordering::Relaxed);
                    self.next = number + 1;
                }
            }
        } else if args.touch || args.options & super::OPT_ACCESS != 0 {
            let mut line = [0u8; 64];
            std::hint::black_box(self.ring.read(i, &mut line));
        }
        if args.dump_payload {
            let mut bytes = [0u8; 2048];
            let n = self.ring.read(i, &mut bytes);
            let line = |part: &[u8]| part.iter().map(|b| format!("{b:02x} ")).collect::<String>() + "\n";
            let hex: String = bytes[..n].chunks(16).map(line).collect();
            // The error is ignored: if the reader of the output has closed it, the reporter ends the program.
            let _ = out::text(hex);
        }
    }
}
