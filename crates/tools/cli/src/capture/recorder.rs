//! Writes captured frames as blocks into one file or a sequence of files.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use netvale_pcapport::{CaptureInterface, Encoder, PcapFormat, Statistics};
use rustix::event::PollFlags;

use super::files::OutputFiles;
use super::filter::CaptureFilter;
use super::limits::CaptureLimits;
use super::sink::Sink;
use super::source::{CapturePorts, CapturedFrame, WaitEvent};
use super::{APPLICATION, now};
use crate::CliError;

/// While frames arrive continuously, collected blocks are written once they have this many bytes.
const ENOUGH: usize = 64 << 10;
/// Length of an interface statistics block, in bytes.
const STATISTICS: u64 = 112;

/// The parameters of a capture.
#[derive(Debug)]
pub struct CapturePlan {
    /// The file format.
    pub format: PcapFormat,
    /// The filter expression, as the user wrote it; `None` for all frames.
    pub expression: Option<String>,
    /// The compiled filter and the snapshot length.
    pub filter: CaptureFilter,
    /// Maximum number of bytes that are kept of each frame; 0 for no limit.
    pub snaplen: u32,
    /// When the capture ends.
    pub end: CaptureLimits,
    /// When a file ends and the next one begins.
    pub next: CaptureLimits,
}

/// The totals of a capture.
#[derive(Clone, Copy, Debug)]
pub struct CaptureTotals {
    /// Frames written.
    pub frames: u64,
    /// Sum of the written frames' original lengths in bytes, before truncation.
    pub bytes: u64,
    /// Frames received.
    pub received: u64,
    /// Frames that the capture lost; `None` if the number is unknown.
    pub dropped: Option<u64>,
    /// Files created.
    pub files: u64,
    /// The capture's duration.
    pub time: Duration,
}

/// The counts of one port.
#[derive(Clone, Copy, Debug, Default)]
struct CapturedCounts {
    taken: u64,
    accepted: u64,
    written: u64,
    /// Frames collected but not written yet.
    pending: u64,
    bytes: u64,
    pending_bytes: u64,
}

/// The file that is currently written.
#[derive(Debug)]
struct CurrentFile {
    sink: Sink,
    since: Instant,
    bytes: u64,
    packets: u64,
}

struct CaptureRun<'a> {
    plan: &'a CapturePlan,
    files: &'a mut OutputFiles,
    stop: &'a UnixStream,
    interfaces: Vec<CaptureInterface>,
    encoder: Encoder,
    current: CurrentFile,
    counts: Vec<CapturedCounts>,
    /// For each port, the number of frames that its monitor lost; `None` if the number is unknown.
    lost: Vec<Option<u64>>,
    /// Number of bytes in earlier files.
    earlier: u64,
    /// Number of frames in all files.
    packets: u64,
    /// Start of the capture: as an instant, from which the duration is measured, and as the time since 1970.
    began: (Instant, Duration),
    done: bool,
}

/// Captures until a limit is reached, `stop` becomes readable, or an error occurs. Returns the totals even after an
/// error.
///
/// # Errors
/// The first file cannot be created. Later errors, such as a full disk or a port that has ended, are returned with the
/// totals.
pub fn record(
    sources: &mut CapturePorts,
    files: &mut OutputFiles,
    plan: &CapturePlan,
    stop: &UnixStream,
) -> Result<(CaptureTotals, Result<(), CliError>), CliError> {
    let mut recorder = CaptureRun::begin(sources, files, plan, stop)?;
    let ended = recorder.run(sources);
    let finished = recorder.finish(sources, ended.is_err());
    Ok((recorder.totals(), ended.and(finished)))
}

