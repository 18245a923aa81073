//! `netvale demo`: everything once, in under a minute.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::{CliError, Ctx};

/// See it work, in under a minute.
///
/// TCP between two namespaces, pkt-gen across a switch and over a pipe, a capture read back, and a table of the rates. It starts a daemon of its own, needs no root where user namespaces are allowed, and takes everything down at its end.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Seconds for each measurement.
    #[arg(long, value_name = "S", default_value = "3", value_parser = crate::values::seconds)]
    pub seconds: f64,

    /// Keep the capture in this file.
    #[arg(long, value_name = "FILE")]
    pub keep_capture: Option<PathBuf>,

    /// One JSON object with the figures instead of the tour.
    #[arg(long)]
    pub json: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// A step fails.
pub fn run(_args: &Args, _ctx: &Ctx) -> Result<ExitCode, CliError> {
    Err(CliError::failed("this build has no `demo`", "start with `netvale up`"))
}
