//! `netvale lab`: switches, their gateways and their members from one file.
//!
//! | process | work |
//! |---|---|
//! | this one | starts and ends the other processes |
//! | the daemon, and each gateway | as `netvale up` and `netvale gateway`, in the host's network |
//! | a member in namespaces | as `netvale sandbox`, with an interface that is a port of the switch |
//! | a member with a socket | the user's program, such as QEMU |

mod file;
mod folder;
mod plan;
mod running;
mod status;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use crate::{CliContext, CliError};
use folder::LabFolder;

/// Start virtual machines and network namespaces on switches with gateways, from one file, without privilege.
#[derive(Debug, clap::Args)]
pub struct LabArgs {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Debug, clap::Subcommand)]
enum LabCommand {
    /// Start a lab: its daemon, gateways and members. It runs until Ctrl-C or `netvale lab down`, and leaves nothing.
    #[command(after_long_help = EXAMPLE)]
    Up {
        /// The lab: a configuration file of `netvale up` with the further sections [[gateway]] and [[member]].
        #[arg(value_name = "FILE.toml")]
        file: PathBuf,
    },
    /// End the lab that runs.
    Down,
    /// Show the lab's members and published ports.
    Status {
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Run a command in a member's namespaces; its exit code is the command's.
    Exec {
        /// The member's name.
        #[arg(value_name = "NAME")]
        name: String,

        /// The command and its arguments.
        #[arg(last = true, required = true, value_name = "COMMAND")]
        command: Vec<OsString>,
    },
}

const EXAMPLE: &str = "\
Example:
  [[gateway]]
  switch = 'vale0'
  addresses = '10.0.0.1/24'
  options = ['--deny', 'any', '--publish', '8080:web:80']

  [[member]]                     # a network namespace
  name = 'web'
  switch = 'vale0'
  command = ['python3', '-m', 'http.server', '80']

  [[member]]                     # a virtual machine
  name = 'vm1'
  switch = 'vale0'
  socket = 'stream'              # or 'vhost', 'vde'
  command = ['qemu-system-x86_64', '-hda', 'vm1.qcow2', '-device', 'virtio-net-pci,netdev=n0,mac={mac}',
             '-netdev', 'stream,id=n0,server=off,addr.type=unix,addr.path={socket}']
";

/// Runs the subcommand.
///
/// # Errors
/// The file has a mistake, a part of the lab cannot start, or no lab runs.
pub fn run(args: &LabArgs, ctx: &CliContext) -> Result<(), CliError> {
    let folder = LabFolder::of(ctx);
    match &args.command {
        LabCommand::Up { file } => running::up(file, &folder),
        LabCommand::Down => folder.end_lab(),
        LabCommand::Status { json } => status::print(&folder.dir, &folder.state()?, *json),
        LabCommand::Exec { name, command } => exec(&folder, name, command),
    }
}

/// Replaces this process with the command, in the member's namespaces. Returns only if that fails.
fn exec(folder: &LabFolder, name: &str, command: &[OsString]) -> Result<(), CliError> {
    let state = folder.state()?;
    let Some(member) = state.members.iter().find(|member| member.name == name) else {
        let what = format!("the lab has no member {name:?}");
        return Err(CliError::usage(what, "`netvale lab status` lists the members"));
    };
    if member.socket.is_some() {
        let what = format!("{name} is a program at a socket: expected a member in namespaces");
        return Err(CliError::usage(what, "use the machine's console, or a published port"));
    }
    if !member.runs() {
        let what = format!("{name} has ended");
        return Err(CliError::failed(what, format!("its output is in {}", member.log.display())));
    }
    let mut enter = Command::new("nsenter");
    enter.args(["--target", &member.pid.to_string(), "--user", "--preserve-credentials", "--mount", "--net", "--pid"]);
    enter.arg(format!("--wdns={}", std::env::current_dir().unwrap_or_default().display()));
    let why = enter.arg("--").args(command).exec();
    Err(CliError::failed(format!("cannot start nsenter(1): {why}"), "install util-linux 2.38 or newer"))
}
