//! `netvale sandbox`: runs a command whose only network is a gateway.
//!
//! | process | work |
//! |---|---|
//! | this one | starts the gateway and `inside`, forwards signals, returns the command's exit code |
//! | the gateway, a child of this one | `netvale gateway`, in the host's network, confined |
//! | `inside`, a child of this one | first process in the namespaces: sets them up, starts the command, ends with it |
//! | the command | |
//!
//! If this process ends, the kernel kills `inside`, and with `inside` all processes of its PID namespace. The gateway
//! ends when its connection to `inside` closes, and `inside` ends when the gateway ends.

mod inside;
pub(crate) mod member;
mod names;
pub(crate) mod network;
pub(crate) mod obstacle;
mod outside;
mod rules;
pub(crate) mod sys;
mod terminal;
mod watch;

use std::ffi::OsString;
use std::io;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;

use netvale_gateway::net::GatewayAddresses;
use rustix::process::{Pid, Signal, WaitStatus};

use crate::cmd::up::LogLevel;
use crate::{CliContext, CliError};
use inside::SandboxInside;
use network::SandboxNet;
use outside::SandboxOutside;
use terminal::TerminalGroup;

/// The gateway's addresses: in an IPv4 network that is used only within a machine (RFC 7335), and in a local IPv6
/// network (RFC 4193).
const ADDRESSES: &str = "192.0.0.1/29,fd6e:7661:6c65::1/64";
/// The signals that this process and `inside` receive.
const SIGNALS: &[libc::c_int] =
    &[libc::SIGCHLD, libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGUSR1, libc::SIGUSR2];
const NAMESPACES: libc::c_int = libc::CLONE_NEWUSER | libc::CLONE_NEWNET | libc::CLONE_NEWNS | libc::CLONE_NEWPID;
/// If a signal has killed the command, the exit code is, as in shells, this number plus the signal's number.
const BY_SIGNAL: i32 = 128;

/// What to do about a failed step.
const NEXT: &str = "`netvale doctor` names what this machine's kernel lacks";

/// Run a command whose only network is a gateway with rules.
///
/// The command and its children are in a network of their own. They reach what --allow says, and names through the
/// gateway's name server; all else is refused. No privilege and no daemon is needed. Files, user and terminal are the
/// caller's. The exit code is the command's, or 128 plus the number of the signal that ended it. If the gateway ends,
/// the command is stopped.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct SandboxArgs {
    /// What the command may reach: a rule of `netvale gateway`, or 'any' for the Internet; may be given several times.
    #[arg(long, value_name = "RULE", value_parser = |text: &str| rules::checked(text, true))]
    allow: Vec<String>,

    /// What the command may not reach: a rule of `netvale gateway`; may be given several times.
    #[arg(long, value_name = "RULE", value_parser = |text: &str| rules::checked(text, false))]
    deny: Vec<String>,

    /// The command may reach all of the host's loopback, at the gateway's own address (gateway.lan).
    #[arg(long)]
    allow_host_loopback: bool,

    /// Port of the host that leads to a port of the command; may be given several times.
    #[arg(long, value_name = "[ADDRESS:]PORT:PORT[/udp]", value_parser = rules::published)]
    publish: Vec<String>,

    /// Append a line of JSON to FILE for each flow that is opened, refused or closed; '-' is standard output.
    #[arg(long, value_name = "FILE")]
    flows: Option<PathBuf>,

    /// Print a line on standard error for each flow that is opened or refused.
    #[arg(long)]
    watch: bool,

    /// The gateway's addresses, if the command needs to reach these networks.
    #[arg(long, value_name = "ADDRESSES", default_value = ADDRESSES)]
    addresses: GatewayAddresses,

    /// File that names the servers which the gateway asks for names.
    #[arg(long, value_name = "FILE", default_value = "/etc/resolv.conf")]
    resolv_conf: PathBuf,

    /// Log the gateway's messages from this level on, to standard error.
    #[arg(long, value_enum, value_name = "LEVEL", default_value = "warn")]
    log_level: LogLevel,

    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  netvale sandbox -- make test                                    no network at all
  netvale sandbox --allow any -- curl https://example.com         the Internet, but no private networks
  netvale sandbox --allow 192.0.2.7:443/tcp --watch -- ./agent    one server, and a line for each flow
  netvale sandbox --allow 127.0.0.1:5432 -- psql -h gateway.lan   a port of the host's loopback
  netvale sandbox --publish 8080:80 -- httpd -f -p 80             http://127.0.0.1:8080/ is the command's server
";

