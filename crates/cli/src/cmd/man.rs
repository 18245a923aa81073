//! `netvale man`: manual pages.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::{CliError, Ctx};

/// Write the manual pages: netvale.1 and one for each subcommand.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The folder; created if it does not exist.
    pub dir: PathBuf,
}

/// Runs the subcommand.
///
/// # Errors
/// The folder cannot be written.
pub fn run(args: &Args, ctx: &Ctx) -> Result<ExitCode, CliError> {
    let failed = |error: std::io::Error| {
        CliError::failed(
            format!("cannot write the manual pages to {}: {error}", args.dir.display()),
            "name a folder that you may write to",
        )
    };
    std::fs::create_dir_all(&args.dir).map_err(failed)?;
    clap_mangen::generate_to((ctx.definition)(), &args.dir).map_err(failed)?;
    Ok(ExitCode::SUCCESS)
}
