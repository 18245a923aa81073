//! `netvale run`: runs unmodified netmap and libpcap programs.

mod libraries;
mod program;

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use netvale_control::client::Client;
use netvale_control::dirs::{self, ATTACH_SOCKET, RUN_DIR_VARIABLE};

use crate::{CliContext, CliError};
use libraries::Libraries;

/// Run an unmodified netmap or libpcap program on netvale's ports.
///
/// /dev/netmap, ioctl, mmap, poll, select and epoll work as with netmap's kernel module. libpcap opens vale0:x,
/// netmap:p{1 and vale0:x/z as interfaces besides the system's; nv:vale0 is a new port on vale0, for programs that
/// accept only names from their own list. Child processes inherit all this. The guide (unmodified-programs.md, in
/// /usr/share/doc/netvale/guide) has a table of tested programs.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct RunArgs {
    /// Run a shell instead of a program: all programs started in it can use netvale's ports.
    #[arg(long, conflicts_with = "command")]
    pub shell: bool,

    /// Print on standard error why the daemon refused a request.
    #[arg(short, long)]
    pub verbose: bool,

    /// Folder of the libraries; default: where this command was installed or built.
    #[arg(long, value_name = "DIR")]
    pub lib_dir: Option<PathBuf>,

    /// The program and its arguments.
    #[arg(last = true, value_name = "CMD", required_unless_present = "shell")]
    pub command: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  netvale run -- tcpdump -ni vale0:a
  netvale run -- ./pkt-gen -i vale0:a -f tx
  netvale run --shell
";

/// Runs the subcommand. Returns only if the program cannot be started.
///
/// # Errors
/// The libraries or the program are missing, or the program cannot load the libraries.
pub fn run(args: &RunArgs, ctx: &CliContext) -> Result<ExitCode, CliError> {
    let libraries = Libraries::find(args.lib_dir.as_deref())?;
    let shell = [std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into())];
    let line = if args.shell { &shell[..] } else { &args.command };
    let [name, rest @ ..] = line else {
        return Err(CliError::usage("no program given", "netvale run -- PROGRAM ARGUMENTS"));
    };
    // Shells return this exit code if the program does not exist.
    const NOT_FOUND: u8 = 127;
    let path = match program::find(name) {
        Ok(path) => path,
        Err(error) => {
            netvale_control::note!("netvale: {error}\n  {}", error.next());
            return Ok(ExitCode::from(NOT_FOUND));
        }
    };
    program::check(&path)?;
    // A container may have only the daemon's attach socket, not its control socket.
    let dir = ctx.run_dir.clone().unwrap_or_else(|| dirs::daemon_run_dir(ATTACH_SOCKET));
    let dir = std::path::absolute(&dir).unwrap_or(dir);
    if let Some(why) = Client::obstacle(&dir, ATTACH_SOCKET) {
        netvale_control::note!("netvale: {}: ports cannot be opened yet\n  {}", why.what(), why.hint());
    }
    let mut command = Command::new(&path);
    command.args(rest).env(RUN_DIR_VARIABLE, dir).env("LD_PRELOAD", joined(libraries.netmap.as_os_str(), "LD_PRELOAD"));
    if let Some(pcap) = &libraries.pcap {
        command.env("LD_LIBRARY_PATH", joined(pcap.as_os_str(), "LD_LIBRARY_PATH"));
    }
    if args.verbose {
        command.env("NETVALE_VERBOSE", "1");
    }
    let error = command.arg0(name).exec();
    Err(CliError::failed(format!("cannot run {}: {error}", path.display()), "check its name and permissions"))
}

/// Returns `ours`, followed by the value of the environment variable `variable` if it is set; `ours` and the value are
/// lists of paths.
fn joined(ours: &OsStr, variable: &str) -> OsString {
    let mut all = ours.to_owned();
    if let Some(theirs) = std::env::var_os(variable).filter(|v| !v.is_empty()) {
        all.push(":");
        all.push(theirs);
    }
    all
}