impl<'a> CaptureRun<'a> {
    fn begin(
        sources: &CapturePorts,
        files: &'a mut OutputFiles,
        plan: &'a CapturePlan,
        stop: &'a UnixStream,
    ) -> Result<CaptureRun<'a>, CliError> {
        let interfaces = sources.interfaces(plan.expression.as_deref(), plan.snaplen);
        let sink = files.make_next(stop).map_err(|e| cannot_write(files, &e))?;
        let encoder = Encoder::begin(plan.format, APPLICATION, &interfaces);
        Ok(CaptureRun {
            plan,
            files,
            stop,
            current: CurrentFile::of(sink, &encoder),
            encoder,
            counts: vec![CapturedCounts::default(); interfaces.len()],
            lost: vec![None; interfaces.len()],
            interfaces,
            earlier: 0,
            packets: 0,
            began: (Instant::now(), now()),
            done: false,
        })
    }

    fn run(&mut self, sources: &mut CapturePorts) -> Result<(), CliError> {
        // The file's header is written before the first frame arrives, so that a reader sees that the capture has
        // begun.
        self.flush()?;
        while !self.done {
            self.note_lost(sources);
            let Some(left) = self.plan.end.left(self.began.0) else { break };
            let left = left.min(self.turn()?);
            if self.done {
                break;
            }
            let reader = self.current.sink.watched().map(|fd| WaitEvent(fd, PollFlags::empty()));
            let stop = WaitEvent(self.stop.as_fd(), PollFlags::IN);
            let events: Vec<_> = [stop].into_iter().chain(reader).collect();
            sources.wait(left, &events)?;
            if reader.is_some_and(|reader| reader.is_there()) {
                return Err(CliError::output(&io::ErrorKind::BrokenPipe.into()));
            }
            // Frames that passed before the request to stop belong to the capture.
            let stopped = stop.is_there();
            sources.drain(|seen| self.take(&seen))?;
            self.flush()?;
            self.done |= stopped;
        }
        Ok(())
    }

    fn note_lost(&mut self, sources: &CapturePorts) {
        self.lost.iter_mut().enumerate().for_each(|(port, lost)| *lost = sources.lost(port));
    }

    /// Begins the next file if the maximum duration of the current file has passed. Returns the time that remains for
    /// the current file.
    fn turn(&mut self) -> Result<Duration, CliError> {
        if !self.files.goes_on() || self.current.packets == 0 {
            return Ok(Duration::MAX);
        }
        match self.plan.next.left(self.current.since) {
            Some(left) => Ok(left),
            None => self.go_on().map(|()| Duration::MAX),
        }
    }

    /// Records a frame. Returns whether to continue.
    fn take(&mut self, seen: &CapturedFrame<'_>) -> Result<bool, CliError> {
        self.counts[seen.port].taken += 1;
        let Some(kept) = self.plan.filter.kept(seen.frame) else { return Ok(true) };
        self.counts[seen.port].accepted += 1;
        let size = self.encoder.size_of(kept.len()) + STATISTICS * self.counts.len() as u64;
        let is_full = !self.plan.next.takes(size, self.current.bytes, self.current.packets);
        if self.files.goes_on() && self.current.packets > 0 && is_full {
            self.go_on()?;
        }
        self.done |= !self.plan.end.takes(size, self.earlier + self.current.bytes, self.packets);
        if self.done {
            return Ok(false);
        }
        self.append(seen, kept);
        if self.encoder.bytes().len() >= ENOUGH {
            self.flush()?;
        }
        // The capture ends with the last requested frame and does not wait for another one.
        self.done = self.plan.end.packets.is_some_and(|most| self.packets >= most);
        Ok(!self.done)
    }

    fn append(&mut self, seen: &CapturedFrame<'_>, kept: &[u8]) {
        let before = self.encoder.bytes().len();
        let len = seen.frame.len();
        self.encoder.frame(seen.port as u32, seen.time, kept, len as u32, Some(seen.direction));
        self.current.bytes += (self.encoder.bytes().len() - before) as u64;
        self.current.packets += 1;
        self.packets += 1;
        let count = &mut self.counts[seen.port];
        count.pending += 1;
        count.pending_bytes += len as u64;
    }

    /// Ends the current file and begins the next one or, if the maximum number of files is reached, ends the capture.
    fn go_on(&mut self) -> Result<(), CliError> {
        if self.plan.end.files.is_some_and(|most| self.files.made() >= most) {
            self.done = true;
            return Ok(());
        }
        self.append_statistics();
        self.flush()?;
        self.earlier += self.current.bytes;
        let sink = self.files.make_next(self.stop).map_err(|e| cannot_write(self.files, &e))?;
        self.encoder = Encoder::begin(self.plan.format, APPLICATION, &self.interfaces);
        self.current = CurrentFile::of(sink, &self.encoder);
        self.flush()
    }

    fn append_statistics(&mut self) {
        let end = now();
        for (number, count) in self.counts.iter().enumerate() {
            let lost = self.lost[number];
            let statistics = Statistics {
                start: self.began.1,
                end,
                received: count.taken + lost.unwrap_or(0),
                dropped: lost,
                accepted: count.accepted,
                delivered: count.written + count.pending,
            };
            self.encoder.statistics(number as u32, &statistics);
        }
    }

    /// Writes the collected blocks. If that fails, the blocks are discarded and their frames are counted as dropped.
    fn flush(&mut self) -> Result<(), CliError> {
        let written = self.current.sink.write(self.encoder.bytes(), self.stop);
        self.encoder.clear();
        for count in &mut self.counts {
            let frames = std::mem::take(&mut count.pending);
            let bytes = std::mem::take(&mut count.pending_bytes);
            if written.is_ok() {
                count.written += frames;
                count.bytes += bytes;
            }
        }
        written.map_err(|e| cannot_write(self.files, &e))
    }

    /// Ends the last file. After a failed write, the incomplete block is cut off first, which makes room for the
    /// statistics.
    fn finish(&mut self, sources: &mut CapturePorts, failed: bool) -> Result<(), CliError> {
        sources.ask();
        self.note_lost(sources);
        if failed && self.current.sink.watched().is_some() {
            return Ok(());
        }
        self.append_statistics();
        self.flush()
    }

    fn totals(&self) -> CaptureTotals {
        let sum = |of: fn(&CapturedCounts) -> u64| self.counts.iter().map(of).sum();
        CaptureTotals {
            frames: sum(|count| count.written),
            bytes: sum(|count| count.bytes),
            received: sum(|count| count.taken),
            dropped: self.lost.iter().copied().sum(),
            files: self.files.made(),
            time: self.began.0.elapsed(),
        }
    }
}

impl CurrentFile {
    /// Returns the state of a new file, which begins with the encoder's header.
    fn of(sink: Sink, encoder: &Encoder) -> CurrentFile {
        CurrentFile { sink, since: Instant::now(), bytes: encoder.bytes().len() as u64, packets: 0 }
    }
}

/// Turns a write error into an error of the command. It is not a failure of the capture if the reader has closed the
/// output.
fn cannot_write(files: &OutputFiles, error: &io::Error) -> CliError {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return CliError::output(error);
    }
    let what = format!("cannot write {}: {error}; later frames are not captured", files.current().display());
    CliError::failed(what, "make room on the disk, or name another file with -w")
}
