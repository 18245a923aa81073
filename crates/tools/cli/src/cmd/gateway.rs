//! `netvale gateway`: gives a switch's guests addresses, names and access to the Internet.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use netvale_control::dirs::CONTROL_SOCKET;
use netvale_gateway::dhcp::leases::StaticLease;
use netvale_gateway::guests::GuestLimits;
use netvale_gateway::link::GatewayLink;
use netvale_gateway::net::GatewayAddresses;
use netvale_gateway::options::{self, GatewayOptions, LEASE, MTU, MTUS};
use netvale_gateway::policy::{EgressPolicy, EgressRule};
use netvale_gateway::ports::PortWatch;
use netvale_gateway::publish::rule::PublishRule;
use netvale_gateway::{Gateway, GatewayError};
use netvale_wire::MacAddr;

use crate::cmd::up::LogLevel;
use crate::ctx::port_error;
use crate::{CliContext, CliError, signals};

/// Be a switch's way out: addresses, names, and the Internet for its guests, without privilege.
///
/// It opens a port of the switch, gives guests addresses (DHCP, router advertisements) and names, and carries their
/// TCP, UDP and pings over ordinary sockets of the user who runs it. Guests reach the Internet; the host itself and
/// private networks only as --allow says. It runs until it gets SIGTERM or SIGINT.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct GatewayArgs {
    /// Switch, or its port's whole name; without one, the port is called gateway.
    #[arg(value_name = "SWITCH[:PORT]")]
    port: String,

    /// The gateway's addresses with their networks: 10.0.0.1/24, fd00::1/64, or both with a comma between.
    #[arg(value_name = "ADDRESSES")]
    addresses: GatewayAddresses,

    /// Port of the host that leads to a guest, by its address or its lease's name, or the name of its private port; may
    /// be given several times. ADDRESS@PORT and @PORT are guests behind the private port called PORT.
    #[arg(long, value_name = "[ADDRESS:]PORT:GUEST:PORT[/udp]")]
    publish: Vec<PublishRule>,

    /// Each private port of the switch, and each other VLAN, is a network of its own with the same addresses: clones of
    /// a guest need not change theirs. Attach their ports with --private on.
    #[arg(long)]
    private: bool,

    /// What guests may reach beside the Internet: ADDRESS[/PREFIX][:PORT[-PORT]][/tcp|/udp|/icmp], or any; may be given
    /// several times. The most specific rule decides. 127.0.0.1:PORT is a port of the host's loopback, which guests
    /// find at the gateway's own address.
    #[arg(long, value_name = "RULE", value_parser = |text: &str| EgressRule::parse(text, true))]
    allow: Vec<EgressRule>,

    /// What guests may not reach; 'any' leaves what --allow says.
    #[arg(long, value_name = "RULE", value_parser = |text: &str| EgressRule::parse(text, false))]
    deny: Vec<EgressRule>,

    /// Guests may reach all of the host's loopback, at the gateway's own address.
    #[arg(long)]
    allow_host_loopback: bool,

    /// Write a line of JSON for each flow that is opened, refused or closed; '-' is standard output.
    #[arg(long, value_name = "FILE")]
    flows: Option<PathBuf>,

    /// Address, and name, of a station; may be given several times.
    #[arg(long, value_name = "MAC=IP[,NAME]")]
    lease: Vec<StaticLease>,

    /// Seconds for which a lease holds.
    #[arg(
        long, value_name = "SECONDS", default_value_t = LEASE.as_secs(),
        value_parser = clap::value_parser!(u64).range(120..=604_800)
    )]
    lease_time: u64,

    /// Give guests no addresses by DHCP.
    #[arg(long)]
    no_dhcp: bool,

    /// Send no router advertisements.
    #[arg(long)]
    no_ra: bool,

    /// Domain of guests' names.
    #[arg(long, value_name = "DOMAIN", default_value = "lan", value_parser = options::domain)]
    domain: String,

    /// File that names the servers which are asked for other names.
    #[arg(long, value_name = "FILE", default_value = "/etc/resolv.conf")]
    resolv_conf: PathBuf,

    /// MTU of the switch's network.
    #[arg(long, value_name = "BYTES", default_value_t = MTU, value_parser = mtu)]
    mtu: u16,

    /// The gateway's own station; made from its address, if it is not given.
    #[arg(long, value_name = "MAC")]
    mac: Option<MacAddr>,

    /// TCP connections that a guest may have.
    #[arg(
        long, value_name = "N", default_value_t = GuestLimits::default().tcp,
        value_parser = clap::value_parser!(u32).range(1..=1_000_000)
    )]
    guest_connections: u32,

    /// Log messages from this level on, to standard error.
    #[arg(long, value_enum, value_name = "LEVEL", default_value = "info")]
    log_level: LogLevel,
}

const EXAMPLES: &str = "\
Examples:
  netvale gateway vale0 10.0.0.1/24                             guests of vale0 have the Internet
  netvale gateway vale0 10.0.0.1/24,fd00::1/64 --flows -        by IPv6, too, with a line for each flow
  netvale gateway vale0 10.0.0.1/24 --publish 127.0.0.1:2222:10.0.0.5:22
  netvale gateway vale0 10.0.0.1/24 --private --publish 2207:@vm7:22
  netvale gateway vale0 10.0.0.1/24 --deny any --allow 192.0.2.7:443/tcp
  netvale gateway vale0 10.0.0.1/24 --allow 127.0.0.1:8080      10.0.0.1:8080 is the host's 127.0.0.1:8080
";

fn mtu(text: &str) -> Result<u16, String> {
    let expected = || format!("expected a number from {} to {}", MTUS.start(), MTUS.end());
    text.parse().ok().filter(|mtu| MTUS.contains(mtu)).ok_or_else(expected)
}

