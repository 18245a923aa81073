//! The settings of a network: the command line and the file of `--config` together, with gvproxy's defaults and checks.

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use netvale_gateway::net::{GatewayAddresses, InterfaceAddress};
use netvale_gateway::options::{self, MTUS};
use netvale_wire::MacAddr;

use super::config::{self, GvConfig, InterfacesConfig, SshForward, StackConfig};
use super::endpoint::GvEndpoint;
use super::kinds;
use super::log::{self, GvLogLevel};
use super::options::GvOptions;
use super::zones::GvZone;
use super::{GvFailure, RELEASE};

/// The guest's address and port for SSH in the default network.
pub(super) const SSH_PLACE: &str = "192.168.127.2:22";
/// The guest's Ethernet address in the default network.
const GUEST_MAC: &str = "5a:94:ef:e4:0c:ee";
const GUEST: &str = "192.168.127.2";
const GATEWAY_MAC: &str = "5a:94:ef:e4:0c:dd";
const SUBNET: &str = "192.168.127.0/24";
const MTU: i64 = 1500;
/// Default of `-ssh-port`.
const SSH_PORT: i64 = 2222;

/// How frames are framed on a connection that a client opened through `/connect`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectFraming {
    /// Hyperkit's framing: a length of two bytes, low byte first.
    Hyperkit,
    /// QEMU's framing: a length of four bytes, high byte first.
    Qemu,
    /// No framing, so `/connect` is not available: the guests' socket is not a stream, but carries messages.
    Messages,
}

/// A port that is exposed from the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StartingPort {
    pub protocol: &'static str,
    pub local: String,
    pub remote: String,
}

/// The settings of a network.
#[derive(Clone, Debug)]
pub(super) struct GvSettings {
    pub listen: Vec<GvEndpoint>,
    pub services: Option<GvEndpoint>,
    pub guests: Vec<GuestInterface>,
    pub has_stdio: bool,
    pub framing: ConnectFraming,
    pub net: NetSettings,
    pub zones: Vec<GvZone>,
    pub ports: Vec<StartingPort>,
    pub tunnels: Vec<SshForward>,
    pub notification: Option<PathBuf>,
    pub pid_file: Option<PathBuf>,
}

/// A socket for guests, at which the switch listens.
#[derive(Clone, Debug)]
pub(super) struct GuestInterface {
    /// The key in the file of `--config`: `qemu`, `bess` or `vfkit`.
    pub name: &'static str,
    pub endpoint: GvEndpoint,
}

/// The settings of the gateway.
#[derive(Clone, Debug)]
pub(super) struct NetSettings {
    pub mtu: u16,
    pub gateway: InterfaceAddress<Ipv4Addr>,
    pub mac: MacAddr,
    /// The address that leads to the host's loopback.
    pub host: Ipv4Addr,
    pub leases: Vec<(MacAddr, Ipv4Addr)>,
    pub search: Vec<String>,
    /// Whether guests may reach 169.254.0.0/16.
    pub ec2: bool,
}

/// Merges options and file, starts the log, and checks the result.
///
/// # Errors
/// Returns gvproxy's message, or names what this program does not support.
pub(super) fn settle(given: &GvOptions) -> Result<GvSettings, GvFailure> {
    let has_file = !given.config.is_empty();
    let mut config = if has_file { config::read(Path::new(&given.config))? } else { GvConfig::default() };
    override_by(&mut config, given);
    begin_log(&mut config)?;
    if has_file && given.ssh_port.is_some() {
        log::warning("-ssh-port has no effect with -config: add the port to stack.forwards in the file");
    }
    let net = net_settings(&config.stack, config.ec2_metadata_access, !has_file)?;
    let guests = guest_sockets(&config.interfaces)?;
    if !has_file {
        default_network(&mut config.stack, &net, given)?;
    }
    add_tunnels(&mut config, given)?;
    Ok(GvSettings {
        listen: config.listen.iter().map(|text| GvEndpoint::parse(text)).collect::<Result<_, _>>()?,
        services: parsed(&config.services)?,
        framing: connect_framing(&guests),
        guests,
        has_stdio: !config.interfaces.stdio.is_empty(),
        net,
        zones: config.stack.dns,
        ports: config.stack.forwards.into_iter().map(|(local, remote)| starting_port(local, remote)).collect(),
        tunnels: config.forwards,
        notification: notification_path(&config.notification, !given.keys.notification.is_empty())?,
        pid_file: Some(config.pid_file).filter(|path| !path.is_empty()).map(PathBuf::from),
    })
}

