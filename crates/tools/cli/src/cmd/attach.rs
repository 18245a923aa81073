//! `netvale attach`: attaches a port to a switch.

use netvale_control::options::ConfiguredRule;
use netvale_control::options::kind::SpecKind;
use netvale_control::types::AttachParams;
use netvale_portspec::{AttachSpec, LocalSpec};

use super::filter::compile;
use crate::{CliContext, CliError, out};

pub mod help;
mod netns;
mod options;

use options::OptionFlags;

/// Attach a port to a switch.
///
/// The switch is created if it does not exist. The port stays until `netvale detach` or until the daemon ends. A number
/// that is omitted or 0 means the default.
#[derive(Debug, clap::Args)]
#[command(after_long_help = ports_and_examples(), override_usage = USAGE)]
pub struct AttachArgs {
    /// The switch, e.g. vale0; omitted with --backend.
    #[arg(value_name = "SWITCH")]
    first: String,

    /// The port to attach: see below.
    #[arg(value_name = "PORT", required_unless_present = "backend")]
    second: Option<String>,

    /// The attach options.
    #[command(flatten)]
    pub options: OptionFlags,

    /// Print the port as one JSON object.
    #[arg(long)]
    pub json: bool,
}

const USAGE: &str =
    "netvale attach [OPTIONS] <SWITCH> <PORT>\n       netvale attach [OPTIONS] --backend <NETMAP PORT> <PORT>";

/// Width of the column of port names in the help, before the descriptions.
const COLUMN: usize = 23;

const OF_ONE_KIND: &str = "Options of one kind of port: netvale attach vale0 tap:x --help\n";

const EXAMPLES: &str = "\
Examples:
  netvale attach vale0 tap:nv0
  netvale attach vale0 tap:eth0 --netns /run/netns/web --name web
  netvale attach vale0 vhost:/run/netvale/vm1.sock --rings 2
  netvale attach vale0 pcap:trace.pcapng --loop --speed 2
  netvale attach --backend netmap:eth0 ptnet:/run/netvale/vm1.sock
  netvale attach vale0 web --rings 4 --slots 512 --lossless
";

/// Lists each kind of port with its description, then the examples.
fn ports_and_examples() -> String {
    let ports: String =
        SpecKind::ALL.iter().flat_map(|kind| kind.help).map(|(port, what)| port_line(port, what)).collect();
    format!("Ports:\n{ports}\n{OF_ONE_KIND}\n{EXAMPLES}")
}

/// Formats the line of a port in the help.
fn port_line(port: &str, what: &str) -> String {
    let gap = if port.len() < COLUMN { " ".repeat(COLUMN - port.len()) } else { format!("\n  {:COLUMN$}", "") };
    format!("  {port}{gap}{what}\n")
}

/// Runs the subcommand.
///
/// # Errors
/// The port is not well-formed, no daemon answers, or the daemon refuses.
pub fn run(args: &AttachArgs, ctx: &CliContext) -> Result<(), CliError> {
    let params = params(args)?;
    let mut daemon = ctx.daemon()?;
    let port = match params.options.netns.clone() {
        None => daemon.ask(|client| client.attach(params))?,
        Some(place) => {
            let full = netns::attach(params, &place, ctx)?;
            daemon.ask(|client| client.show(&full))?
        }
    };
    if args.json {
        out::json(&port)?
    } else {
        out::line(format_args!("{} attached", port.name))?
    }
    if let Some(warning) = warning(args) {
        netvale_control::note!("netvale: {warning}");
    }
    Ok(())
}

/// Returns a warning if a port for programs was probably meant to be an interface.
fn warning(args: &AttachArgs) -> Option<String> {
    let text = args.second.as_deref()?;
    let Ok(AttachSpec::Local(LocalSpec { port, .. })) = AttachSpec::parse(text) else { return None };
    let switch = &args.first;
    has_interface(port.as_str()).then(|| {
        format!(
            "{port} is now a port for programs; to attach this host's interface {port}, use 'netvale attach {switch} \
             netmap:{port}' (AF_XDP); to make a new one, use 'netvale attach {switch} tap:NAME'"
        )
    })
}

/// Returns whether this program's network namespace has an interface `name`.
fn has_interface(name: &str) -> bool {
    let list = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    list.lines().any(|line| line.split_once(':').is_some_and(|(known, _)| known.trim() == name))
}

fn params(args: &AttachArgs) -> Result<AttachParams, CliError> {
    let mut options = args.options.0.clone();
    for rule in options.policies.sources_mut() {
        if let ConfiguredRule::Source { drops, expression } = &**rule {
            *rule = compile(*drops, expression)?.into();
        }
    }
    options.socket_user = options.socket_user.map(|user| number_of(user, "/etc/passwd"));
    options.socket_group = options.socket_group.map(|group| number_of(group, "/etc/group"));
    let (switch, port) = match &args.second {
        Some(port) => (args.first.clone(), port),
        None => (String::new(), &args.first),
    };
    let mut params = AttachParams { switch, port: port.clone(), options };
    // The daemon checks the options as well; this check finds mistakes even if no daemon runs.
    let spec = params.check().map_err(|misfit| {
        let (what, next) = misfit.of_flags();
        CliError::usage(what, next)
    })?;
    // The daemon's working directory differs from the user's.
    params.port = spec.written_in(&std::env::current_dir().unwrap_or_default());
    Ok(params)
}

/// Returns the number of a user or a group. The daemon reads the users only at its start, but this command sees users
/// added later. A name that is not in this machine's files is sent to the daemon unchanged.
fn number_of(name: String, file: &str) -> String {
    let lines = std::fs::read_to_string(file).unwrap_or_default();
    let number = lines.lines().find_map(|line| line.strip_prefix(&name)?.strip_prefix(':')?.split(':').nth(1));
    number.map(str::to_owned).unwrap_or(name)
}

#[cfg(test)]
mod tests;
