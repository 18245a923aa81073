//! `netvale completions`: completions for a shell.

use std::process::ExitCode;

use clap_complete::Shell;

use crate::{CliError, Ctx, out};

/// Print completions for a shell.
///
/// For instance: netvale completions bash > /etc/bash_completion.d/netvale.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The shell.
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Runs the subcommand.
///
/// # Errors
/// Standard output cannot be written.
pub fn run(args: &Args, ctx: &Ctx) -> Result<ExitCode, CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut (ctx.definition)(), "netvale", &mut script);
    out::text(String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}
