//! `netvale lb`: spread one port over pipes.

use std::process::ExitCode;

use crate::{CliError, Ctx};

/// Spread a port's frames over pipes by a hash of their flow: netmap's lb.
///
/// Both directions of a connection go to the same pipe. Programs open the pipes' other ends, PORT}0, PORT}1 and so on. Frames
/// travel without a copy. Ctrl-C ends it.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The port.
    #[arg(short = 'i', value_name = "PORT")]
    pub interface: String,

    /// Pipes to spread over.
    #[arg(short = 'p', long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub pipes: u32,

    /// Buffers beyond those in the rings, to hold frames for slow readers.
    #[arg(short = 'B', long, value_name = "N", default_value_t = 0)]
    pub extra_bufs: u32,

    /// Frames a sync (the batch).
    #[arg(short = 'b', value_name = "FRAMES", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    pub burst: u32,

    /// Seconds to wait for the link before the first frame.
    #[arg(short = 'w', value_name = "S", default_value_t = 0)]
    pub wait_link: u32,

    /// Pin the thread to this CPU.
    #[arg(short = 'a', value_name = "CPU")]
    pub affinity: Option<usize>,

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

/// Runs the subcommand.
///
/// # Errors
/// The port or a pipe cannot be opened.
pub fn run(_args: &Args, _ctx: &Ctx) -> Result<ExitCode, CliError> {
    Err(CliError::failed("this build has no `lb`", "read the port with one program"))
}