fn override_by(config: &mut GvConfig, given: &GvOptions) {
    let keys = &given.keys;
    let texts = [
        (&mut config.interfaces.qemu, &keys.interfaces.qemu),
        (&mut config.interfaces.bess, &keys.interfaces.bess),
        (&mut config.interfaces.vfkit, &keys.interfaces.vfkit),
        (&mut config.interfaces.vpnkit, &keys.interfaces.vpnkit),
        (&mut config.interfaces.stdio, &keys.interfaces.stdio),
        (&mut config.pid_file, &keys.pid_file),
        (&mut config.log_file, &keys.log_file),
        (&mut config.services, &keys.services),
        (&mut config.notification, &keys.notification),
    ];
    for (place, text) in texts {
        if !text.is_empty() {
            place.clone_from(text);
        }
    }
    if !keys.listen.is_empty() {
        config.listen.clone_from(&keys.listen);
    }
    if given.debug {
        config.log_level = "debug".to_owned();
    }
    if keys.stack.mtu != 0 {
        config.stack.mtu = keys.stack.mtu;
    }
    if !keys.stack.capture_file.is_empty() && given.config.is_empty() {
        config.stack.capture_file.clone_from(&keys.stack.capture_file);
    }
    config.ec2_metadata_access |= keys.ec2_metadata_access || config.stack.ec2_metadata_access;
}

fn begin_log(config: &mut GvConfig) -> Result<(), GvFailure> {
    if config.log_level.is_empty() {
        config.log_level = "info".to_owned();
    }
    match GvLogLevel::named(&config.log_level) {
        Some(level) => log::set_level(level),
        None => log::warning(format_args!("bad log level \"{}\", falling back to \"info\"", config.log_level)),
    }
    if !config.log_file.is_empty() {
        let failed = || GvFailure(format!("unable to open log file {}", config.log_file));
        let file = File::create(&config.log_file).map_err(|_| failed())?;
        rustix::stdio::dup2_stderr(&file).map_err(|_| failed())?;
        log::debug(format_args!("gvproxy version: \"{RELEASE}\""));
    }
    Ok(())
}

fn net_settings(stack: &StackConfig, ec2: bool, is_default: bool) -> Result<NetSettings, GvFailure> {
    if !stack.capture_file.is_empty() {
        let what =
            "-pcap and capture-file are not available: run netvale dump with the run directory that the log names";
        return Err(GvFailure(what.to_owned()));
    }
    let subnet = if stack.subnet.is_empty() { SUBNET } else { &stack.subnet };
    let (first, last, prefix) = usable(subnet)?;
    let address = |text: &str, usual: Ipv4Addr| if text.is_empty() { Ok(usual) } else { v4(text) };
    let gateway = address(&stack.gateway_ip, first)?;
    let parsed: Result<GatewayAddresses, _> = format!("{gateway}/{prefix}").parse();
    let gateway = parsed.ok().and_then(|addresses| addresses.v4);
    let gateway = gateway.ok_or_else(|| GvFailure(format!("{subnet}: expected a network of 8 to 29 bits")))?;
    let mac_text = if stack.gateway_mac_address.is_empty() { GATEWAY_MAC } else { &stack.gateway_mac_address };
    let mtu = if stack.mtu == 0 { MTU } else { stack.mtu };
    let fits = u16::try_from(mtu).ok().filter(|mtu| MTUS.contains(mtu));
    let unfit = || GvFailure(format!("mtu is out of range: expected {} to {}, found {mtu}", MTUS.start(), MTUS.end()));
    let search = if is_default { host_search() } else { stack.dns_search_domains.clone() };
    let leases = if is_default { vec![(mac(GUEST_MAC)?, v4(GUEST)?)] } else { static_leases(stack)? };
    Ok(NetSettings {
        mtu: fits.ok_or_else(unfit)?,
        gateway,
        mac: mac(mac_text)?,
        host: host_address(stack, last)?,
        leases,
        search: search.into_iter().filter(|domain| options::domain(domain).is_ok()).collect(),
        ec2,
    })
}

