//! `netvale up`: the daemon.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use netvale_daemon::config::{Config, File, Overrides, SocketAccess};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::values::{self, CpuList};
use crate::{CliError, Ctx, out};

/// Run the daemon in the foreground.
///
/// It holds the switches and moves their frames until it gets SIGTERM, SIGINT or `netvale stop`. Everything else
/// attaches to it through the sockets in the run directory. That directory is created if it does not exist. The daemon
/// tells systemd when it is ready (Type=notify). Command-line options override the configuration file.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Configuration: switches, ports, and the defaults of the options below (TOML).
    #[arg(long, value_name = "FILE.toml")]
    pub config: Option<PathBuf>,

    /// Print the JSON Schema of that file, for editors and checkers, and exit.
    #[arg(long, exclusive = true)]
    pub schema: bool,

    /// Worker threads; each owns the ingress of some of the ports [default: one for every four CPUs, 1 to 8].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub workers: Option<u16>,

    /// CPUs to pin the workers to, in turn, e.g. 0,2-3. Without it they are not pinned.
    #[arg(long, value_name = "LIST")]
    pub cpu: Option<CpuList>,

    /// Microseconds a worker looks for work after its last frame, before it sleeps. It sleeps earlier when looking does
    /// not pay; 0 sleeps immediately [default: 50].
    #[arg(long, value_name = "N", conflicts_with = "poll_always")]
    pub spin_us: Option<u32>,

    /// Workers never sleep: lowest latency, but each occupies a CPU.
    #[arg(long)]
    pub poll_always: bool,

    /// Real-time priority of the workers (SCHED_FIFO, 1 to 99). Choose one above that of programs that never sleep.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=99))]
    pub rt_priority: Option<u8>,

    /// User that the daemon becomes once it has made its run directory: a name or a number. Root starts it, and it
    /// keeps what TAPs and interfaces take.
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,

    /// Owner of the sockets: a name or a number. Without it, the user who runs the daemon.
    #[arg(long, value_name = "USER", help_heading = "Sockets")]
    pub socket_owner: Option<String>,

    /// Group of the sockets: a name or a number.
    #[arg(long, value_name = "GROUP", help_heading = "Sockets")]
    pub socket_group: Option<String>,

    /// Mode of the sockets in octal [default: 0600; with a group, 0660].
    #[arg(long, value_name = "MODE", value_parser = values::mode, help_heading = "Sockets")]
    pub socket_mode: Option<u32>,

    /// Keep capabilities and leave seccomp and Landlock off, to debug.
    #[arg(long)]
    pub no_sandbox: bool,

    /// Time one of this many batches of each ring, for the metrics, the page and `netvale top`; 0: none [default: 0].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1_000_000_000))]
    pub latency_sampling: Option<u32>,

    /// A directory that stays reachable in the sandbox, for capture files and sockets of virtual machines; may be given
    /// several times.
    #[arg(long, value_name = "DIR")]
    pub allow_dir: Vec<PathBuf>,

    /// An interface that every user who can connect may open, not only root and the daemon's own user; may be given
    /// several times.
    #[arg(long, value_name = "IF")]
    pub allow_nic: Vec<String>,

    /// A TAP that every user who can connect to the daemon may attach, not only root and its own user; may be given
    /// several times.
    #[arg(long, value_name = "TAP")]
    pub allow_tap: Vec<String>,

    /// A switch on which ports of all users may meet ("*": all); others are for the user who made them, root and the
    /// daemon's own user. May be given several times.
    #[arg(long, value_name = "SWITCH")]
    pub share_switch: Vec<String>,

    /// Go on in the place of the running daemon, with its ports and connections; `netvale upgrade` starts it so.
    #[arg(long)]
    pub take_over: bool,

    /// Log messages from this level on, to standard error.
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
    /// Ports attached and detached.
    Info,
    /// Every request.
    Debug,
    /// Everything.
    Trace,
}

