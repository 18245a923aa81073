//! `netvale dump`: a port's frames into a capture file.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::{CliError, Ctx};

/// Write a port's frames to a capture file.
///
/// The port is read as it is written: vale0:a receives, vale0:a/t, /r and /rt copy what a port in use sends, receives, or both.
/// Ctrl-C ends it; the file is whole then.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// The port.
    pub port: String,

    /// The file; - is standard output.
    #[arg(short = 'w', long = "write", value_name = "FILE")]
    pub file: PathBuf,

    /// The file's format. Without it, from the file's name: pcapng for *.pcapng, else pcap.
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub format: Option<Format>,

    /// End after so many frames.
    #[arg(short = 'c', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,

    /// Keep so many bytes of each frame; 0: all.
    #[arg(short = 's', long, value_name = "BYTES", default_value_t = 0)]
    pub snaplen: u32,

    /// End after so many seconds.
    #[arg(long, value_name = "S", value_parser = crate::values::seconds)]
    pub seconds: Option<f64>,

    /// One JSON object with the sum, on standard error where the file is standard output.
    #[arg(long)]
    pub json: bool,
}

/// Capture file formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// The classic format, with nanoseconds.
    Pcap,
    /// Its successor.
    Pcapng,
}

const EXAMPLES: &str = "\
Examples:
  netvale dump vale0:a/rt -w a.pcapng
  netvale dump vale0:a/r -w - | tcpdump -n -r -
";

/// Runs the subcommand.
///
/// # Errors
/// The port cannot be opened, the file cannot be written.
pub fn run(_args: &Args, _ctx: &Ctx) -> Result<ExitCode, CliError> {
    Err(CliError::failed("this build has no `dump`", "attach a pcap:out=FILE port to the switch"))
}
