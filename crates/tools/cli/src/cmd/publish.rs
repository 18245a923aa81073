//! `netvale publish`: the published ports of a running gateway.

use netvale_gateway::control::message::ControlRequest;

use super::egress::told;
use crate::gateways::GatewayChoice;
use crate::{CliContext, CliError, out};

/// List, add and remove published ports of a running gateway.
///
/// A published port is a port of the host that leads to a guest. A change does not outlive the gateway. Open
/// connections go on when their port is removed.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct PublishArgs {
    #[command(flatten)]
    gateway: GatewayChoice,

    /// Port of the host and port of a guest: [ADDRESS:]PORT:GUEST:PORT[/udp]. Without it, the published ports are
    /// listed.
    #[arg(value_name = "RULE")]
    rule: Option<String>,

    /// Remove the port; its side at the host suffices: [ADDRESS:]PORT[/udp].
    #[arg(long, requires = "rule")]
    remove: bool,

    /// Print the gateway's answer as one JSON object.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  netvale publish vale0                               lists the published ports
  netvale publish vale0 127.0.0.1:2222:vm1:22         the host's port 2222 is vm1's port 22
  netvale publish vale0 2222 --remove
";

/// Runs the subcommand.
///
/// # Errors
/// No gateway answers, or the gateway refuses the port.
pub fn run(args: &PublishArgs, ctx: &CliContext) -> Result<(), CliError> {
    let request = match args.rule.clone() {
        None => ControlRequest::Published,
        Some(rule) if args.remove => ControlRequest::Unpublish { rule },
        Some(rule) => ControlRequest::Publish { rule },
    };
    let answer = args.gateway.connect(ctx)?.ask(&request)?;
    if args.json { out::json(&answer) } else { out::text(told(&answer, "published")) }
}