impl GatewayArgs {
    fn options(&self) -> GatewayOptions {
        let mut policy = EgressPolicy::default();
        self.allow.iter().chain(&self.deny).for_each(|rule| policy.add(rule.clone()));
        if self.allow_host_loopback {
            policy.allow_host();
        }
        GatewayOptions {
            mac: self.mac,
            mtu: self.mtu,
            domain: self.domain.clone(),
            dhcp: !self.no_dhcp,
            adverts: !self.no_ra,
            leases: self.lease.clone(),
            lease_time: Duration::from_secs(self.lease_time),
            resolv_conf: self.resolv_conf.clone(),
            policy,
            publish: self.publish.clone(),
            flows: self.flows.clone(),
            private: self.private,
            limits: GuestLimits { tcp: self.guest_connections, ..GuestLimits::default() },
            ..GatewayOptions::new(self.addresses)
        }
    }

    fn name(&self) -> String {
        if self.port.contains(':') { self.port.clone() } else { format!("{}:gateway", self.port) }
    }
}

/// Runs the subcommand.
///
/// # Errors
/// No daemon answers, the port is in use, or the gateway's port has ended.
pub fn run(args: &GatewayArgs, ctx: &CliContext) -> Result<ExitCode, CliError> {
    super::up::log_from(args.log_level);
    let options = args.options();
    let stray = args.lease.iter().find(|lease| !options.net().is_guests(lease.address.into()));
    if let Some(lease) = stray {
        let what = format!("--lease: {} is not an address for a guest", lease.address);
        return Err(CliError::usage(what, "choose an address of the gateway's network other than the gateway's own"));
    }
    if let Some(rule) = args.publish.iter().find(|rule| rule.behind.is_some() && !args.private) {
        let what = format!("--publish: private ports ({}) need --private", rule.behind.as_deref().unwrap_or_default());
        return Err(CliError::usage(what, "add --private, or give the guest's address or name without @"));
    }
    let name = args.name();
    let stop = signals::stop_pipe()?;
    let link = GatewayLink::open(&name, ctx.run_dir.as_deref()).map_err(|error| port_error(&name, &error))?;
    let mut gateway = Gateway::new(link, &options).map_err(|error| failed(&error))?;
    if args.private {
        be_trunk(ctx, &name)?;
        follow_ports(&mut gateway, ctx, &name)?;
    }
    tracing::info!("ready: the gateway has the port {name}");
    gateway.run(&stop).map_err(|error| failed(&error))?;
    Ok(ExitCode::SUCCESS)
}

/// Makes the gateway's port a trunk of all VLANs, unless it already is a trunk: the owner of the switch may have chosen
/// its VLANs.
fn be_trunk(ctx: &CliContext, port: &str) -> Result<(), CliError> {
    let mut daemon = ctx.daemon()?;
    if daemon.ask(|client| client.show(port))?.policies.contains_key("trunk") {
        return Ok(());
    }
    // A policy that is null gets the switch's default, unless the trunk excludes that.
    let set = serde_json::json!({"private": null, "access": null, "trunk": "all", "native": 1});
    let set = set.as_object().cloned().unwrap_or_default();
    daemon.ask(|client| client.set(port, set)).map(drop)
}

/// Lets the daemon report the switch's ports to the gateway.
fn follow_ports(gateway: &mut Gateway, ctx: &CliContext, port: &str) -> Result<(), CliError> {
    let switch = port.trim_start_matches("netmap:").split(':').next().unwrap_or_default();
    let socket = ctx.dir().join(CONTROL_SOCKET);
    let followed = PortWatch::open(&socket, switch).and_then(|watch| gateway.follow_ports(watch));
    followed.map_err(|error| {
        let what = format!("cannot follow the ports of {switch} by {}: {error}", socket.display());
        CliError::failed(what, "see whether the daemon runs: netvale doctor")
    })
}

fn failed(error: &GatewayError) -> CliError {
    CliError::failed(error.to_string(), "see `netvale gateway --help`")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: GatewayArgs,
    }

    fn parse(line: &[&str]) -> Result<GatewayArgs, clap::Error> {
        Line::try_parse_from(["gateway"].iter().chain(line)).map(|line| line.args)
    }

    /// Objective: the command line is converted to the gateway's options; if only the switch is given, the port's name
    /// is gateway.
    #[test]
    fn a_line_becomes_options() {
        let args = parse(&["vale0", "10.0.0.1/24", "--publish", "8080:web:80", "--no-ra", "--mtu", "9000"]).unwrap();
        let options = args.options();
        assert_eq!((args.name().as_str(), options.mtu, options.adverts), ("vale0:gateway", 9000, false));
        assert_eq!(options.publish.len(), 1);
        assert_eq!(parse(&["vale0:out", "10.0.0.1/24"]).unwrap().name(), "vale0:out");
    }

    /// Objective: invalid values are refused when the command line is parsed.
    #[test]
    fn values_that_cannot_be_are_refused() {
        for line in [
            &["vale0"][..],
            &["vale0", "10.0.0.1"],
            &["vale0", "10.0.0.1/24", "--mtu", "1279"],
            &["vale0", "10.0.0.1/24", "--allow", "x"],
            &["vale0", "10.0.0.1/24", "--publish", "22"],
            &["vale0", "10.0.0.1/24", "--private", "--publish", "22:@:22"],
            &["vale0", "10.0.0.1/24", "--lease", "x=y"],
            &["vale0", "10.0.0.1/24", "--domain", "a..b"],
        ] {
            assert!(parse(line).is_err(), "{line:?}");
        }
    }
}
