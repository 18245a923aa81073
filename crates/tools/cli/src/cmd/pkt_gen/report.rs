//! pkt-gen's output: a rate at intervals, a summary at the end.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::PktGenJob;
use crate::{CliError, out, units};

/// The counts of a thread, which the reporter reads.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct ThreadCounts {
    frames: AtomicU64,
    bytes: AtomicU64,
    events: AtomicU64,
}

impl ThreadCounts {
    /// Adds a batch to the counts. Only the thread that is counted may call this.
    #[inline]
    pub fn add(&self, frames: u64, bytes: u64) {
        let add = |c: &AtomicU64, n| c.store(c.load(Ordering::Relaxed) + n, Ordering::Relaxed);
        add(&self.frames, frames);
        add(&self.bytes, bytes);
        add(&self.events, 1);
    }
}

/// The sum of all threads' counts at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrafficSum {
    pub frames: u64,
    pub bytes: u64,
    pub events: u64,
}

impl TrafficSum {
    /// Sums up the threads' counts.
    pub fn of(counts: &[ThreadCounts]) -> TrafficSum {
        counts.iter().fold(TrafficSum::default(), |s, c| TrafficSum {
            frames: s.frames + c.frames.load(Ordering::Relaxed),
            bytes: s.bytes + c.bytes.load(Ordering::Relaxed),
            events: s.events + c.events.load(Ordering::Relaxed),
        })
    }

    fn since(&self, before: &TrafficSum) -> TrafficSum {
        TrafficSum {
            frames: self.frames - before.frames,
            bytes: self.bytes - before.bytes,
            events: self.events - before.events,
        }
    }

    fn average_batch(&self) -> f64 {
        if self.events == 0 { 0.0 } else { self.frames as f64 / self.events as f64 }
    }
}

#[derive(Serialize)]
struct RateLine {
    what: &'static str,
    frames: u64,
    bytes: u64,
    seconds: f64,
    pps: f64,
    bps: f64,
    average_batch: f64,
}

impl RateLine {
    fn new(what: &'static str, sum: &TrafficSum, time: Duration) -> RateLine {
        let seconds = time.as_secs_f64().max(1e-9);
        RateLine {
            what,
            frames: sum.frames,
            bytes: sum.bytes,
            seconds,
            pps: sum.frames as f64 / seconds,
            bps: sum.bytes as f64 * 8.0 / seconds,
            average_batch: sum.average_batch(),
        }
    }

    /// Formats a report as netmap's pkt-gen does.
    fn text(&self, scale: bool) -> String {
        format!(
            "{} ({} pkts {} in {:.0} usec) {:.2} avg_batch",
            units::norm(self.pps, "pps", scale),
            self.frames,
            units::norm(self.bps, "bps", scale),
            self.seconds * 1e6,
            self.average_batch
        )
    }

    /// Formats the summary as netmap's pkt-gen does.
    fn closing(&self, done: &str, scale: bool) -> String {
        // On the wire, each frame takes 24 more bytes, for preamble, CRC and gap.
        let raw = self.bps + self.pps * 24.0 * 8.0;
        let size = self.bytes.checked_div(self.frames).unwrap_or(0);
        format!(
            "{done} {} packets {} bytes {size} bytes each in {:.2} seconds.\n\
             Speed: {} Bandwidth: {} (raw {}). Average batch: {:.2} pkts",
            self.frames,
            self.bytes,
            self.seconds,
            units::norm(self.pps, "pps", scale),
            units::norm(self.bps, "bps", scale),
            units::norm(raw, "bps", scale),
            self.average_batch
        )
    }
}

