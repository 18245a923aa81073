//! `netvale table`: a switch's forwarding table.

use std::process::ExitCode;

use crate::{CliError, Ctx};

/// Show a switch's forwarding table.
///
/// For each address: the port it was learned on, and how long ago it was last seen.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The switch, e.g. vale0.
    pub switch: String,

    /// One JSON object instead of the table.
    #[arg(long)]
    pub json: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// No daemon answers, or there is no such switch.
pub fn run(_args: &Args, _ctx: &Ctx) -> Result<ExitCode, CliError> {
    Err(CliError::failed("this build has no `table`", "ask the control socket"))
}