/// Runs the subcommand.
///
/// # Errors
/// The daemon cannot start.
pub fn run(args: &Args, ctx: &Ctx) -> Result<ExitCode, CliError> {
    if args.schema {
        out::text(netvale_daemon::config::schema())?;
        return Ok(ExitCode::SUCCESS);
    }
    let cpus = args.cpu.as_ref().map(CpuList::cpus).unwrap_or_default();
    if let Some(none) = missing(cpus, Path::new("/sys/devices/system/cpu")) {
        let what = format!("--cpu {none}: this machine has no such processor");
        return Err(CliError::usage(what, "'lscpu' lists them"));
    }
    log_from(args.log_level);
    netvale_daemon::run(configure(args, ctx)?).map_err(|e| failed(&e))?;
    Ok(ExitCode::SUCCESS)
}

/// A processor that is not in the kernel's list. One that is off now is.
fn missing(cpus: &[usize], list: &Path) -> Option<usize> {
    cpus.iter().copied().find(|cpu| list.is_dir() && !list.join(format!("cpu{cpu}")).exists())
}

fn failed(e: &dyn std::error::Error) -> CliError {
    CliError::failed(format!("the daemon cannot start: {e}"), "see `netvale up --help`")
}

/// Begins the log, in systemd's journal if standard error leads there.
pub(super) fn log_from(level: LogLevel) {
    let level = match level {
        LogLevel::Error => tracing::Level::ERROR,
        LogLevel::Warn => tracing::Level::WARN,
        LogLevel::Info => tracing::Level::INFO,
        LogLevel::Debug => tracing::Level::DEBUG,
        LogLevel::Trace => tracing::Level::TRACE,
    };
    if let Some(journal) = netvale_daemon::Journal::behind_stderr() {
        let subscriber = tracing_subscriber::registry().with(LevelFilter::from_level(level)).with(journal);
        return subscriber.with(netvale_daemon::LogLimit).init();
    }
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        // It would tell of a log that cannot be written by `eprintln!`, which panics: the disk may be full, the
        // reader gone.
        .log_internal_errors(false)
        .finish();
    subscriber.with(netvale_daemon::LogLimit).init();
}

/// The file's settings, with those of the command line before them.
fn configure(args: &Args, ctx: &Ctx) -> Result<Config, CliError> {
    let mut overrides = overrides(args, ctx);
    let over = |overrides: &Overrides| match &args.config {
        Some(file) => overrides.over_file(file),
        None => overrides.over(File::default()),
    };
    let mut config = over(&overrides).map_err(|e| failed(&e))?;
    overrides.programs = super::filter::programs(&config)?;
    if !overrides.programs.is_empty() {
        config = over(&overrides).map_err(|e| failed(&e))?;
    }
    Ok(Config { take_over: args.take_over, ..config })
}

fn overrides(args: &Args, ctx: &Ctx) -> Overrides {
    Overrides {
        here: std::env::current_dir().unwrap_or_default(),
        run_dir: ctx.run_dir.clone(),
        workers: args.workers.map(usize::from),
        cpus: args.cpu.as_ref().map(|list| list.cpus().to_vec()),
        spin_us: args.spin_us.map(u64::from),
        poll_always: args.poll_always,
        rt_priority: args.rt_priority.map(u64::from),
        user: args.user.clone(),
        no_sandbox: args.no_sandbox,
        sockets: SocketAccess {
            owner: args.socket_owner.clone(),
            group: args.socket_group.clone(),
            mode: args.socket_mode,
        },
        latency_sampling: args.latency_sampling.map(u64::from),
        allow_dirs: args.allow_dir.clone(),
        allow_nics: args.allow_nic.clone(),
        allow_taps: args.allow_tap.clone(),
        shared_switches: args.share_switch.clone(),
        programs: BTreeMap::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: a processor that the machine does not have is found; where there is no list of them, none is.
    #[test]
    fn processors() {
        let list = tempfile::tempdir().unwrap();
        std::fs::create_dir(list.path().join("cpu0")).unwrap();
        assert_eq!((missing(&[0], list.path()), missing(&[0, 99], list.path())), (None, Some(99)));
        assert_eq!(missing(&[99], &list.path().join("none")), None);
    }
}