/// Reports until all `threads` have ended, then prints and returns the sum, which includes the frames that were moved
/// while the threads ended. Stops the threads once `over` returns `true`. The time in the sum is from the first frame
/// to the last check that found new frames.
///
/// # Errors
/// Standard output cannot be written. In this case, the threads are stopped, too.
pub fn watch(
    job: &PktGenJob<'_>,
    done: &'static str,
    counts: &[ThreadCounts],
    threads: &[ScopedJoinHandle<'_, ()>],
    over: &dyn Fn(&TrafficSum) -> bool,
) -> Result<TrafficSum, CliError> {
    let finished = |sum: &TrafficSum| {
        if over(sum) {
            job.stop.store(true, Ordering::Relaxed);
        }
        threads.iter().all(ScopedJoinHandle::is_finished)
    };
    let result = report(job, done, counts, &finished);
    job.stop.store(true, Ordering::Relaxed);
    result
}

fn report(
    job: &PktGenJob<'_>,
    done: &'static str,
    counts: &[ThreadCounts],
    finished: &dyn Fn(&TrafficSum) -> bool,
) -> Result<TrafficSum, CliError> {
    let period = Duration::from_millis(u64::from(job.args.report_ms));
    let begun = Instant::now();
    let mut last = begun;
    let mut seen = TrafficSum::default();
    let mut first = None::<(Instant, TrafficSum)>;
    let mut moved = Instant::now();
    let mut latest = TrafficSum::default();
    loop {
        let over = finished(&latest);
        let now = Instant::now();
        let sum = TrafficSum::of(counts);
        if sum.frames > latest.frames {
            first.get_or_insert((now, sum));
            moved = now;
        }
        latest = sum;
        if now.duration_since(last) >= period {
            print(job, &RateLine::new("rate", &sum.since(&seen), now.duration_since(last)))?;
            last = now;
            seen = sum;
        }
        if over {
            break;
        }
        std::thread::sleep(Duration::from_millis(5).min(period));
    }
    let since_first = first.map_or(Duration::ZERO, |(at, _)| moved.duration_since(at));
    // The first check found all frames, so the time counts from the start of the run.
    let (counted, time) = match first {
        Some((_, at)) if !since_first.is_zero() => (latest.since(&at), since_first),
        _ => (latest, moved.duration_since(begun)),
    };
    let rate = RateLine::new("sum", &counted, time);
    let line = RateLine { frames: latest.frames, bytes: latest.bytes, ..rate };
    let printed = if job.args.json { out::json(&line) } else { out::line(line.closing(done, !job.args.no_scale)) };
    printed.map(|()| latest)
}

fn print(job: &PktGenJob<'_>, line: &RateLine) -> Result<(), CliError> {
    if job.args.json { out::json(line) } else { out::line(line.text(!job.args.no_scale)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: the lines have the same form as those of netmap's pkt-gen.
    #[test]
    fn lines_read_as_netmaps_do() {
        let sum = TrafficSum { frames: 14_880_000, bytes: 892_800_000, events: 29_062 };
        let line = RateLine::new("rate", &sum, Duration::from_secs(1));
        assert_eq!(line.text(true), "14.880 Mpps (14880000 pkts 7.142 Gbps in 1000000 usec) 512.01 avg_batch");
        assert!(
            line.closing("Sent", false)
                .starts_with("Sent 14880000 packets 892800000 bytes 60 bytes each in 1.00 seconds.\n")
        );
    }

    #[derive(clap::Parser)]
    struct Command {
        #[command(flatten)]
        args: super::super::PktGenArgs,
    }

    /// Objective: the sum includes frames that a thread moved after the request to end.
    #[test]
    fn the_sum_includes_the_last_batch() {
        let Command { args } = clap::Parser::parse_from(["pkt-gen", "-i", "vale0:a"]);
        let stop = std::sync::atomic::AtomicBool::new(false);
        let counts = [ThreadCounts::default()];
        let job = PktGenJob { args: &args, count: 0, stop: &stop, hdr_len: 0 };
        let last_batch = || {
            while !stop.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_millis(30));
            counts[0].add(4, 240);
        };
        let sum = std::thread::scope(|s| watch(&job, "Sent", &counts, &[s.spawn(last_batch)], &|_| true)).unwrap();
        assert_eq!(sum, TrafficSum { frames: 4, bytes: 240, events: 1 });
    }
}
