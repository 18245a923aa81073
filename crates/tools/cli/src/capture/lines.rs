//! Prints frames as lines of text as they pass.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use netvale_pcapport::PcapDirection;
use rustix::event::PollFlags;

use super::recorder::{CapturePlan, CaptureTotals};
use super::source::{CapturePorts, CapturedFrame, WaitEvent};
use crate::{CliError, headers, out};

/// Prints frames until a limit is reached or `stop` becomes readable. Returns the totals even after an error.
pub fn print(
    sources: &mut CapturePorts,
    plan: &CapturePlan,
    stop: &UnixStream,
) -> (CaptureTotals, Result<(), CliError>) {
    let names: Vec<_> = sources.interfaces(None, 0).into_iter().map(|interface| interface.name).collect();
    let start = Instant::now();
    let mut totals = CaptureTotals { frames: 0, bytes: 0, received: 0, dropped: None, files: 0, time: Duration::ZERO };
    let ended = print_all(sources, &names, plan, stop, &mut totals);
    sources.ask();
    totals.dropped = (0..names.len()).map(|port| sources.lost(port)).sum();
    totals.time = start.elapsed();
    (totals, ended)
}

fn print_all(
    sources: &mut CapturePorts,
    names: &[String],
    plan: &CapturePlan,
    stop: &UnixStream,
    totals: &mut CaptureTotals,
) -> Result<(), CliError> {
    let start = Instant::now();
    let stop = WaitEvent(stop.as_fd(), PollFlags::IN);
    while let Some(left) = plan.end.left(start) {
        sources.wait(left, &[stop])?;
        // Frames that passed before the request to stop belong to the capture.
        let stopped = stop.is_there();
        sources.drain(|seen| {
            totals.received += 1;
            if plan.filter.kept(seen.frame).is_some() {
                out::line(line(&names[seen.port], &seen))?;
                totals.frames += 1;
                totals.bytes += seen.frame.len() as u64;
            }
            Ok::<_, CliError>(plan.end.takes(0, totals.bytes, totals.frames))
        })?;
        if stopped || !plan.end.takes(0, totals.bytes, totals.frames) {
            break;
        }
    }
    Ok(())
}

/// Formats a frame's line: time, port, direction, length, and headers.
fn line(port: &str, seen: &CapturedFrame<'_>) -> String {
    let at = Timestamp::UNIX_EPOCH.checked_add(seen.time).unwrap_or_default();
    let time = at.to_zoned(TimeZone::system()).strftime("%H:%M:%S%.6f").to_string();
    let way = match seen.direction {
        PcapDirection::In => "In ",
        PcapDirection::Out => "Out",
    };
    format!("{time} {port} {way} {} bytes, {}", seen.frame.len(), headers::of(seen.frame))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: a line has the port, the direction, the length and the headers.
    #[test]
    fn a_line_shows_the_port_and_the_headers() {
        let mut frame = [0u8; 60];
        frame[12..14].copy_from_slice(&[0x08, 0x06]);
        let seen =
            CapturedFrame { port: 0, time: Duration::from_secs(1), frame: &frame, direction: PcapDirection::Out };
        let line = line("vale0:a", &seen);
        let rest = line.split_once(' ').map(|(_, rest)| rest);
        let expected = "vale0:a Out 60 bytes, 00:00:00:00:00:00 > 00:00:00:00:00:00, ARP";
        assert_eq!(rest, Some(expected), "{line}");
    }
}