/// Returns the first and the last host address of a network, and the network's prefix length.
fn usable(subnet: &str) -> Result<(Ipv4Addr, Ipv4Addr, u8), GvFailure> {
    let failed = |why: &str| GvFailure(format!("failed to parse subnet: {subnet:?}: {why}"));
    let (address, prefix) = subnet.split_once('/').ok_or_else(|| failed("expected e.g. 192.168.127.0/24"))?;
    let prefix: u8 = prefix.parse().map_err(|_| failed("expected a prefix length after the slash"))?;
    let address: Ipv4Addr = address.parse().map_err(|_| failed("expected an IPv4 network"))?;
    if prefix > 29 {
        let what = "failed to identify first usable address in subnet: too small network";
        return Err(GvFailure(what.to_owned()));
    }
    let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
    let base = address.to_bits() & mask;
    Ok((Ipv4Addr::from_bits(base + 1), Ipv4Addr::from_bits((base | !mask) - 1), prefix))
}

/// Returns the address that leads to the host's loopback. Other entries of `stack.nat` are not supported.
fn host_address(stack: &StackConfig, usual: Ipv4Addr) -> Result<Ipv4Addr, GvFailure> {
    let mut nat = stack.nat.iter();
    let host = match (nat.next(), nat.next()) {
        (None, _) => usual,
        (Some((address, target)), None) if target == "127.0.0.1" => v4(address)?,
        _ => {
            let what = "stack.nat: expected one address that leads to 127.0.0.1; other translations are not available";
            return Err(GvFailure(what.to_owned()));
        }
    };
    match stack.gateway_virtual_ips.iter().find(|address| **address != host.to_string()) {
        None => Ok(host),
        Some(other) => {
            Err(GvFailure(format!("stack.gatewayVirtualIPs: {other}: expected the address of stack.nat only ({host})")))
        }
    }
}

fn static_leases(stack: &StackConfig) -> Result<Vec<(MacAddr, Ipv4Addr)>, GvFailure> {
    stack.dhcp_static_leases.iter().map(|(address, station)| Ok((mac(station)?, v4(address)?))).collect()
}

fn v4(text: &str) -> Result<Ipv4Addr, GvFailure> {
    text.parse().map_err(|_| GvFailure(format!("{text:?}: expected an IPv4 address")))
}

fn mac(text: &str) -> Result<MacAddr, GvFailure> {
    text.parse().map_err(|_| GvFailure(format!("address {text}: invalid MAC address")))
}

/// Returns the domains of the first `search` line of the host's `/etc/resolv.conf`.
fn host_search() -> Vec<String> {
    let file = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let line = file.lines().find_map(|line| line.strip_prefix("search ")).unwrap_or_default();
    line.split_whitespace().map(|domain| domain.trim_end_matches('.').to_owned()).collect()
}

/// Adds the DNS zones and the exposed SSH port that a network has only if there is no configuration file.
fn default_network(stack: &mut StackConfig, net: &NetSettings, given: &GvOptions) -> Result<(), GvFailure> {
    let ssh_port = given.ssh_port.unwrap_or(SSH_PORT);
    if ssh_port != -1 && !(1024..=65535).contains(&ssh_port) {
        return Err(GvFailure("ssh-port value must be between 1024 and 65535".to_owned()));
    }
    let zone = |name| GvZone::usual(name, IpAddr::V4(net.gateway.address), IpAddr::V4(net.host));
    stack.dns = ["containers.internal.", "docker.internal."].map(zone).into();
    if ssh_port != -1 {
        stack.forwards.insert(format!("127.0.0.1:{ssh_port}"), SSH_PLACE.to_owned());
    }
    Ok(())
}

fn starting_port(local: String, remote: String) -> StartingPort {
    match local.strip_prefix("udp:") {
        Some(local) => StartingPort { protocol: "udp", local: local.to_owned(), remote },
        None => StartingPort { protocol: "tcp", local, remote },
    }
}

