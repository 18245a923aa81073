//! `netvale gateway`: gives a switch's guests addresses, names and access to the Internet.

use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

use netvale_control::dirs::CONTROL_SOCKET;
use netvale_gateway::confine;
use netvale_gateway::dhcp::leases::StaticLease;
use netvale_gateway::dhcp6::Dhcp6Mode;
use netvale_gateway::guests::GuestLimits;
use netvale_gateway::link::GatewayLink;
use netvale_gateway::link::tap::GuestTap;
use netvale_gateway::net::GatewayAddresses;
use netvale_gateway::options::{self, GatewayOptions, LEASE, MTU, MTUS};
use netvale_gateway::policy::{EgressPolicy, EgressRule};
use netvale_gateway::ports::PortWatch;
use netvale_gateway::publish::rule::PublishRule;
use netvale_gateway::rates::rule::{LimitRule, LimitRules};
use netvale_gateway::served::ServedPort;
use netvale_gateway::{Gateway, GatewayError};
use netvale_wire::MacAddr;

use crate::cmd::up::LogLevel;
use crate::ctx::port_error;
use crate::gateways::{self, port_name};
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

    /// What guests may reach beside the Internet: ADDRESS[/PREFIX], NAME, *.NAME or any, then
    /// [:PORT[-PORT]][/tcp|/udp|/icmp]; may be given several times. The most specific rule decides. 127.0.0.1:PORT is a
    /// port of the host's loopback, which guests find at the gateway's own address. A name stands for the addresses
    /// that the guest has got for it from the gateway.
    #[arg(long, value_name = "RULE", value_parser = |text: &str| EgressRule::parse(text, true))]
    allow: Vec<EgressRule>,

    /// What guests may not reach; 'any' leaves what --allow says, and only names that --allow matches are resolved.
    #[arg(long, value_name = "RULE", value_parser = |text: &str| EgressRule::parse(text, false))]
    deny: Vec<EgressRule>,

    /// Guests may reach all of the host's loopback, at the gateway's own address.
    #[arg(long)]
    allow_host_loopback: bool,

    /// Write a line of JSON for each flow that is opened, refused or closed; '-' is standard output.
    #[arg(long, value_name = "FILE")]
    flows: Option<PathBuf>,

    /// Path of the control socket, by which `netvale egress`, `publish` and `flows` reach the gateway; without it,
    /// gateway-SWITCH:PORT.sock in the daemon's run directory.
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,

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

    /// What guests get by DHCPv6: nothing (off), name server and domains (settings), or addresses, too, which they then
    /// do not make themselves (addresses).
    #[arg(long, value_name = "off|settings|addresses", default_value = "settings")]
    dhcpv6: Dhcp6Mode,

    /// Send no router advertisements.
    #[arg(long)]
    no_ra: bool,

    /// Domain of guests' names.
    #[arg(long, value_name = "DOMAIN", default_value = "lan", value_parser = options::domain)]
    domain: String,

    /// A further domain in which guests look for short names; may be given several times.
    #[arg(long, value_name = "DOMAIN", value_parser = options::domain)]
    search: Vec<String>,

    /// A further address of the gateway, which alone leads to the host's loopback; the gateway's own then does not.
    #[arg(long, value_name = "ADDRESS")]
    host_address: Option<Ipv4Addr>,

    /// TCP port of the gateway's own address that leads to a UNIX socket of the host, where a program that speaks the
    /// PROXY protocol listens; may be given several times.
    #[arg(long, value_name = "PORT=/PATH")]
    serve: Vec<ServedPort>,

    /// UNIX socket by which programs of this user connect to guests: they send a line ADDRESS:PORT first.
    #[arg(long, value_name = "PATH")]
    dial: Option<PathBuf>,

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

    /// Limit of each guest, or of the one with this MAC or behind this private port: [MAC|@PORT] [sent RATE] [received
    /// RATE] [new N/s] [open N]. Rates of bytes that the guest sends and receives in tc's units (10mbit), new
    /// flows per second, simultaneous TCP connections; may be given several times.
    #[arg(long, value_name = "LIMIT")]
    limit: Vec<LimitRule>,

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
  netvale gateway vale0 10.0.0.1/24 --private --publish 2207:@vm7:22
  netvale gateway vale0 10.0.0.1/24 --limit 'sent 10mbit received 50mbit' --limit '02:00:00:00:00:05 open 100'
  netvale gateway vale0 10.0.0.1/24 --deny any --allow 192.0.2.7:443/tcp
  netvale gateway vale0 10.0.0.1/24 --deny any --allow example.com:443 --allow '*.example.org'
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
        let mut rates = LimitRules::default();
        self.limit.iter().for_each(|rule| rates.add(rule.clone()));
        GatewayOptions {
            rates,
            mac: self.mac,
            mtu: self.mtu,
            domain: self.domain.clone(),
            search: self.search.clone(),
            host: self.host_address,
            served: self.serve.clone(),
            dial: self.dial.clone(),
            dhcp: !self.no_dhcp,
            dhcp6: self.dhcpv6,
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
}

