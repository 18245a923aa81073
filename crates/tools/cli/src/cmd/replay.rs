//! `netvale replay`: sends a capture file's frames to a port.

use std::fs::File;
use std::io::Read;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use netvale::{Options, Port, TxRing};
use netvale_pcapport::{Pacer, PcapReader, ReadError, ReplayPace};

use crate::forward::run::{self, is_closed};
use crate::progress::ProgressLine;
use crate::{CliContext, CliError, out, units};

/// Send the frames of a capture file (pcap or pcapng) to a port.
#[derive(Debug, clap::Args)]
pub struct ReplayArgs {
    /// The file; - is standard input.
    pub file: PathBuf,

    /// The port.
    pub port: String,

    /// Speed relative to the recorded one; 0: as fast as possible.
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = crate::values::speed)]
    pub speed: f64,

    /// Frames per second, evenly spaced, instead of the recorded times.
    #[arg(
        short = 'R', long, value_name = "PPS", conflicts_with = "speed",
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    pub rate: Option<u64>,

    /// Send the file this many times; 0: without end.
    #[arg(long = "loop", value_name = "N", default_value_t = 1)]
    pub repeat: u64,

    /// Stop after this many frames.
    #[arg(short = 'c', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,

    /// Frames per sync (the batch).
    #[arg(short = 'b', value_name = "FRAMES", default_value_t = 512, value_parser = crate::values::positive())]
    pub burst: u32,

    /// Seconds to wait before the first frame.
    #[arg(short = 'w', value_name = "S", default_value_t = 0)]
    pub wait_link: u32,

    /// Print the totals as one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// The file cannot be read, or the port cannot be opened. If the file is truncated or damaged, the frames before the
/// damage are sent before the error is returned.
pub fn run(args: &ReplayArgs, ctx: &CliContext) -> Result<(), CliError> {
    let stdin = args.file.as_os_str() == "-";
    if stdin && args.repeat != 1 {
        return Err(CliError::usage("standard input can be read only once", "omit --loop, or name a file"));
    }
    let mut reader = open(args)?;
    let mut port = ctx.open_port(&args.port, Options::default())?;
    let stop = crate::signals::stop_flag()?;
    run::wait_link(args.wait_link, &stop);
    let mut replay =
        Replay { args, port: &mut port, stop: &stop, start: Instant::now(), sum: ReplaySum::default(), unsynced: 0 };
    let mut pacer = Pacer::new(pace(args));
    let mut passes = 0;
    let progress = ProgressLine::spinner();
    let ended = loop {
        let passed = replay.pass(reader, &mut pacer, &progress);
        passes += 1;
        let again = args.repeat == 0 || passes < args.repeat;
        if passed.is_err() || !again || replay.is_over() || replay.sum.frames == 0 {
            break passed;
        }
        pacer.again();
        reader = open(args)?;
    };
    drop(progress);
    replay.flush();
    report(args, replay.sum, replay.start.elapsed().as_secs_f64())?;
    ended
}

type CaptureReader = PcapReader<Box<dyn Read>>;

fn open(args: &ReplayArgs) -> Result<CaptureReader, CliError> {
    let from: Box<dyn Read> = if args.file.as_os_str() == "-" {
        Box::new(std::io::stdin())
    } else {
        let failed =
            |e| CliError::failed(format!("cannot open {}: {e}", args.file.display()), "name another file, or -");
        Box::new(File::open(&args.file).map_err(failed)?)
    };
    PcapReader::new(from).map_err(|e| unreadable(args, &e))
}

fn unreadable(args: &ReplayArgs, error: &ReadError) -> CliError {
    let what = format!("{}: {error}", args.file.display());
    CliError::failed(what, "the frames before the error were sent; `tcpdump -r` may show more")
}

fn pace(args: &ReplayArgs) -> ReplayPace {
    let rate = args.rate.and_then(NonZeroU64::new).map(ReplayPace::Rate);
    rate.or_else(|| ReplayPace::times(args.speed)).unwrap_or(ReplayPace::Fast)
}

