//! `netvale attach`: a port more on a switch.

use std::process::ExitCode;

use crate::{CliError, Ctx};

/// Attach a port to a switch.
///
/// The switch is made where there is none. The port stays until `netvale detach` or the end of the daemon. Numbers left away, or
/// 0, mean the daemon's defaults.
#[derive(Debug, clap::Args)]
#[command(after_long_help = PORTS)]
pub struct Args {
    /// The switch, e.g. vale0.
    pub switch: String,

    /// What to attach: see below.
    pub port: String,

    /// The port's name on the switch. Without it, made from PORT.
    #[arg(long)]
    pub name: Option<String>,

    /// Rings in each direction (queues of a TAP device).
    #[arg(long, value_name = "N")]
    pub rings: Option<u32>,

    /// Slots of each ring.
    #[arg(long, value_name = "N")]
    pub slots: Option<u32>,

    /// Bytes of a buffer.
    #[arg(long, value_name = "BYTES")]
    pub buf_size: Option<u32>,

    /// Buffers beyond those in the rings, for programs that keep frames.
    #[arg(long, value_name = "N")]
    pub extra_bufs: Option<u32>,

    /// Hold senders back when this port is full, instead of dropping.
    #[arg(long)]
    pub lossless: bool,

    /// Bytes of virtio-net header before each frame.
    #[arg(long, value_name = "BYTES", value_parser = ["0", "10", "12"])]
    pub vnet_hdr: Option<String>,

    /// pcap: begin again at the end of the file.
    #[arg(long = "loop", help_heading = "Replay (pcap ports)")]
    pub repeat: bool,

    /// pcap: times the recorded speed; 0: as fast as the switch takes it [default: 1].
    #[arg(long, value_name = "FACTOR", help_heading = "Replay (pcap ports)")]
    pub speed: Option<f64>,
}

const PORTS: &str = "\
Ports:
  NAME                   a port that local programs open as valeX:NAME
  tap:NAME               a TAP device: the host's network stack
  pcap:FILE              frames of this capture file enter the switch
  pcap:in=FILE,out=FILE  replay one file, capture into another; either may be left away

Examples:
  netvale attach vale0 tap:nv0
  netvale attach vale0 pcap:trace.pcapng --loop --speed 2
  netvale attach vale0 web --rings 4 --slots 512 --lossless
";

/// Runs the subcommand.
///
/// # Errors
/// No daemon answers, or it refuses.
pub fn run(_args: &Args, _ctx: &Ctx) -> Result<ExitCode, CliError> {
    Err(CliError::failed("this build has no `attach`", "name the port in the daemon's configuration"))
}
