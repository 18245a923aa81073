//! Round trips: -f ping and pong.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use netvale::{RxRing, TxRing};
use serde::Serialize;

use super::frame::FrameSource;
use super::sender::SEQUENCE_AT;
use super::{PktGenJob, SPIN, pin};
use crate::{CliError, out};

/// Time after which a frame without an answer counts as lost, and the next frame is sent.
const LOST: Duration = Duration::from_millis(500);
/// Number of polls between two checks for Ctrl-C and for the end of the daemon.
const LOOKS: u32 = 1 << 16;

#[derive(Serialize)]
struct PingReport {
    what: &'static str,
    round_trips: u64,
    lost: u64,
    min_us: f64,
    mean_us: f64,
    p50_us: f64,
    p99_us: f64,
    max_us: f64,
}

/// Prints the percentiles of the round trips.
fn report(what: &'static str, times: &Histogram<u64>, lost: u64, json: bool) -> Result<(), CliError> {
    let us = |ns: u64| ns as f64 / 1000.0;
    let report = PingReport {
        what,
        round_trips: times.len(),
        lost,
        min_us: us(times.min()),
        mean_us: times.mean() / 1000.0,
        p50_us: us(times.value_at_quantile(0.5)),
        p99_us: us(times.value_at_quantile(0.99)),
        max_us: us(times.max()),
    };
    if json {
        return out::json(&report);
    }
    let PingReport { round_trips, min_us, mean_us, p50_us, p99_us, max_us, .. } = report;
    out::line(format_args!(
        "{round_trips} round trips, {lost} lost, RTT min {min_us:.2} avg {mean_us:.2} median {p50_us:.2} \
         p99 {p99_us:.2} max {max_us:.2} us"
    ))
}

fn first<T>(rings: Vec<T>) -> Result<T, CliError> {
    let none = || CliError::usage("ping and pong need a ring in each direction", "open the port without /R or /T");
    rings.into_iter().next().ok_or_else(none)
}

fn histogram() -> Result<Histogram<u64>, CliError> {
    // The histogram covers 1 ns to 10 s, with three significant digits.
    Histogram::new_with_bounds(1, 10_000_000_000, 3)
        .map_err(|e| CliError::failed(format!("cannot create a histogram: {e}"), "report this bug"))
}

/// Sends a frame, waits for its echo, and repeats.
///
/// # Errors
/// An address is invalid, or the daemon has ended.
pub fn ping(job: &PktGenJob<'_>, tx: Vec<TxRing>, rx: Vec<RxRing>, closed: &dyn Fn() -> bool) -> Result<(), CliError> {
    let mut tx = first(tx)?;
    let mut rx = first(rx)?;
    let mut source = FrameSource::new(job.args, 0)?;
    if source.frame().len() < SEQUENCE_AT + 8 {
        return Err(CliError::usage("a ping needs at least 50 bytes", "give -l 60"));
    }
    pin(job.args, 0);
    let mut all = histogram()?;
    let mut recent = histogram()?;
    let mut sent = 0u64;
    let mut lost = 0;
    let mut last = Instant::now();
    let period = Duration::from_millis(u64::from(job.args.report_ms));
    while (job.count == 0 || sent < job.count) && !job.stop.load(Ordering::Relaxed) {
        source.frame_mut()[SEQUENCE_AT..SEQUENCE_AT + 8].copy_from_slice(&sent.to_be_bytes());
        let start = Instant::now();
        if !tx.send(source.frame()) {
            tx.wait(Duration::ZERO, LOST);
            continue;
        }
        tx.sync();
        sent += 1;
        match echo(job, &mut rx, sent - 1, start) {
            Some(time) => {
                let ns = time.as_nanos() as u64;
                all.saturating_record(ns);
                recent.saturating_record(ns);
            }
            None if closed() => return Err(super::gone()),
            None => lost += 1,
        }
        if last.elapsed() >= period {
            report("rate", &recent, lost, job.args.json)?;
            recent.reset();
            last = Instant::now();
        }
    }
    report("sum", &all, lost, job.args.json)
}

/// Polls or sleeps as the options request. Returns whether the thread may have slept.
fn rest(job: &PktGenJob<'_>, rx: &mut RxRing, limit: Duration) -> bool {
    if !job.args.poll {
        rx.wait(if job.args.sleep { Duration::ZERO } else { SPIN }, limit);
    }
    !job.args.poll
}

/// Waits for the echo of frame `number` and discards other frames. Returns the round-trip time; `None` if the frame
/// counts as lost, or after Ctrl-C.
fn echo(job: &PktGenJob<'_>, rx: &mut RxRing, number: u64, start: Instant) -> Option<Duration> {
    let mut looks = 0u32;
    loop {
        let _ = rx.sync();
        while rx.space() > 0 {
            let mut bytes = [0u8; SEQUENCE_AT + 8];
            let n = rx.read(rx.at(0), &mut bytes);
            rx.advance(1);
            if n == bytes.len() && bytes[SEQUENCE_AT..] == number.to_be_bytes() {
                return Some(start.elapsed());
            }
        }
        looks += 1;
        if (rest(job, rx, LOST) || looks.is_multiple_of(LOOKS))
            && (start.elapsed() > LOST || job.stop.load(Ordering::Relaxed))
        {
            return None;
        }
    }
}

/// Returns received frames to their sender, with their Ethernet addresses swapped.
///
/// # Errors
/// The daemon has ended.
pub fn pong(job: &PktGenJob<'_>, tx: Vec<TxRing>, rx: Vec<RxRing>, closed: &dyn Fn() -> bool) -> Result<(), CliError> {
    let mut tx = first(tx)?;
    let mut rx = first(rx)?;
    pin(job.args, 0);
    let mut answered = 0u64;
    let mut looks = 0u32;
    let mut frame = vec![0u8; 65_536];
    while (job.count == 0 || answered < job.count) && !job.stop.load(Ordering::Relaxed) {
        let _ = rx.sync();
        let mut any = false;
        while let Some(n) = rx.recv(&mut frame) {
            if let Some((to, from)) = frame.get_mut(..12).and_then(|f| f.split_at_mut_checked(6)) {
                to.swap_with_slice(from);
            }
            any |= tx.send(&frame[..n]);
            answered += 1;
        }
        if any {
            tx.sync();
            continue;
        }
        looks = looks.wrapping_add(1);
        let slept = rest(job, &mut rx, Duration::from_millis(100)) && rx.space() == 0;
        if (slept || looks.is_multiple_of(LOOKS)) && closed() {
            return Err(super::gone());
        }
    }
    out::line(format_args!("Answered {answered} frames"))
}
