//! `netvale stop`: ends the daemon.

use std::process::ExitCode;
use std::time::Duration;

use netvale_control::client::Client;

use crate::progress::Progress;
use crate::{CliError, Ctx};

/// End the daemon.
///
/// Its ports are removed, with their devices and memory. Attached programs see their ports closed.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Seconds to wait until it has ended.
    #[arg(long, value_name = "S", default_value = "10", value_parser = crate::values::seconds)]
    pub timeout: f64,
}

/// Runs the subcommand.
///
/// # Errors
/// No daemon answers, it refuses, or it does not end.
pub fn run(args: &Args, ctx: &Ctx) -> Result<ExitCode, CliError> {
    let mut daemon = ctx.daemon()?;
    daemon.ask(Client::shutdown)?;
    let progress = Progress::spinner();
    progress.say("waiting for the daemon to end");
    daemon.wait_closed(Duration::from_secs_f64(args.timeout)).map_err(|_| {
        let what = format!("the daemon has not ended after {} s", args.timeout);
        CliError::failed(what, "see its log; a longer --timeout waits longer; SIGKILL ends it immediately")
    })?;
    Ok(ExitCode::SUCCESS)
}
