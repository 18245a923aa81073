//! `netvale pkt-gen`: generates and counts frames, with netmap pkt-gen's options.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use netvale::Options;

use crate::forward::run::{self, is_closed};
use crate::{CliContext, CliError};

mod frame;
mod pingpong;
mod receiver;
mod report;
mod sender;

/// Generate, count or bounce frames.
///
/// A replacement for netmap's pkt-gen, with the same options. Prints the rate every second and a summary at the end. -f
/// ping and pong report percentiles of the round-trip time. Ctrl-C ends it.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct PktGenArgs {
    /// The port, e.g. vale0:a, netmap:p{1.
    #[arg(short = 'i', value_name = "PORT")]
    pub interface: String,

    /// The function.
    #[arg(short = 'f', value_enum, value_name = "FUNCTION")]
    pub function: Option<PktGenFunction>,

    /// Frames to send or receive; 0: no end.
    #[arg(short = 'n', value_name = "COUNT", default_value_t = 0)]
    pub count: u64,

    /// Send this many frames: same as -f tx -n COUNT.
    #[arg(short = 't', value_name = "COUNT", conflicts_with_all = ["rx_count", "function"])]
    pub tx_count: Option<u64>,

    /// Receive this many frames: same as -f rx -n COUNT.
    #[arg(short = 'r', value_name = "COUNT", conflicts_with = "function")]
    pub rx_count: Option<u64>,

    /// Bytes of a frame without CRC. Given twice: random sizes from the second to the first.
    #[arg(
        short = 'l', value_name = "BYTES", default_value = "60",
        value_parser = clap::value_parser!(u32).range(14..=65_550)
    )]
    pub pkt_size: Vec<u32>,

    /// Destination address or range: IP[:PORT[-IP:PORT]] [default: 10.1.0.1:1234, fd00::1 with -6].
    #[arg(short = 'd', value_name = "RANGE")]
    pub dst_ip: Option<String>,

    /// Source address or range: IP[:PORT[-IP:PORT]] [default: 10.0.0.1:1234, fd00::2 with -6].
    #[arg(short = 's', value_name = "RANGE")]
    pub src_ip: Option<String>,

    /// Destination MAC address [default: ff:ff:ff:ff:ff:ff].
    #[arg(short = 'D', value_name = "MAC")]
    pub dst_mac: Option<String>,

    /// Source MAC address [default: the port's].
    #[arg(short = 'S', value_name = "MAC")]
    pub src_mac: Option<String>,

    /// Pin the first thread to this CPU, the next to the following ones.
    #[arg(short = 'a', value_name = "CPU")]
    pub affinity: Option<usize>,

    /// Frames per sync (the batch), at most half a ring.
    #[arg(short = 'b', value_name = "FRAMES", default_value_t = 512, value_parser = crate::values::positive())]
    pub burst: u32,

    /// With -a, number of CPUs to use in turn; 0: one for each thread.
    #[arg(short = 'c', value_name = "N", default_value_t = 0)]
    pub cores: u32,

    /// Threads, each with its own ring; 0: one for each ring.
    #[arg(short = 'p', value_name = "N", default_value_t = 1)]
    pub threads: u32,

    /// Milliseconds between two reports.
    #[arg(short = 'T', value_name = "MS", default_value_t = 1000, value_parser = crate::values::positive())]
    pub report_ms: u32,

    /// Seconds to wait before the first frame.
    #[arg(short = 'w', value_name = "S", default_value_t = 0)]
    pub wait_link: u32,

    /// Frames per second; 0: no limit.
    #[arg(short = 'R', value_name = "PPS", default_value_t = 0)]
    pub rate: u64,

    /// Print the bytes of each frame.
    #[arg(short = 'X')]
    pub dump_payload: bool,

    /// Bytes of virtio-net header before each frame: 0, 10 or 12 [default: the port's].
    #[arg(short = 'H', value_name = "BYTES", value_parser = crate::values::vnet_hdr)]
    pub vnet_hdr: Option<u32>,

    /// Send the frames of this capture file.
    #[arg(short = 'P', value_name = "FILE")]
    pub pcap: Option<PathBuf>,

    /// Random source address and port in each frame, from the range of -s.
    #[arg(short = 'z')]
    pub random_src: bool,

    /// Random destination address and port in each frame, from the range of -d.
    #[arg(short = 'Z')]
    pub random_dst: bool,

    /// Stop a receiver when no more frames arrive.
    #[arg(short = 'W')]
    pub exit_idle: bool,

    /// Plain numbers instead of Kpps, Mpps, Gbps.
    #[arg(short = 'N')]
    pub no_scale: bool,

    /// Slots per frame (NS_MOREFRAG).
    #[arg(short = 'F', value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub num_frags: u32,

    /// Bytes of each fragment; without it the frame is cut into -F equal ones.
    #[arg(short = 'M', value_name = "BYTES")]
    pub frag_size: Option<u32>,

    /// Indirect buffers (NS_INDIRECT): refused, because frames are sent from the ring's own buffers.
    #[arg(short = 'I')]
    pub indirect: bool,

    /// Sum of: 1 prefetch (always on), 2 the receiver reads each frame, 4 or 8 the sender copies each frame anew.
    #[arg(short = 'o', value_name = "OPTIONS", default_value_t = 0)]
    pub options: u32,

    /// Print more details.
    #[arg(short = 'v', action = clap::ArgAction::Count)]
    pub verbose: u8,

    /// IPv4 frames (the default).
    #[arg(short = '4', conflicts_with = "ipv6")]
    pub ipv4: bool,

    /// IPv6 frames.
    #[arg(short = '6')]
    pub ipv6: bool,

    /// Print each report, and the totals, as a JSON object on a line.
    #[arg(long)]
    pub json: bool,

    /// The receiver reads each frame's bytes.
    #[arg(long, overrides_with = "no_touch")]
    pub touch: bool,

    /// ping and pong sleep for each frame without polling first.
    #[arg(long, conflicts_with = "poll")]
    pub sleep: bool,

    /// ping and pong only poll, for CPUs without other programs.
    #[arg(long)]
    pub poll: bool,

    /// The receiver reads only the slots (default, as in netmap).
    #[arg(long, overrides_with = "touch")]
    pub no_touch: bool,
}