/// Runs the subcommand.
///
/// # Errors
/// No daemon answers, the port is in use, or the gateway's port has ended.
pub fn run(args: &GatewayArgs, ctx: &CliContext) -> Result<(), CliError> {
    super::up::log_from(args.log_level);
    let mut options = args.options();
    if let Some(lease) = args.lease.iter().find(|lease| !options.net().is_guests(lease.address.into())) {
        let what = format!("--lease: {} is not an address for a guest", lease.address);
        return Err(CliError::usage(what, "choose an address of the gateway's network other than the gateway's own"));
    }
    if let Some(host) = options.host.filter(|host| !is_spare(*host, &options)) {
        let what = format!("--host-address: {host} is not a free address of the gateway's network");
        return Err(CliError::usage(what, "choose one other than the gateway's own and those of --lease"));
    }
    if let Some(rule) = args.publish.iter().find(|rule| rule.behind.is_some() && !args.private) {
        let what = format!("--publish: private ports ({}) need --private", rule.behind.as_deref().unwrap_or_default());
        return Err(CliError::usage(what, "add --private, or give the guest's address or name without @"));
    }
    let name = port_name(&args.port);
    let stop = signals::stop_pipe()?;
    options.control.clone_from(&args.control);
    // With `--tap`, there is no control socket by default: the guest is a sandbox's command, which runs as this user
    // and could open a control socket whose path it can guess.
    if options.control.is_none() && !args.tap {
        options.control = Some(gateways::new_path(ctx, &name)?);
    }
    let port = || GatewayLink::open(&name, ctx.run_dir.as_deref()).map_err(|error| port_error(&name, &error));
    let link = if args.tap { tap_link()? } else { port()? };
    let mut gateway = Gateway::new(link, &options).map_err(|error| failed(&error))?;
    if args.private {
        be_trunk(ctx, &name)?;
        follow_ports(&mut gateway, ctx, &name)?;
    }
    if !args.no_sandbox {
        let next = "--no-sandbox starts it without seccomp and Landlock";
        confine::enter(&options)
            .map_err(|error| CliError::failed(format!("cannot confine the gateway: {error}"), next))?;
    }
    gateway.tell_ready();
    tracing::info!("ready: the gateway has the port {name}");
    gateway.run(&stop).map_err(|error| failed(&error))
}

/// Returns whether `address` is an unused host address of the gateway's network: neither the gateway's own address nor
/// the address of a lease.
fn is_spare(address: Ipv4Addr, options: &GatewayOptions) -> bool {
    let own = options.addresses.v4;
    let in_network = own.is_some_and(|own| own.is_host(address) && own.address != address);
    in_network && options.leases.iter().all(|lease| lease.address != address)
}

/// Returns the link to a single guest, whose TAP arrives over standard input. This process gets its own session, so
/// that Ctrl-C on the terminal reaches only the guest.
fn tap_link() -> Result<GatewayLink, CliError> {
    let next = "`netvale sandbox` starts a gateway in this way";
    // The call fails only if this process already leads a process group.
    let _ = rustix::process::setsid();
    let owner = std::io::stdin().as_fd().try_clone_to_owned();
    let owner = owner.map_err(|error| CliError::failed(format!("cannot use standard input: {error}"), next))?;
    let tap = GuestTap::receive_from(owner).map_err(|error| CliError::failed(error.to_string(), next))?;
    Ok(GatewayLink::of_tap(tap))
}

/// Makes the gateway's port a trunk of all VLANs. If the port already is a trunk, the port stays unchanged, since the
/// owner of the switch may have chosen its VLANs.
fn be_trunk(ctx: &CliContext, port: &str) -> Result<(), CliError> {
    let mut daemon = ctx.daemon()?;
    if daemon.ask(|client| client.show(port))?.policies.contains_key("trunk") {
        return Ok(());
    }
    // `null` resets a policy to the switch's default, but a default that conflicts with a trunk does not apply.
    let set = serde_json::json!({"private": null, "access": null, "trunk": "all", "native": 1});
    let set = set.as_object().cloned().unwrap_or_default();
    daemon.ask(|client| client.set(port, set)).map(drop)
}

/// Makes the gateway follow the switch's ports, which the daemon reports.
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

    /// Objective: the command line is converted to the gateway's options.
    #[test]
    fn a_line_becomes_options() {
        let args = parse(&[
            "vale0",
            "10.0.0.1/24",
            "--publish",
            "8080:web:80",
            "--no-ra",
            "--mtu",
            "9000",
            "--limit",
            "sent 1mbit",
        ])
        .unwrap();
        let options = args.options();
        assert_eq!(options.rates.len(), 1);
        assert_eq!((options.mtu, options.adverts, options.publish.len()), (9000, false, 1));
    }

    #[test]
    fn an_address_for_the_host_is_nobodys() {
        let options = parse(&["vale0", "10.0.0.1/24", "--lease", "02:00:00:00:00:05=10.0.0.5"]).unwrap().options();
        let is_spare = |text: &str| is_spare(text.parse().unwrap(), &options);
        assert!(is_spare("10.0.0.254"));
        for taken in ["10.0.0.1", "10.0.0.5", "10.0.0.255", "10.0.1.1"] {
            assert!(!is_spare(taken), "{taken}");
        }
    }

    /// Objective: invalid values are refused when the command line is parsed.
    #[test]
    fn values_that_cannot_be_are_refused() {
        for line in [
            &["vale0"][..],
            &["vale0", "10.0.0.1"],
            &["vale0", "10.0.0.1/24", "--mtu", "1279"],
            &["vale0", "10.0.0.1/24", "--allow", "x"],
            &["vale0", "10.0.0.1/24", "--deny", "*"],
            &["vale0", "10.0.0.1/24", "--publish", "22"],
            &["vale0", "10.0.0.1/24", "--private", "--publish", "22:@:22"],
            &["vale0", "10.0.0.1/24", "--lease", "x=y"],
            &["vale0", "10.0.0.1/24", "--limit", "sent"],
            &["vale0", "10.0.0.1/24", "--dhcpv6", "on"],
            &["vale0", "10.0.0.1/24", "--domain", "a..b"],
            &["vale0", "10.0.0.1/24", "--serve", "80"],
            &["vale0", "10.0.0.1/24", "--host-address", "fd00::1"],
        ] {
            assert!(parse(line).is_err(), "{line:?}");
        }
    }
}