/// Runs the subcommand.
///
/// # Errors
/// A namespace or the interface cannot be created, the gateway cannot be started, or the gateway ends before the
/// command.
pub fn run(args: &SandboxArgs, _: &CliContext) -> Result<ExitCode, CliError> {
    let net = SandboxNet::of(args.addresses);
    let terminal = TerminalGroup::of_this_process();
    let pair = || UnixStream::pair().map_err(failed("connecting the processes"));
    let (of_inside, of_gateway) = pair()?;
    let (of_parent, to_parent) = pair()?;
    let (gateway, lines) = outside::start_gateway(args, &net, of_gateway)?;
    // From here on, this process and `inside` block these signals and read them from a queue. The gateway has already
    // started, so its signals are not blocked.
    let mask = sys::block(&[SIGNALS, &[libc::SIGTTOU]].concat()).map_err(failed("blocking signals"))?;
    match sys::clone_into(NAMESPACES).map_err(|why| no_namespaces(&why))? {
        None => {
            drop((of_parent, gateway, lines));
            let inside = SandboxInside { command: &args.command, net, parent: to_parent, gateway: of_inside, mask };
            inside.run().map(ExitCode::from)
        }
        Some(inside) => {
            drop((to_parent, of_inside));
            let begun = begin(inside, of_parent);
            let outside = SandboxOutside::new(args, inside, gateway, lines);
            let code = begun.and(outside).and_then(SandboxOutside::wait);
            terminal.restore();
            code
        }
    }
}

/// Maps the user and group IDs of the new user namespace, and lets its first process continue. Kills that process if
/// the IDs cannot be mapped.
fn begin(inside: Pid, mut channel: UnixStream) -> Result<(), CliError> {
    map_ids(inside).map_err(|why| {
        let _ = rustix::process::kill_process(inside, Signal::KILL);
        not_permitted(&format!("cannot map users of a user namespace: {why}"))
    })?;
    // The write fails only if the process has ended; in this case, the caller gets the exit code of that process.
    let _ = channel.write_all(b"m");
    Ok(())
}

/// Maps this user and group to themselves. For a privileged user, maps all users and groups to themselves.
fn map_ids(inside: Pid) -> io::Result<()> {
    let at = |name: &str| format!("/proc/{}/{name}", inside.as_raw_pid());
    let all = |name: &str| -> io::Result<()> {
        let own = std::fs::read_to_string(format!("/proc/self/{name}"))?;
        std::fs::write(at(name), identity(&own))
    };
    let one = |name: &str, id: u32| std::fs::write(at(name), format!("{id} {id} 1\n"));
    if all("gid_map").is_err() {
        std::fs::write(at("setgroups"), "deny")?;
        one("gid_map", rustix::process::getegid().as_raw())?;
    }
    all("uid_map").or_else(|_| one("uid_map", rustix::process::geteuid().as_raw()))
}

/// Returns the ID map for a child of this process's user namespace, whose own map is `own`. Each ID of this namespace
/// is mapped to itself.
fn identity(own: &str) -> String {
    let line = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        let [first, _, count] = words[..] else { return None };
        Some(format!("{first} {first} {count}\n"))
    };
    own.lines().filter_map(line).collect()
}

/// Returns the exit code that shells use for a process that has ended with `status`.
fn exit_code(status: WaitStatus) -> u8 {
    let code = status.exit_status().or_else(|| status.terminating_signal().map(|signal| BY_SIGNAL + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// Returns the error of a step that fails only for lack of resources, or on an unusual kernel.
fn failed<E: std::fmt::Display>(step: &str) -> impl Fn(E) -> CliError {
    move |why| CliError::failed(format!("cannot start the sandbox: {step}: {why}"), NEXT)
}

fn no_namespaces(why: &io::Error) -> CliError {
    not_permitted(&format!("cannot make a user namespace: {why}"))
}

/// Returns the error for an operation that user namespaces permit, but this kernel has refused.
fn not_permitted(what: &str) -> CliError {
    let obstacle = obstacle::of_refusal();
    CliError::failed(format!("{what}: {}", obstacle.why), obstacle.remedy)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: SandboxArgs,
    }

    pub(super) fn parse(line: &[&str]) -> Result<SandboxArgs, clap::Error> {
        Line::try_parse_from(["sandbox"].iter().chain(line)).map(|line| line.args)
    }

    /// Objective: invalid rules are refused when the command line is parsed, before anything is started.
    #[test]
    fn rules_that_cannot_be_are_refused() {
        for line in [
            &["--allow", "1.2.3.4/33", "--", "true"][..],
            &["--deny", "any:0", "--", "true"],
            &["--publish", "80", "--", "true"],
            &["--addresses", "10.0.0.0/24", "--", "true"],
            &["--"],
            &[],
        ] {
            assert!(parse(line).is_err(), "{line:?}");
        }
        let args = parse(&["--allow", "any", "--", "sh", "-c", "--deny"]).unwrap();
        assert_eq!(args.command, ["sh", "-c", "--deny"]);
    }

    #[test]
    fn all_ids_of_the_caller_stay_the_same() {
        assert_eq!(identity("         0          0 4294967295\n"), "0 0 4294967295\n");
        assert_eq!(identity("0 1000 1\n1 100000 65536\n"), "0 0 1\n1 1 65536\n");
    }
}
