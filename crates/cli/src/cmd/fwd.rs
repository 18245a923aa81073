//! `netvale fwd`: forward between two ports, as testpmd does.

use std::process::ExitCode;

use crate::{CliError, Ctx};

/// Forward frames between two ports as DPDK's testpmd does.
///
/// Unlike `bridge` it may look into the frames. Where both ports share a region, buffers are swapped. Ctrl-C ends it.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A port; given twice.
    #[arg(short = 'i', value_name = "PORT", required = true)]
    pub interface: Vec<String>,

    /// What to do with each frame.
    #[arg(long, value_enum, value_name = "MODE", default_value = "io")]
    pub mode: Mode,

    /// mac: the destination address that frames get [default: 02:00:00:00:00:PORT, as testpmd].
    #[arg(long, value_name = "MAC")]
    pub eth_peer: Option<String>,

    /// Frames a sync (the batch).
    #[arg(short = 'b', long, value_name = "FRAMES", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    pub burst: u32,

    /// Poll and never sleep, as testpmd does.
    #[arg(long)]
    pub poll_always: bool,

    /// Pin the thread to this CPU.
    #[arg(short = 'a', value_name = "CPU")]
    pub affinity: Option<usize>,

    /// End after so many frames; 0: no end.
    #[arg(short = 'n', value_name = "COUNT", default_value_t = 0)]
    pub count: u64,

    /// End after so many seconds.
    #[arg(long, value_name = "S", value_parser = crate::values::seconds)]
    pub seconds: Option<f64>,

    /// Milliseconds between two reports.
    #[arg(short = 'T', value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub report_ms: u32,

    /// One JSON object a report, one a line.
    #[arg(long)]
    pub json: bool,
}

/// testpmd's forwarding modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// Frames as they are.
    Io,
    /// New source and destination addresses.
    Mac,
    /// Source and destination address exchanged.
    Macswap,
}

/// Runs the subcommand.
///
/// # Errors
/// A port cannot be opened.
pub fn run(_args: &Args, _ctx: &Ctx) -> Result<ExitCode, CliError> {
    Err(CliError::failed("this build has no `fwd`", "attach both ports to one switch"))
}