fn add_tunnels(config: &mut GvConfig, given: &GvOptions) -> Result<(), GvFailure> {
    let lists = &given.forwards;
    let count = lists.sock.len();
    if [&lists.dest, &lists.user, &lists.identity].iter().any(|list| list.len() != count) {
        let what = "--forward-sock, --forward-dest, --forward-user, and --forward-identity must all be specified \
                    together, the same number of times, or not at all";
        return Err(GvFailure(what.to_owned()));
    }
    let names = lists.sock.iter().zip(&lists.dest).zip(lists.user.iter().zip(&lists.identity));
    config.forwards.extend(names.map(|((socket, dest), (user, identity))| SshForward {
        socket: socket.clone(),
        dest: dest.clone(),
        user: user.clone(),
        identity: identity.clone(),
    }));
    for tunnel in &config.forwards {
        let loaded = std::fs::metadata(&tunnel.identity);
        loaded.map_err(GvFailure::step(format!("identity file {:?} can't be loaded", tunnel.identity)))?;
    }
    Ok(())
}

fn notification_path(text: &str, is_option: bool) -> Result<Option<PathBuf>, GvFailure> {
    // In the configuration file, the value is a plain path; on the command line, it is a URL.
    if text.is_empty() || !is_option {
        return Ok(Some(text).filter(|text| !text.is_empty()).map(PathBuf::from));
    }
    match GvEndpoint::parse(text) {
        Ok(endpoint) if endpoint.scheme == "unix" => Ok(Some(endpoint.path.into())),
        _ => Err(GvFailure("notification listen address must be unix:// address".to_owned())),
    }
}

fn parsed(text: &str) -> Result<Option<GvEndpoint>, GvFailure> {
    if text.is_empty() { Ok(None) } else { GvEndpoint::parse(text).map(Some) }
}

fn guest_sockets(config: &InterfacesConfig) -> Result<Vec<GuestInterface>, GvFailure> {
    if !config.vpnkit.is_empty() {
        let what = "-listen-vpnkit is not available: Hyperkit, which uses it, runs on macOS only";
        return Err(GvFailure(what.to_owned()));
    }
    if !config.qemu.is_empty() && !config.bess.is_empty() {
        return Err(GvFailure("cannot use qemu and bess protocol at the same time".to_owned()));
    }
    let sockets = [
        guest_socket("qemu", &config.qemu, &["unix", "tcp"])?,
        guest_socket("bess", &config.bess, &["unixpacket"])?,
        guest_socket("vfkit", &config.vfkit, &[kinds::VFKIT_SCHEME])?,
    ];
    Ok(sockets.into_iter().flatten().collect())
}

fn connect_framing(guests: &[GuestInterface]) -> ConnectFraming {
    match guests {
        [] => ConnectFraming::Hyperkit,
        [only] if only.name == "qemu" => ConnectFraming::Qemu,
        _ => ConnectFraming::Messages,
    }
}

