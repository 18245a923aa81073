//! `netvale stop`: ends the daemon.

use std::process::ExitCode;

use crate::{CliError, Ctx};

/// End the daemon.
///
/// Its ports go, and with them their devices and memory. Programs that are attached see their ports closed.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Seconds to wait until it has ended.
    #[arg(long, value_name = "S", default_value = "10", value_parser = crate::values::seconds)]
    pub timeout: f64,
}

/// Runs the subcommand.
///
/// # Errors
/// No daemon answers, or it does not end.
pub fn run(_args: &Args, _ctx: &Ctx) -> Result<ExitCode, CliError> {
    Err(CliError::failed("this build has no `stop`", "send the daemon SIGTERM"))
}