#[derive(Clone, Copy, Default)]
struct ReplaySum {
    frames: u64,
    bytes: u64,
    /// Number of frames that were omitted because they are too long for the port.
    too_long: u64,
    /// Number of frames that the receiver had not taken when the port was closed.
    left: u64,
}

fn report(args: &ReplayArgs, sum: ReplaySum, seconds: f64) -> Result<(), CliError> {
    let pps = sum.frames as f64 / seconds.max(1e-9);
    if args.json {
        return out::json(&serde_json::json!({
            "frames": sum.frames, "bytes": sum.bytes, "too_long": sum.too_long,
            "left": sum.left, "seconds": seconds, "pps": pps,
        }));
    }
    let left_out = match sum.too_long {
        0 => String::new(),
        count => format!("; {count} were omitted: they are too long for {}", args.port),
    };
    out::line(format_args!(
        "{} frames, {} bytes sent in {seconds:.2} seconds, {}{left_out}",
        sum.frames,
        sum.bytes,
        units::pps(pps)
    ))
}

/// Maximum duration of a sleep; after it, the command checks for Ctrl-C.
const NAP: Duration = Duration::from_millis(50);
/// How long the sender polls for room before it sleeps.
const SPIN: Duration = Duration::from_micros(100);
/// Number of frames between two updates of the progress line.
const WORD_EVERY: u64 = 1024;

struct Replay<'a> {
    args: &'a ReplayArgs,
    port: &'a mut Port,
    stop: &'a AtomicBool,
    start: Instant,
    sum: ReplaySum,
    /// Number of frames in the ring that no sync has published yet.
    unsynced: u32,
}

impl Replay<'_> {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.args.count.is_some_and(|count| self.sum.frames >= count)
    }

    /// Sends the file once.
    fn pass(&mut self, mut reader: CaptureReader, pacer: &mut Pacer, progress: &ProgressLine) -> Result<(), CliError> {
        while !self.is_over() {
            let Some(frame) = reader.next_frame().map_err(|e| unreadable(self.args, &e))? else { break };
            self.wait_until(pacer.due(frame.time));
            self.send(frame.bytes)?;
            if self.sum.frames.is_multiple_of(WORD_EVERY) {
                progress.say(format!("{} frames sent", self.sum.frames));
            }
        }
        Ok(())
    }

    /// Publishes the frames in the ring, and waits until `due` has passed since the start, or until Ctrl-C.
    fn wait_until(&mut self, due: Duration) {
        while let Some(left) = due.checked_sub(self.start.elapsed()).filter(|left| !left.is_zero()) {
            self.sync();
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            std::thread::sleep(left.min(NAP));
        }
    }

    fn send(&mut self, frame: &[u8]) -> Result<(), CliError> {
        let name = &self.args.port;
        let no_ring =
            || CliError::failed(format!("{name} cannot send"), "a monitor only receives: give the port itself");
        let mut ring = self.port.tx().first_mut().ok_or_else(no_ring)?;
        let most = u64::from(ring.num_slots() - 1).min(64) * u64::from(ring.mem().buf_size());
        if frame.len() as u64 > most {
            self.sum.too_long += 1;
            return Ok(());
        }
        while !ring.send(frame) {
            ring.sync();
            ring.wait(SPIN, NAP);
            if self.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            if self.port.connection().is_some_and(is_closed) {
                return Err(CliError::failed(format!("the daemon closed {name}"), "see the daemon's log"));
            }
            let Some(again) = self.port.tx().first_mut() else { return Ok(()) };
            ring = again;
        }
        self.sum.frames += 1;
        self.sum.bytes += frame.len() as u64;
        self.unsynced += 1;
        if self.unsynced >= self.args.burst {
            self.sync();
        }
        Ok(())
    }

    fn sync(&mut self) {
        if self.unsynced > 0 {
            self.port.tx().iter_mut().for_each(TxRing::sync);
            self.unsynced = 0;
        }
    }

    /// Waits until the receiver has taken all frames, before the port closes.
    fn flush(&mut self) {
        self.sync();
        for ring in self.port.tx() {
            self.sum.left += u64::from(run::drain(ring));
        }
    }
}
