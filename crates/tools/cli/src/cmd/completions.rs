//! `netvale completions`: completions for a shell.

use crate::complete::{SHELLS, VARIABLE};
use crate::{CliContext, CliError, out};

/// Print completions for a shell.
///
/// For example: netvale completions bash > /etc/bash_completion.d/netvale. The completions cover commands, options,
/// existing switches and ports, policies, and programs after `netvale run --`.
#[derive(Debug, clap::Args)]
pub struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Shells with completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Shell {
    /// GNU Bash.
    Bash,
    /// Z shell.
    Zsh,
    /// fish.
    Fish,
}

/// Runs the subcommand.
///
/// # Errors
/// Standard output cannot be written.
pub fn run(args: &CompletionsArgs, _ctx: &CliContext) -> Result<(), CliError> {
    let mut script = Vec::new();
    if let Some(shell) = SHELLS.completer(&super::word_of(args.shell)) {
        let written = shell.write_registration(VARIABLE, "netvale", "netvale", "netvale", &mut script);
        written.map_err(|error| CliError::output(&error))?;
    }
    out::text(String::from_utf8_lossy(&script))
}
