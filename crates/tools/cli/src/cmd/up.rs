//! `netvale up`: runs the daemon.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use netvale_daemon::config::{Config, ConfigFile, Overrides, Setting};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::{CliContext, CliError, out};

mod flags;

use flags::SettingFlags;

/// Run the daemon in the foreground.
///
/// The daemon runs the switches until SIGTERM, SIGINT or `netvale stop`. Programs, commands and virtual machines
/// connect through the sockets in the run directory, which is created if it does not exist. The daemon notifies systemd
/// when it is ready (Type=notify). Command-line options override the configuration file.
#[derive(Debug, clap::Args)]
pub struct UpArgs {
    /// Configuration: switches, ports, and the defaults of the options below (TOML).
    #[arg(long, value_name = "FILE.toml")]
    pub config: Option<PathBuf>,

    /// Print the JSON Schema of the configuration file, for editors and checkers, and exit.
    #[arg(long, exclusive = true)]
    pub schema: bool,

    /// The settings given by flags.
    #[command(flatten)]
    pub settings: SettingFlags,

    /// Take over from the running daemon, with its ports and connections; `netvale upgrade` uses this.
    #[arg(long)]
    pub take_over: bool,

    /// End with the process of this number, which starts the daemon.
    #[arg(long, hide = true, value_name = "PID")]
    pub parent: Option<u32>,

    /// Log messages of this level and above, to standard error.
    #[arg(long, value_enum, value_name = "LEVEL", default_value = "info")]
    pub log_level: LogLevel,
}

/// Log level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogLevel {
    /// Errors.
    Error,
    /// Warnings.
    Warn,
    /// Also ports attached and detached.
    Info,
    /// Also every request.
    Debug,
    /// Everything.
    Trace,
}

/// Runs the subcommand.
///
/// # Errors
/// The daemon cannot start.
pub fn run(args: &UpArgs, ctx: &CliContext) -> Result<(), CliError> {
    if args.schema {
        out::text(netvale_daemon::config::schema())?;
        return Ok(());
    }
    if let Some(none) = missing(&args.settings.cpus(), Path::new("/sys/devices/system/cpu")) {
        let what = format!("--cpu {none}: this machine has no CPU {none}");
        return Err(CliError::usage(what, "'lscpu' lists the machine's CPUs"));
    }
    if let Some(parent) = args.parent.filter(|_| !args.take_over) {
        end_with(parent)?;
    }
    log_from(args.log_level);
    netvale_daemon::run(configure(args, ctx)?).map_err(|e| failed(&e))
}

/// Makes the kernel send SIGTERM to this process when its parent ends.
fn end_with(parent: u32) -> Result<(), CliError> {
    let next = "give --parent the ID of the process that starts this one";
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))
        .map_err(|e| CliError::failed(format!("cannot watch for the end of process {parent}: {e}"), next))?;
    // If the parent has ended before this call, the kernel sends no signal, so the parent is checked.
    let found = rustix::process::getppid().map(|pid| pid.as_raw_pid().unsigned_abs());
    if found == Some(parent) {
        return Ok(());
    }
    Err(CliError::failed(format!("process {parent} is not the parent of this process, or has ended"), next))
}

/// Returns the first CPU in `cpus` that is missing in the folder `list`, where the kernel lists all CPUs, including
/// those that are offline. Returns `None` if no CPU is missing, or if the kernel provides no list.
fn missing(cpus: &[u64], list: &Path) -> Option<u64> {
    cpus.iter().copied().find(|cpu| list.is_dir() && !list.join(format!("cpu{cpu}")).exists())
}

fn failed(e: &dyn std::error::Error) -> CliError {
    CliError::failed(format!("the daemon cannot start: {e}"), "see `netvale up --help`")
}

/// Starts logging at the given level: to systemd's journal if standard error is connected to it, otherwise to standard
/// error.
pub(super) fn log_from(level: LogLevel) {
    // The words of `LogLevel` are the names of tracing's levels.
    let level: LevelFilter = super::word_of(level).parse().unwrap_or(LevelFilter::INFO);
    if let Some(journal) = netvale_daemon::Journal::behind_stderr() {
        let subscriber = tracing_subscriber::registry().with(level).with(journal);
        return subscriber.with(netvale_daemon::LogLimit).init();
    }
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        // The logger would report its own errors by `eprintln!`, which panics if the disk is full or the reader of
        // standard error has closed it.
        .log_internal_errors(false)
        .finish();
    subscriber.with(netvale_daemon::LogLimit).init();
}

/// Returns the file's settings, overridden by the settings on the command line.
fn configure(args: &UpArgs, ctx: &CliContext) -> Result<Config, CliError> {
    let mut overrides = overrides(args, ctx);
    let over = |overrides: &Overrides| match &args.config {
        Some(file) => overrides.over_file(file),
        None => overrides.over(ConfigFile::default()),
    };
    let mut config = over(&overrides).map_err(|e| failed(&e))?;
    overrides.programs = super::filter::programs(&config)?;
    if !overrides.programs.is_empty() {
        config = over(&overrides).map_err(|e| failed(&e))?;
    }
    Ok(Config { take_over: args.take_over, ..config })
}

fn overrides(args: &UpArgs, ctx: &CliContext) -> Overrides {
    let here = std::env::current_dir().unwrap_or_default();
    let run_dir = Setting::find("", "run_dir").zip(ctx.run_dir.clone());
    let run_dir = run_dir.map(|(setting, dir)| (setting, vec![dir.into_os_string()]));
    let words = args.settings.0.iter().cloned().chain(run_dir).collect();
    Overrides { here, words, programs: BTreeMap::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: a CPU that the machine does not have is reported; without the kernel's list, no CPU is reported.
    #[test]
    fn a_processor_that_the_machine_lacks_is_found() {
        let list = tempfile::tempdir().unwrap();
        std::fs::create_dir(list.path().join("cpu0")).unwrap();
        assert_eq!((missing(&[0], list.path()), missing(&[0, 99], list.path())), (None, Some(99)));
        assert_eq!(missing(&[99], &list.path().join("none")), None);
    }
}
