//! `netvale bridge`: join two ports.

use std::process::ExitCode;

use crate::{CliError, Ctx};

/// Move frames between two ports in both directions: netmap's bridge.
///
/// Where both ports share a region, buffers are swapped and nothing is copied. Ctrl-C ends it.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A port; given twice. With one port only, its NIC rings and its host rings are joined.
    #[arg(short = 'i', value_name = "PORT", required = true)]
    pub interface: Vec<String>,

    /// Frames a sync (the batch).
    #[arg(short = 'b', value_name = "FRAMES", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..))]
    pub burst: u32,

    /// Seconds to wait for the link before the first frame.
    #[arg(short = 'w', value_name = "S", default_value_t = 0)]
    pub wait_link: u32,

    /// Copy, even where buffers could be swapped.
    #[arg(short = 'c')]
    pub copy: bool,

    /// Poll and never sleep.
    #[arg(long)]
    pub poll_always: bool,

    /// Pin the thread to this CPU.
    #[arg(short = 'a', value_name = "CPU")]
    pub affinity: Option<usize>,

    /// End after so many seconds.
    #[arg(long, value_name = "S", value_parser = crate::values::seconds)]
    pub seconds: Option<f64>,

    /// Milliseconds between two reports.
    #[arg(short = 'T', value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub report_ms: u32,

    /// Say more.
    #[arg(short = 'v', action = clap::ArgAction::Count)]
    pub verbose: u8,

    /// One JSON object a report, one a line.
    #[arg(long)]
    pub json: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// A port cannot be opened.
pub fn run(_args: &Args, _ctx: &Ctx) -> Result<ExitCode, CliError> {
    Err(CliError::failed("this build has no `bridge`", "attach both ports to one switch"))
}