fn guest_socket(name: &'static str, text: &str, schemes: &[&str]) -> Result<Option<GuestInterface>, GvFailure> {
    let Some(endpoint) = parsed(text)? else { return Ok(None) };
    if !schemes.contains(&endpoint.scheme.as_str()) {
        let schemes = schemes.join(":// or ");
        return Err(GvFailure(format!("{name} listen address must be {schemes}:// address")));
    }
    if endpoint.scheme != "tcp" && Path::new(&endpoint.path).exists() {
        return Err(GvFailure(format!("{:?} already exists", endpoint.path)));
    }
    Ok(Some(GuestInterface { name, endpoint }))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::super::options::{self as line, GvAsked};
    use super::*;

    fn of(words: &[&str]) -> Result<GvSettings, String> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let GvAsked::Run(options) = line::read(&words).unwrap() else { panic!("{words:?}") };
        settle(&options).map_err(|why| why.to_string())
    }

    /// Objective: without a configuration file, the network is gvproxy's default network.
    #[test]
    fn the_default_network_is_gvproxys() {
        let settings = of(&["-listen", "unix:///tmp/network.sock"]).unwrap();
        let net = settings.net;
        assert_eq!(
            (net.mtu, net.gateway.address.to_string().as_str(), net.gateway.prefix),
            (1500, "192.168.127.1", 24)
        );
        assert_eq!(net.mac.to_string(), "5a:94:ef:e4:0c:dd");
        assert_eq!(net.host.to_string(), "192.168.127.254");
        let lease = net.leases.iter().map(|(mac, address)| format!("{mac} {address}")).collect::<Vec<_>>();
        assert_eq!(lease, ["5a:94:ef:e4:0c:ee 192.168.127.2"]);
        let ssh = StartingPort { protocol: "tcp", local: "127.0.0.1:2222".into(), remote: "192.168.127.2:22".into() };
        assert_eq!(settings.ports, [ssh]);
        assert_eq!(settings.zones.len(), 2);
        assert_eq!(settings.framing, ConnectFraming::Hyperkit);
        assert!(of(&["-ssh-port", "-1"]).unwrap().ports.is_empty());
        assert_eq!(of(&["-listen-qemu", "tcp://0.0.0.0:1"]).unwrap().framing, ConnectFraming::Qemu);
    }

    /// Objective: a network from a configuration file has only the names, leases and ports in the file; its addresses
    /// are derived from the subnet.
    #[test]
    fn a_files_network_has_only_what_the_file_says() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.yaml");
        let text = "stack:\n  subnet: 10.0.0.0/16\n  forwards:\n    \"udp:127.0.0.1:5353\": 10.0.0.2:53\n";
        std::fs::write(&path, text).unwrap();
        let settings = of(&["-config", path.to_str().unwrap(), "-mtu", "1400"]).unwrap();
        let net = settings.net;
        let addresses = (net.gateway.address.to_string(), net.host.to_string(), net.mtu);
        assert_eq!(addresses, ("10.0.0.1".into(), "10.0.255.254".into(), 1400));
        assert!(net.leases.is_empty() && settings.zones.is_empty());
        let port = StartingPort { protocol: "udp", local: "127.0.0.1:5353".into(), remote: "10.0.0.2:53".into() };
        assert_eq!(settings.ports, [port]);
    }

    #[test]
    fn usable_addresses_are_those_of_gvproxys_tests() {
        let of = |text: &str| usable(text).map(|(first, last, _)| format!("{first} {last}")).ok();
        assert_eq!(of("192.168.127.1/24").as_deref(), Some("192.168.127.1 192.168.127.254"));
        assert_eq!(of("10.10.0.0/16").as_deref(), Some("10.10.0.1 10.10.255.254"));
        assert_eq!(of("172.16.16.16/12").as_deref(), Some("172.16.0.1 172.31.255.254"));
        for bad in ["10.0.0.0", "10.0.0.0/30", "10.0.0.0/33", "fc00::/64", "x/24"] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        for (words, expected) in [
            (&["-ssh-port", "80"][..], "ssh-port value must be between 1024 and 65535"),
            (&["-listen-bess", "unix:///a"], "bess listen address must be unixpacket:// address"),
            (&["-listen-vfkit", "unix:///a"], "vfkit listen address must be unixgram:// address"),
            (&["-listen-qemu", "unix:///tmp"], "\"/tmp\" already exists"),
            (&["-listen-vpnkit", "unix:///a"], "-listen-vpnkit is not available"),
            (&["-listen-qemu", "tcp://:1", "-listen-bess", "unixpacket:///a"], "at the same time"),
            (&["-pcap", "/tmp/x"], "-pcap and capture-file are not available"),
            (&["-mtu", "100"], "mtu is out of range"),
            (&["-forward-sock", "/a"], "must all be specified together"),
            (&["-notification", "tcp://a"], "notification listen address must be unix:// address"),
            (&["-config", "/nonexistent/c.yaml"], "failed to read config file"),
        ] {
            let why = of(words).unwrap_err();
            assert!(why.contains(expected), "{words:?}: {why}");
        }
        let forward =
            ["-forward-sock", "/a", "-forward-dest", "/b", "-forward-user", "u", "-forward-identity", "/nonexistent"];
        assert!(of(&forward).unwrap_err().contains("identity file \"/nonexistent\" can't be loaded"));
    }
}
