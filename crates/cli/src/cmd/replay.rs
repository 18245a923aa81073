//! `netvale replay`: a capture file's frames into a port.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::{CliError, Ctx};

/// Send the frames of a capture file (pcap or pcapng) to a port.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The file; - is standard input.
    pub file: PathBuf,

    /// The port.
    pub port: String,

    /// Times the recorded speed; 0: as fast as the port takes it.
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = crate::values::speed)]
    pub speed: f64,

    /// Frames a second, evenly, instead of the recorded times.
    #[arg(short = 'R', long, value_name = "PPS", conflicts_with = "speed", value_parser = clap::value_parser!(u64).range(1..))]
    pub rate: Option<u64>,

    /// Send the file so many times; 0: no end.
    #[arg(long = "loop", value_name = "N", default_value_t = 1)]
    pub repeat: u64,

    /// End after so many frames.
    #[arg(short = 'c', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,

    /// Frames a sync (the batch).
    #[arg(short = 'b', value_name = "FRAMES", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    pub burst: u32,

    /// Seconds to wait for the link before the first frame.
    #[arg(short = 'w', value_name = "S", default_value_t = 0)]
    pub wait_link: u32,

    /// One JSON object with the sum.
    #[arg(long)]
    pub json: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// The file cannot be read, or the port cannot be opened.
pub fn run(_args: &Args, _ctx: &Ctx) -> Result<ExitCode, CliError> {
    Err(CliError::failed("this build has no `replay`", "attach a pcap:FILE port to the switch"))
}
