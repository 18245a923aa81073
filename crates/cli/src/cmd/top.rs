//! `netvale top`: rates, live.

use std::process::ExitCode;

use crate::{CliError, Ctx, values};

/// Watch rates live.
///
/// Packets and bits a second for each port, drops, kicks per packet, and how busy the workers are. Keys: q quits, s changes the sorting, p pauses. With --batch it prints plain text, for scripts, files and pagers.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Seconds between two readings.
    #[arg(short, long, value_name = "S", default_value = "1", value_parser = values::seconds)]
    pub delay: f64,

    /// Plain text instead of the screen.
    #[arg(short, long)]
    pub batch: bool,

    /// Stop after so many readings.
    #[arg(short = 'n', long = "iterations", value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub iterations: Option<u64>,

    /// What comes first.
    #[arg(short, long, value_enum, value_name = "KEY", default_value = "rate")]
    pub sort: Sort,

    /// One JSON object a reading, one a line (implies --batch).
    #[arg(long)]
    pub json: bool,
}

/// What `top` sorts by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Sort {
    /// Packets a second, in and out together.
    Rate,
    /// Drops a second.
    Drops,
    /// The port's name.
    Name,
}

/// Runs the subcommand.
///
/// # Errors
/// No daemon answers, or the terminal cannot be used.
pub fn run(_args: &Args, _ctx: &Ctx) -> Result<ExitCode, CliError> {
    Err(CliError::failed("this build has no `top`", "ask the control socket"))
}