/// pkt-gen's functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum PktGenFunction {
    /// Send.
    Tx,
    /// Receive and count.
    Rx,
    /// Send one frame, wait for its answer, and repeat: measures latency.
    Ping,
    /// Return received frames to their sender.
    Pong,
    /// Send frames with a sequence number.
    Txseq,
    /// Receive such frames and report gaps.
    Rxseq,
}

const EXAMPLES: &str = "\
Examples:
  netvale pkt-gen -i vale0:tx -f tx -l 60
  netvale pkt-gen -i vale0:rx -f rx -W
  netvale pkt-gen -i vale0:a -f ping -n 100000
";

/// Runs the subcommand.
///
/// # Errors
/// The port cannot be opened, or values are inconsistent.
pub fn run(args: &PktGenArgs, ctx: &CliContext) -> Result<(), CliError> {
    unfit(args)?;
    let (function, count) = function(args);
    let stop = crate::signals::stop_flag()?;
    let hdr_len = args.vnet_hdr.unwrap_or(0);
    let mut port =
        ctx.open_port(&args.interface, Options { rings: args.threads.max(1), hdr_len, ..Options::default() })?;
    if args.verbose > 0 {
        run::describe(&mut port);
    }
    run::wait_link(args.wait_link, &stop);
    let (tx, rx) = port.take_rings();
    let job = PktGenJob { args, count, stop: &stop, hdr_len: port.info().hdr_len as usize };
    let closed = || port.connection().is_some_and(is_closed);
    match function {
        PktGenFunction::Tx | PktGenFunction::Txseq => sender::run(&job, tx, function == PktGenFunction::Txseq, &closed),
        PktGenFunction::Rx | PktGenFunction::Rxseq => {
            receiver::run(&job, rx, function == PktGenFunction::Rxseq, &closed)
        }
        PktGenFunction::Ping => pingpong::ping(&job, tx, rx, &closed),
        PktGenFunction::Pong => pingpong::pong(&job, tx, rx, &closed),
    }
}

/// Bit of -o: the receiver reads frames.
const OPT_ACCESS: u32 = 2;
/// Bits of -o: the sender copies each frame. In netmap's pkt-gen, one selects its own copy loop and the other memcpy;
/// here, both have the same effect.
const OPT_COPY: u32 = 4 | 8;
/// All valid bits of -o, including prefetch.
const OPTIONS: u32 = 1 | OPT_ACCESS | OPT_COPY;

/// How long a thread polls before it sleeps. The time is longer than a CPU takes to wake up, since otherwise the two
/// ends of a round trip would take turns sleeping.
const SPIN: Duration = Duration::from_micros(100);

/// The parameters shared by pkt-gen's functions (tx, rx, ping and others).
pub(crate) struct PktGenJob<'a> {
    args: &'a PktGenArgs,
    /// Number of frames to handle; 0 for no limit.
    count: u64,
    /// Flag that Ctrl-C sets, to stop all threads.
    stop: &'a AtomicBool,
    /// Bytes of virtio-net header before each frame.
    hdr_len: usize,
}

fn function(args: &PktGenArgs) -> (PktGenFunction, u64) {
    match (args.tx_count, args.rx_count, args.function) {
        (Some(n), _, _) => (PktGenFunction::Tx, n),
        (_, Some(n), _) => (PktGenFunction::Rx, n),
        (_, _, f) => (f.unwrap_or(PktGenFunction::Rx), args.count),
    }
}

/// Refuses options with inconsistent values, and options that no port supports.
fn unfit(args: &PktGenArgs) -> Result<(), CliError> {
    if args.indirect {
        return Err(CliError::usage("-I: indirect buffers (NS_INDIRECT) are not supported", "omit -I"));
    }
    if args.options & !OPTIONS != 0 {
        let what = format!("-o {}: expected a sum of 1, 2, 4 and 8", args.options);
        return Err(CliError::usage(what, "add the chosen values, e.g. -o 6 for 2 and 4"));
    }
    if args.pcap.is_some() && function(args).0 != PktGenFunction::Tx {
        let next = "give -f tx, or send the file with `netvale replay`";
        return Err(CliError::usage("-P applies only to sending", next));
    }
    if args.pkt_size.len() > 2 {
        return Err(CliError::usage("-l is given more than twice", "give one size, or the largest and the smallest"));
    }
    Ok(())
}

/// Returns the error for a port that the daemon has closed.
fn gone() -> CliError {
    CliError::failed("the daemon closed the port", "see the daemon's log; `netvale list` shows whether it runs")
}

/// Returns the batch size: the requested size, but at most half of the ring, so that sender and receiver have work at
/// the same time.
fn burst(args: &PktGenArgs, slots: u32) -> u32 {
    args.burst.min(slots / 2).max(1)
}

/// Pins thread `k` to its CPU as -a requests.
fn pin(args: &PktGenArgs, k: usize) {
    if let Some(first) = args.affinity {
        let k = if args.cores == 0 { k } else { k % args.cores as usize };
        run::pin(first + k);
    }
}
