//! `netvale stop`: ends the daemon.

use std::time::Duration;

use netvale_control::client::Client;
use netvale_control::dirs::CONTROL_SOCKET;

use crate::progress::ProgressLine;
use crate::{CliContext, CliError};

/// End the daemon.
///
/// Its ports are removed, with their devices and memory. Attached programs see their ports closed.
#[derive(Debug, clap::Args)]
pub struct StopArgs {
    /// Seconds to wait until it has ended.
    #[arg(long, value_name = "S", default_value = "10", value_parser = crate::values::seconds)]
    pub timeout: f64,
}

/// Runs the subcommand.
///
/// # Errors
/// No daemon answers, or the daemon refuses or does not end in time.
pub fn run(args: &StopArgs, ctx: &CliContext) -> Result<(), CliError> {
    let mut daemon = ctx.daemon()?;
    daemon.ask(Client::shutdown)?;
    let progress = ProgressLine::spinner();
    progress.say("waiting for the daemon to end");
    daemon.wait_closed(Duration::from_secs_f64(args.timeout)).map_err(|_| {
        let what = format!("the daemon has not ended after {} s", args.timeout);
        CliError::failed(what, "see its log; use a longer --timeout, or SIGKILL, which ends it immediately")
    })?;
    if Client::obstacle(&ctx.dir(), CONTROL_SOCKET).is_none() {
        netvale_control::note!(
            "netvale: a service manager holds the sockets: the next client, even a metrics scrape, starts the daemon"
        );
        netvale_control::note!("  to stop the sockets: systemctl stop netvale.socket netvale-attach.socket netvale");
    }
    Ok(())
}
