//! `netvale list`: switches and their ports.

use std::process::ExitCode;

use crate::{CliError, Ctx};

/// List switches and their ports.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only this switch.
    pub switch: Option<String>,

    /// One JSON object instead of the table.
    #[arg(long)]
    pub json: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// No daemon answers, or there is no such switch.
pub fn run(_args: &Args, _ctx: &Ctx) -> Result<ExitCode, CliError> {
    Err(CliError::failed("this build has no `list`", "ask the control socket"))
}
