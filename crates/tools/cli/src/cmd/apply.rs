//! `netvale apply`: changes a running daemon to match a configuration file.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use netvale_control::dirs::SYSTEM_RUN_DIR;
use netvale_control::types::{ApplyParams, ApplyResult, ConfigAction};
use netvale_daemon::config::{self, Overrides};

use super::filter::programs;
use crate::{CliContext, CliError, out};

/// The configuration file of the system's daemon, as in its systemd unit.
const SYSTEM_FILE: &str = "/etc/netvale.toml";
/// Time limit for the daemon's answer. It is long since attaching a thousand ports or closing large captures may take
/// many seconds.
const LIMIT: Duration = Duration::from_secs(120);

/// Make the running daemon match a configuration file.
///
/// Compares the file with the daemon's settings and ports. Unchanged ports are not touched: their programs and virtual
/// machines continue. Other ports are attached, detached, or attached again with their new options. If a step fails,
/// the earlier steps are undone. Ports that were attached by hand and ports that programs opened stay. The daemon's own
/// file, which it reads at its next start, is not changed.
#[derive(Debug, clap::Args)]
#[command(after_long_help = SIGNS)]
pub struct ApplyArgs {
    /// The TOML file, as for `netvale up --config`; - is standard input. Default for the system's daemon: its own file,
    /// /etc/netvale.toml.
    #[arg(value_name = "FILE.toml")]
    pub file: Option<PathBuf>,

    /// Only show the differences; change nothing.
    #[arg(long)]
    pub diff: bool,

    /// Include ports that were attached by hand: detach those that the file lacks, and attach again those with other
    /// options. Ports that programs opened stay.
    #[arg(long)]
    pub prune: bool,

    /// Print the changes as one JSON object.
    #[arg(long)]
    pub json: bool,

    /// Print the JSON Schema of the file, for editors and checkers, and exit.
    #[arg(long, exclusive = true)]
    pub schema: bool,
}

const SIGNS: &str = "\
Signs:
  +  the port is attached
  -  the port is detached
  *  the port is attached again with other options; programs that have it open lose it
  ~  the setting or the port's option changes while frames pass
  !  the setting takes effect after a restart

Examples:
  netvale export > netvale.toml
  netvale apply --diff netvale.toml
  netvale apply netvale.toml
";

/// Runs the subcommand.
///
/// # Errors
/// The file is malformed, no daemon answers, or the daemon cannot apply it.
pub fn run(args: &ApplyArgs, ctx: &CliContext) -> Result<(), CliError> {
    if args.schema {
        out::text(config::schema())?;
        return Ok(());
    }
    let (name, text) = read(file(args, ctx)?)?;
    // The daemon checks the file as well; this check finds mistakes even if no daemon runs.
    let config = config::parse(&text, &name, &Overrides::default()).map_err(|mistake| {
        CliError::failed(mistake.to_string(), "nothing has changed; `netvale apply --schema` prints the file's schema")
    })?;
    let programs = programs(&config)?;
    let params = ApplyParams { text, dry_run: args.diff, prune: args.prune, programs, file: Some(name) };
    let applied = ctx.daemon()?.ask(|client| {
        client.set_timeout(LIMIT);
        client.apply(params)
    })?;
    if args.json { out::json(&applied) } else { print(&applied) }
}

/// Returns the given file, or, if none is given, the file of the system's daemon.
fn file<'a>(args: &'a ApplyArgs, ctx: &CliContext) -> Result<&'a Path, CliError> {
    let own = (ctx.dir() == Path::new(SYSTEM_RUN_DIR)).then_some(Path::new(SYSTEM_FILE));
    args.file.as_deref().or(own).ok_or_else(|| {
        CliError::usage("no file given; only the system's daemon has a default file", "netvale apply FILE.toml")
    })
}

/// Reads the file once. Returns its name for messages, and its text.
fn read(file: &Path) -> Result<(String, String), CliError> {
    let failed = |error: io::Error| {
        let what = format!("cannot read {}: {error}", file.display());
        CliError::failed(what, "name a TOML file, or - for standard input")
    };
    if file == Path::new("-") {
        return Ok(("standard input".to_owned(), io::read_to_string(io::stdin()).map_err(failed)?));
    }
    Ok((file.display().to_string(), std::fs::read_to_string(file).map_err(failed)?))
}

fn print(applied: &ApplyResult) -> Result<(), CliError> {
    applied.changes.iter().try_for_each(out::line)?;
    out::line(summary(applied))
}

/// Returns the last line of the output: the numbers of changes.
fn summary(applied: &ApplyResult) -> String {
    let count = |which: &[ConfigAction]| applied.changes.iter().filter(|change| which.contains(&change.action)).count();
    let counts = [
        (count(&[ConfigAction::Attach]), "attached"),
        (count(&[ConfigAction::Detach]), "detached"),
        (count(&[ConfigAction::Reattach]), "attached again"),
        (count(&[ConfigAction::Set, ConfigAction::Adjust]), "changed"),
        (count(&[ConfigAction::Restart]), "after a restart"),
    ];
    let done: Vec<String> = counts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
    if done.is_empty() {
        return "nothing to change".to_owned();
    }
    let told = if applied.dry_run { "; nothing was changed" } else { "" };
    format!("{}; {} not touched{told}", done.join(", "), ports(applied.unchanged))
}

fn ports(count: u32) -> String {
    if count == 1 { "1 port".to_owned() } else { format!("{count} ports") }
}

#[cfg(test)]
mod tests {
    use netvale_control::types::ConfigChange;

    use super::*;

    /// Objective: the last line counts the changes, or says that no change was necessary, or that none was made.
    #[test]
    fn the_last_line_counts_the_changes() {
        let change = |action| ConfigChange { action, name: "x".into(), from: None, to: None, note: None };
        let mut applied = ApplyResult { unchanged: 1, ..ApplyResult::default() };
        assert_eq!(summary(&applied), "nothing to change");
        applied.changes =
            [ConfigAction::Attach, ConfigAction::Attach, ConfigAction::Set, ConfigAction::Restart].map(change).to_vec();
        assert_eq!(summary(&applied), "2 attached, 1 changed, 1 after a restart; 1 port not touched");
        applied.dry_run = true;
        assert!(summary(&applied).ends_with("; nothing was changed"));
    }
}
