//! `netvale trace`: shows the path that each single frame takes.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use netvale_control::ErrorCode;
use netvale_control::client::{Client, ClientError};
use netvale_control::types::{TraceBeginParams, TraceRead, TracedFrame};
use serde::Serialize;

use crate::{CliContext, CliError, libpcap, out, signals};

mod line;

/// Interval at which the command reads traced frames from the daemon.
const LOOK: Duration = Duration::from_millis(50);

/// Trace single frames: where each is sent, what changes it, and why it is dropped.
///
/// Traces the frames that enter the switch from one port, or from all ports of a switch, including ports attached
/// later. Each frame is one line: time, source port and ring, length and headers, and after a colon what happened to
/// it, in order. Traced frames are moved one by one, which takes time: on a busy port, trace one of many (`--one-of`).
/// Other frames and other ports are not slowed down. If there are more frames than the trace can record, the rest is
/// counted.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct TraceArgs {
    /// The port, SWITCH:NAME, or the switch, for all your ports on it. It need not exist yet.
    #[arg(value_name = "PORT|SWITCH")]
    of: String,

    /// Only frames that match an expression of pcap-filter(7), which is applied to the first 512 bytes.
    #[arg(value_name = "FILTER")]
    filter: Vec<String>,

    /// Only frames of which at least one copy is dropped.
    #[arg(long)]
    drops: bool,

    /// Trace only one frame of that many, on each ring.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = crate::values::positive())]
    one_of: u32,

    /// End after this many frames.
    #[arg(short, long, value_name = "FRAMES")]
    count: Option<u64>,

    /// End after this many seconds.
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

/// A frame in JSON.
#[derive(Serialize)]
struct TimedFrame<'a> {
    /// When the frame passed, in nanoseconds since 1970.
    time_ns: i128,
    #[serde(flatten)]
    frame: &'a TracedFrame,
}

/// Runs the subcommand.
///
/// # Errors
/// The filter cannot be compiled, no daemon answers, or the port does not exist.
pub fn run(args: &TraceArgs, ctx: &CliContext) -> Result<(), CliError> {
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
        0 => netvale_control::note!("tracing {}, which does not exist yet:", args.of),
        _ => netvale_control::note!("tracing {}:", begun.ports.join(", ")),
    }
    let until = args.seconds.map(|seconds| Instant::now() + Duration::from_secs_f64(seconds.clamp(0.0, 1e9)));
    let mut left = args.count.unwrap_or(u64::MAX);
    while left > 0 {
        // The frames that were recorded before the trace ends are read and printed in a last round.
        let is_last = stop.load(Ordering::Relaxed) || until.is_some_and(|until| Instant::now() >= until);
        let Some(read) = daemon.ask(read)? else {
            netvale_control::note!("the daemon was upgraded; frames that passed during the upgrade were not traced");
            daemon.ask(|client| client.trace_begin(params.clone()))?;
            continue;
        };
        left = tell(args, &read, left)?;
        if is_last {
            break;
        }
        if read.frames.is_empty() {
            if read.ports == 0 && ports > 0 {
                netvale_control::note!("{} has ended; tracing continues when it is attached again", args.of);
            }
            ports = read.ports;
            std::thread::sleep(LOOK);
        }
    }
    Ok(())
}

/// Returns the frames that were traced since the last call; `None` if the trace has ended because another process
/// replaced the daemon.
fn read(client: &mut Client) -> Result<Option<TraceRead>, ClientError> {
    match client.trace_read() {
        Err(ClientError::Refused(why)) if why.is(ErrorCode::NotFound) => Ok(None),
        other => other.map(Some),
    }
}

/// Prints at most `left` frames. Returns `left` minus the number of printed frames.
fn tell(args: &TraceArgs, read: &TraceRead, left: u64) -> Result<u64, CliError> {
    let now = jiff::Timestamp::now();
    let count = left.min(read.frames.len() as u64);
    for frame in read.frames.iter().take(count as usize) {
        let age = Duration::from_nanos(frame.age_ns);
        let at = now.checked_sub(age).unwrap_or(now);
        let time_ns = at.as_nanosecond();
        if args.json { out::json(&TimedFrame { time_ns, frame })? } else { out::line(line::of(at, frame))? }
    }
    match read.lost {
        0 => {}
        lost if args.json => out::json(&serde_json::json!({"lost": lost}))?,
        lost => {
            out::line(format_args!("({lost} more frames not shown: limit them with --one-of, --drops or a filter)"))?
        }
    }
    Ok(left - count)
}
