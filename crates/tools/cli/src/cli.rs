//! The command line as a whole.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use clap_complete::CompleteEnv;

use crate::cmd::{CliCommand, attach, extcap};
use crate::complete;
use crate::error::{EXIT_CODES, FailureKind};
use crate::{CliContext, CliError, gvproxy, vde};

/// netmap rings and VALE switches on stock Linux: one daemon, and everything attaches to it.
#[derive(Debug, Parser)]
#[command(name = "netvale", version, after_help = EXIT_CODES, max_term_width = 100)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct NetvaleCli {
    /// Folder of the daemon's sockets.
    ///
    /// Default: $NETVALE_RUN_DIR, else /run/netvale for root, else $XDG_RUNTIME_DIR/netvale, else /tmp/netvale-UID. If
    /// you have no daemon of your own, the system's daemon in /run/netvale is used, provided that you may connect to
    /// it.
    #[arg(long, global = true, value_name = "DIR", help_heading = "Global options")]
    pub run_dir: Option<PathBuf>,

    /// The subcommand.
    #[command(subcommand)]
    pub command: CliCommand,
}

/// Returns the command line's definition, with the exit codes at the end of each subcommand's help.
#[must_use]
pub fn command() -> clap::Command {
    crate::groups::grouped(NetvaleCli::command()).mut_subcommands(with_exit_codes)
}

fn with_exit_codes(sub: clap::Command) -> clap::Command {
    let long = sub.get_after_long_help().map(|text| format!("{text}\n{EXIT_CODES}"));
    let sub = sub.after_help(EXIT_CODES).mut_subcommands(with_exit_codes);
    match long {
        Some(text) => sub.after_long_help(text),
        None => sub,
    }
}

/// Runs the program: parses the arguments, runs the subcommand, prints its error, and returns the exit code.
#[must_use]
pub fn main() -> ExitCode {
    CompleteEnv::with_factory(|| complete::with_values(command()))
        .var(complete::VARIABLE)
        .bin("netvale")
        .shells(complete::SHELLS)
        .complete();
    let given: Vec<OsString> = std::env::args_os().collect();
    if is_called(&given, vde::PROGRAM) {
        return vde::main(given.get(1..).unwrap_or_default());
    }
    if is_called(&given, gvproxy::PROGRAM) {
        return gvproxy::main(given.get(1..).unwrap_or_default());
    }
    let words = words(given);
    let matches = attach::help::narrowed(command(), &words).get_matches_from(words);
    let cli = match <NetvaleCli as clap::FromArgMatches>::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(error) => error.exit(),
    };
    let ctx = CliContext { run_dir: cli.run_dir, definition: command };
    cli.command.run(&ctx).unwrap_or_else(|error| report(&error))
}

/// Returns the words of the command line. If the program was started under the extcap program's name, inserts the
/// `extcap` subcommand.
fn words(mut words: Vec<OsString>) -> Vec<OsString> {
    if is_called(&words, extcap::PROGRAM) {
        words.splice(..1, ["netvale".into(), "extcap".into()]);
    }
    words
}

/// Returns whether the program was started under the file name `name`, in whichever folder.
fn is_called(words: &[OsString], name: &str) -> bool {
    words.first().map(Path::new).and_then(Path::file_name).is_some_and(|called| called == name)
}

fn report(error: &CliError) -> ExitCode {
    if error.kind() != FailureKind::OutputClosed {
        netvale_control::note!("netvale: {error}\n  {}", error.next());
    }
    ExitCode::from(error.code())
}

#[cfg(test)]
mod tests {
    /// Objective: started as netvale-extcap, in whichever folder, the program runs the extcap subcommand; an argument
    /// `netvale-extcap` has no such effect.
    #[test]
    fn the_name_in_wiresharks_folder_is_a_subcommand() {
        let words = |given: &[&str]| super::words(given.iter().map(Into::into).collect());
        assert_eq!(words(&["/usr/lib/x/netvale-extcap", "--capture"]), ["netvale", "extcap", "--capture"]);
        assert_eq!(words(&["/usr/bin/netvale", "netvale-extcap"]), ["/usr/bin/netvale", "netvale-extcap"]);
        assert!(words(&[]).is_empty());
    }

    /// Objective: only the file name vde_switch, in whichever folder, makes the program VDE's switch.
    #[test]
    fn the_name_of_vdes_switch_is_another_program() {
        let is_switch = |name: &str| super::is_called(&[name.into(), "-x".into()], crate::vde::PROGRAM);
        assert!(is_switch("vde_switch") && is_switch("/opt/bin/vde_switch"));
        assert!(!is_switch("/opt/vde_switch/netvale") && !is_switch("vde_switch.old"));
    }

    /// Objective: only the file name gvproxy makes the program gvproxy's drop-in.
    #[test]
    fn the_name_of_gvproxy_is_another_program() {
        let is_called = |name: &str| super::is_called(&[name.into()], crate::gvproxy::PROGRAM);
        assert!(is_called("gvproxy") && is_called("/usr/libexec/podman/gvproxy") && !is_called("gvproxy.old"));
    }

    /// Objective: the command line passes clap's own checks: no flag is defined twice, and no names clash.
    #[test]
    fn the_command_line_passes_claps_own_checks() {
        super::command().debug_assert();
    }
}
