//! `netvale apply`: changes a running daemon to match a configuration file.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use netvale_control::dirs::SYSTEM_RUN_DIR;
use netvale_control::types::{Action, Applied, ApplyParams};
use netvale_daemon::config::{self, Overrides};

use super::filter::programs;
use crate::{CliError, Ctx, out};

/// The configuration of the system's daemon, as named by its unit.
const SYSTEM_FILE: &str = "/etc/netvale.toml";
/// Time limit: attaching a thousand ports takes a while, and so does closing large captures.
const LIMIT: Duration = Duration::from_secs(120);

/// Make the running daemon what a configuration file says.
///
/// The file is compared with what is there. Ports that are the same are not touched: their programs and virtual
/// machines go on. Others are attached, detached, or attached again with their new options. Either all of it is done
/// or, if a step fails, what was done is taken back. Ports that were attached by hand and ports that programs opened
/// are left alone. The daemon's own file, which a restart reads, stays as it is.
#[derive(Debug, clap::Args)]
#[command(after_long_help = SIGNS)]
pub struct Args {
    /// The file (TOML), as for `netvale up --config`; - is standard input. Without it, the system's daemon takes its
    /// own, /etc/netvale.toml.
    #[arg(value_name = "FILE.toml")]
    pub file: Option<PathBuf>,

    /// Only show the differences; nothing is changed.
    #[arg(long)]
    pub diff: bool,

    /// Ports that were attached by hand give way, too: those that the file does not have are detached, those that it
    /// has otherwise are attached again. Ports that programs opened stay.
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
  *  the port is attached again, with other options: who has it open loses it
  ~  the setting or the port's option changes, and frames go on
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
pub fn run(args: &Args, ctx: &Ctx) -> Result<ExitCode, CliError> {
    if args.schema {
        out::text(config::schema())?;
        return Ok(ExitCode::SUCCESS);
    }
    let (name, text) = read(file(args, ctx)?)?;
    // The daemon checks it too; this check needs no daemon.
    let config = config::parse(&text, &name, &Overrides::default()).map_err(|mistake| {
        CliError::failed(mistake.to_string(), "nothing has changed; `netvale apply --schema` says what a file may have")
    })?;
    let programs = programs(&config)?;
    let params = ApplyParams { text, dry_run: args.diff, prune: args.prune, programs, file: Some(name) };
    let applied = ctx.daemon()?.ask(|client| {
        client.set_timeout(LIMIT);
        client.apply(params)
    })?;
    if args.json {
        out::json(&applied)?
    } else {
        print(&applied)?
    }
    Ok(ExitCode::SUCCESS)
}

/// The named file, or that of the system's daemon.
fn file<'a>(args: &'a Args, ctx: &Ctx) -> Result<&'a Path, CliError> {
    let own = (ctx.dir() == Path::new(SYSTEM_RUN_DIR)).then_some(Path::new(SYSTEM_FILE));
    args.file.as_deref().or(own).ok_or_else(|| {
        CliError::usage("no file is named, and this is not the system's daemon", "netvale apply FILE.toml")
    })
}

/// Name and text of the file. It is read once: later changes do not count.
fn read(file: &Path) -> Result<(String, String), CliError> {
    let failed = |error: std::io::Error| {
        CliError::failed(
            format!("cannot read {}: {error}", file.display()),
            "name a TOML file, or - for standard input",
        )
    };
    if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map_err(failed)?;
        return Ok(("standard input".to_owned(), text));
    }
    let text = std::fs::read_to_string(file).map_err(failed)?;
    Ok((file.display().to_string(), text))
}

fn print(applied: &Applied) -> Result<(), CliError> {
    applied.changes.iter().try_for_each(out::line)?;
    out::line(summary(applied))
}

/// The last line: a summary in numbers.
fn summary(applied: &Applied) -> String {
    let count = |which: &[Action]| applied.changes.iter().filter(|change| which.contains(&change.action)).count();
    let counts = [
        (count(&[Action::Attach]), "attached"),
        (count(&[Action::Detach]), "detached"),
        (count(&[Action::Reattach]), "attached again"),
        (count(&[Action::Set, Action::Adjust]), "changed"),
        (count(&[Action::Restart]), "after a restart"),
    ];
    let done: Vec<String> = counts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
    if done.is_empty() {
        return "nothing to change".to_owned();
    }
    let told = if applied.dry_run { "; nothing was done" } else { "" };
    format!("{}; {} not touched{told}", done.join(", "), ports(applied.unchanged))
}

fn ports(count: u32) -> String {
    if count == 1 { "1 port".to_owned() } else { format!("{count} ports") }
}

#[cfg(test)]
mod tests {
    use netvale_control::types::Change;

    use super::*;

    /// Objective: the last line counts the changes, and reports when none was necessary, or none was made.
    #[test]
    fn last_line() {
        let change = |action| Change { action, name: "x".into(), from: None, to: None, note: None };
        let mut applied = Applied { unchanged: 1, ..Applied::default() };
        assert_eq!(summary(&applied), "nothing to change");
        applied.changes = [Action::Attach, Action::Attach, Action::Set, Action::Restart].map(change).to_vec();
        assert_eq!(summary(&applied), "2 attached, 1 changed, 1 after a restart; 1 port not touched");
        applied.dry_run = true;
        assert!(summary(&applied).ends_with("; nothing was done"));
    }
}
