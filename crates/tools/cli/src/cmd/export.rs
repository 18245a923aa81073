//! `netvale export`: writes the daemon's state as a configuration file.

use netvale_control::client::Client;

use crate::{CliContext, CliError, out};

/// Write settings and ports as a configuration file.
///
/// Writes all settings and attached ports that differ from the defaults. `netvale up --config` starts a daemon like
/// this one from the file. Ports that programs opened are not part of it; a comment names them.
#[derive(Debug, clap::Args)]
pub struct ExportArgs {
    /// Print it as one JSON object, with the keys of the file.
    #[arg(long)]
    pub json: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// No daemon answers, or it refuses.
pub fn run(args: &ExportArgs, ctx: &CliContext) -> Result<(), CliError> {
    let exported = ctx.daemon()?.ask(Client::export)?;
    if args.json { out::json(&exported.config) } else { out::text(&exported.text) }
}
