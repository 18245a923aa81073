//! `netvale export`: writes the daemon's state as a configuration file.

use std::process::ExitCode;

use netvale_control::client::Client;

use crate::{CliError, Ctx, out};

/// Write what is there as a configuration file.
///
/// Settings and attached ports, with what differs from the defaults. `netvale up --config` starts a daemon like this
/// one from it. Ports that programs opened are not in it; a comment names them.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print it as one JSON object, with the keys of the file.
    #[arg(long)]
    pub json: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// No daemon answers, or it refuses.
pub fn run(args: &Args, ctx: &Ctx) -> Result<ExitCode, CliError> {
    let exported = ctx.daemon()?.ask(Client::export)?;
    if args.json {
        out::json(&exported.config)?
    } else {
        out::text(&exported.text)?
    }
    Ok(ExitCode::SUCCESS)
}
