//! `netvale up`: the daemon.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::values::{self, CpuList};
use crate::{CliError, Ctx};

/// Run the daemon in the foreground.
///
/// It holds the switches and moves their frames until it gets SIGTERM, SIGINT or `netvale stop`. Everything else attaches to it
/// through the sockets in the run directory. A folder is made where there is none. It tells systemd when it is ready
/// (Type=notify). Values on the command line go before those of the configuration file.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Configuration: switches, ports, and the defaults of the options below (TOML).
    #[arg(long, value_name = "FILE.toml")]
    pub config: Option<PathBuf>,

    /// Worker threads; each owns the ingress of some of the ports [default: 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub workers: Option<u16>,

    /// CPUs to pin the workers to, in turn, e.g. 0,2-3. Without it they are not pinned.
    #[arg(long, value_name = "LIST")]
    pub cpu: Option<CpuList>,

    /// Microseconds a worker looks for work after its last frame, before it sleeps; 0 sleeps at once [default: 50].
    #[arg(long, value_name = "N", conflicts_with = "poll_always")]
    pub spin_us: Option<u32>,

    /// Workers never sleep: lowest latency, and a CPU each.
    #[arg(long)]
    pub poll_always: bool,

    /// Owner of the sockets: a name or a number. Without it, whoever runs the daemon.
    #[arg(long, value_name = "USER", help_heading = "Sockets")]
    pub socket_owner: Option<String>,

    /// Group of the sockets: a name or a number.
    #[arg(long, value_name = "GROUP", help_heading = "Sockets")]
    pub socket_group: Option<String>,

    /// Mode of the sockets in octal [default: 0600].
    #[arg(long, value_name = "MODE", value_parser = values::mode, help_heading = "Sockets")]
    pub socket_mode: Option<u32>,

    /// Keep capabilities and leave seccomp and Landlock off, to debug.
    #[arg(long)]
    pub no_sandbox: bool,

    /// Log messages from this level on, to standard error.
    #[arg(long, value_enum, value_name = "LEVEL", default_value = "info")]
    pub log_level: LogLevel,
}

/// How much the daemon tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogLevel {
    /// What went wrong.
    Error,
    /// What looks wrong.
    Warn,
    /// Ports coming and going.
    Info,
    /// Each request.
    Debug,
    /// All there is.
    Trace,
}

/// Runs the subcommand.
///
/// # Errors
/// The daemon cannot start.
pub fn run(_args: &Args, _ctx: &Ctx) -> Result<ExitCode, CliError> {
    Err(CliError::failed("this build has no daemon", "use a build with netvale-daemon in it"))
}
