//! `netvale trace`: the path of single frames.

use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use netvale_control::ErrorCode;
use netvale_control::client::{Client, ClientError};
use netvale_control::types::{TraceBeginParams, TraceRead, TracedFrame};
use serde::Serialize;

use crate::{CliError, Ctx, libpcap, out, signals};

mod line;

/// Interval of requests to the daemon.
const LOOK: Duration = Duration::from_millis(50);

/// Tell what becomes of a port's frames: where each goes, what happens on the way, and why it is dropped.
///
/// Frames are those that come into the switch from the port, or from all ports of a switch, also from those that come
/// later. One line is one frame: when, from which port and ring, its length and headers, and behind a colon what
/// happened to it, in order. Traced frames are moved one by one, which takes time: of a busy port, trace one of many
/// (`--one-of`). Other frames, and other ports, are not slowed down. What is more than can be told is left out and
/// counted.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// The port, SWITCH:NAME, or the switch, for all ports of yours on it. It need not be there yet.
    #[arg(value_name = "PORT|SWITCH")]
    of: String,

    /// Only frames that fit, in the language of pcap-filter(7); the first 512 bytes of a frame are looked at.
    #[arg(value_name = "FILTER")]
    filter: Vec<String>,

    /// Only frames of which something is dropped.
    #[arg(long)]
    drops: bool,

    /// Look at one frame of that many only, of each ring.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    one_of: u32,

    /// End after that many frames.
    #[arg(short, long, value_name = "FRAMES")]
    count: Option<u64>,

    /// End after that many seconds.
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<f64>,

    /// Print each frame as one JSON object.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  netvale trace vale0:vm1                        all frames that vm1 sends
  netvale trace vale0 --drops                    what is dropped on vale0, and why
  netvale trace vale0:vm1 'udp port 67' -c 4     the next four frames of DHCP
  netvale trace vale0:vm1 --one-of 1000 --json   one of a thousand, for a program
";

/// A frame as printed for programs.
#[derive(Serialize)]
struct Timed<'a> {
    /// Time in nanoseconds since 1970.
    time_ns: i128,
    #[serde(flatten)]
    frame: &'a TracedFrame,
}

/// A count of lost frames, as printed for programs.
#[derive(Serialize)]
struct Lost {
    lost: u64,
}

/// Runs the subcommand.
///
/// # Errors
/// The filter cannot be compiled, no daemon answers, or the port does not exist.
pub fn run(args: &Args, ctx: &Ctx) -> Result<ExitCode, CliError> {
    let expression = args.filter.join(" ");
    let program = (!expression.is_empty()).then(|| libpcap::compile(&expression)).transpose()?;
    let filter = program.map(|program| program.to_string());
    let stop = signals::stop_flag()?;
    let mut daemon = ctx.daemon()?;
    let of = vec![args.of.clone()];
    let params = TraceBeginParams { of, filter, drops: args.drops, one_of: args.one_of, later: true };
    let begun = daemon.ask(|client| client.trace_begin(params.clone()))?;
    let mut ports = begun.ports.len();
    match ports {
        0 => netvale_control::note!("tracing {}, of which there is nothing yet:", args.of),
        _ => netvale_control::note!("tracing {}:", begun.ports.join(", ")),
    }
    let until = args.seconds.map(|seconds| Instant::now() + Duration::from_secs_f64(seconds.clamp(0.0, 1e9)));
    let mut left = args.count.unwrap_or(u64::MAX);
    while left > 0 {
        // Frames recorded before the time was up are still printed.
        let is_last = stop.load(Ordering::Relaxed) || until.is_some_and(|until| Instant::now() >= until);
        let Some(read) = daemon.ask(read)? else {
            netvale_control::note!("the daemon was upgraded; what happened meanwhile is not told");
            daemon.ask(|client| client.trace_begin(params.clone()))?;
            continue;
        };
        left = tell(args, &read, left)?;
        if is_last {
            break;
        }
        if read.frames.is_empty() {
            if read.ports == 0 && ports > 0 {
                netvale_control::note!("{} is gone, and traced again when it comes back", args.of);
            }
            ports = read.ports;
            std::thread::sleep(LOOK);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// New frames; `None` if another process has replaced the daemon, which does not continue traces.
fn read(client: &mut Client) -> Result<Option<TraceRead>, ClientError> {
    match client.trace_read() {
        Err(ClientError::Refused(why)) if why.is(ErrorCode::NotFound) => Ok(None),
        other => other.map(Some),
    }
}

/// Prints at most `left` frames. Returns the remaining number.
fn tell(args: &Args, read: &TraceRead, left: u64) -> Result<u64, CliError> {
    let now = jiff::Timestamp::now();
    let count = left.min(read.frames.len() as u64);
    for frame in read.frames.iter().take(count as usize) {
        let age = Duration::from_nanos(frame.age_ns);
        let at = now.checked_sub(age).unwrap_or(now);
        if args.json {
            out::json(&Timed { time_ns: at.as_nanosecond(), frame })?;
        } else {
            out::line(line::of(at, frame))?;
        }
    }
    match read.lost {
        0 => {}
        lost if args.json => out::json(&Lost { lost })?,
        lost => {
            out::line(format_args!("({lost} frames are not told of: --one-of, --drops or a filter leave some out)"))?
        }
    }
    Ok(left - count)
}
