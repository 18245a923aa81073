//! `netvale show`: one port in full.

use std::process::ExitCode;

use crate::{CliError, Ctx};

/// Show one port: its rings, counters, drops by name, and kicks.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The port: SWITCH:NAME, e.g. vale0:a.
    pub port: String,

    /// One JSON object instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// No daemon answers, or there is no such port.
pub fn run(_args: &Args, _ctx: &Ctx) -> Result<ExitCode, CliError> {
    Err(CliError::failed("this build has no `show`", "ask the control socket"))
}
