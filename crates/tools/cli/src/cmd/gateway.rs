//! `netvale gateway`: gives a switch's guests addresses, names and access to the Internet.

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use netvale_confine::SandboxError;
use netvale_gateway::confine;
use netvale_gateway::dhcp::leases::StaticLease;
use netvale_gateway::guests::GuestLimits;
use netvale_gateway::link::GatewayLink;
use netvale_gateway::link::tap::GuestTap;
use netvale_gateway::net::GatewayAddresses;
use netvale_gateway::options::{self, GatewayOptions, LEASE, MTU, MTUS};
use netvale_gateway::policy::{EgressPolicy, EgressRule};
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

    /// Port of the host that leads to a guest, by its address or its lease's name; may be given several times.
    #[arg(long, value_name = "[ADDRESS:]PORT:GUEST:PORT[/udp]")]
    publish: Vec<PublishRule>,

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

    /// Do not confine the gateway by seccomp and Landlock, for debugging.
    #[arg(long)]
    no_sandbox: bool,

    /// Standard input is a socket that brings the TAP of a single guest, in place of a port of the switch.
    #[arg(long, hide = true)]
    tap: bool,

    /// Log messages from this level on, to standard error.
    #[arg(long, value_enum, value_name = "LEVEL", default_value = "info")]
    log_level: LogLevel,
}

const EXAMPLES: &str = "\
Examples:
  netvale gateway vale0 10.0.0.1/24                             guests of vale0 have the Internet
  netvale gateway vale0 10.0.0.1/24,fd00::1/64 --flows -        by IPv6, too, with a line for each flow
  netvale gateway vale0 10.0.0.1/24 --publish 127.0.0.1:2222:10.0.0.5:22
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
    let name = args.name();
    let stop = signals::stop_pipe()?;
    let link = if args.tap { tap_link()? } else { port_link(&name, ctx)? };
    let mut gateway = Gateway::new(link, &options).map_err(|error| failed(&error))?;
    if !args.no_sandbox {
        confine::enter(&options.resolv_conf, None).map_err(|error| not_confined(&error))?;
    }
    gateway.tell_ready();
    tracing::info!("ready: the gateway has the port {name}");
    gateway.run(&stop).map_err(|error| failed(&error))?;
    Ok(ExitCode::SUCCESS)
}

fn port_link(name: &str, ctx: &CliContext) -> Result<GatewayLink, CliError> {
    GatewayLink::open(name, ctx.run_dir.as_deref()).map_err(|error| port_error(name, &error))
}

/// Returns the link to the guest whose owner has started this process. A signal from the terminal is for that guest:
/// this process gets a session of its own.
fn tap_link() -> Result<GatewayLink, CliError> {
    let next = "`netvale sandbox` starts a gateway in this way";
    // Fails only if this process leads a group already.
    let _ = rustix::process::setsid();
    let owner = std::io::stdin().as_fd().try_clone_to_owned();
    let owner = owner.map_err(|error| CliError::failed(format!("cannot use standard input: {error}"), next))?;
    let tap = GuestTap::receive_from(owner).map_err(|error| CliError::failed(error.to_string(), next))?;
    Ok(GatewayLink::of_tap(tap))
}

fn not_confined(error: &SandboxError) -> CliError {
    let what = format!("cannot confine the gateway: {error}");
    CliError::failed(what, "--no-sandbox starts it without seccomp and Landlock")
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
            &["vale0", "10.0.0.1/24", "--lease", "x=y"],
            &["vale0", "10.0.0.1/24", "--domain", "a..b"],
        ] {
            assert!(parse(line).is_err(), "{line:?}");
        }
    }
}
