//! The processes of a network: the daemon with its switch, and the gateway. Also a client of the daemon.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use netvale_control::client::{Client, ClientError};
use netvale_control::types::{AttachParams, PortOptions, RingStats};
use rustix::process::{Pid, PidfdFlags, Signal};

use super::place::GvPlace;
use super::settings::{GuestInterface, GvSettings, NetSettings};
use super::stream::GvStream;
use super::{GvFailure, kinds};
use crate::own_daemon::OwnDaemon;

/// The name of the switch.
pub(super) const SWITCH: &str = "vale0";
/// Name of the port for the guest at the socket of `-listen-qemu`, `-listen-bess` or `-listen-vfkit`.
const GUEST_PORT: &str = "vm";
/// Name of the port for `/connect` and `-listen-stdio`.
const CONNECT_PORT: &str = "connect";
const GATEWAY_PORT: &str = "vale0:gateway";
/// Maximum time to wait until the gateway answers.
const LIMIT: Duration = Duration::from_secs(20);
/// Maximum time to wait until the gateway has ended; after this time, it is killed.
const ENDING: Duration = Duration::from_secs(5);
/// Polling interval.
const PAUSE: Duration = Duration::from_millis(5);
/// Networks that guests may reach besides the Internet, as with gvproxy.
const PRIVATE_NETWORKS: [&str; 6] =
    ["10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.0.0.0/24", "192.168.0.0/16", "198.18.0.0/15"];
/// The network of cloud providers' metadata.
const METADATA_NETWORK: &str = "169.254.0.0/16";

/// The daemon and the gateway. Both processes end when this value is dropped.
#[derive(Debug)]
pub(super) struct GvNetwork {
    daemon: Option<OwnDaemon>,
    gateway: Child,
}

impl GvNetwork {
    /// Starts the daemon and the gateway, and waits until both processes answer.
    ///
    /// # Errors
    /// The daemon or the gateway cannot start; the log has its messages.
    pub(super) fn start(settings: &GvSettings, place: &GvPlace) -> Result<GvNetwork, GvFailure> {
        let endpoints = settings.guests.iter().map(|guest| &guest.endpoint);
        let paths = endpoints.filter(|endpoint| endpoint.scheme != "tcp").map(|endpoint| Path::new(&endpoint.path));
        let folders: Vec<&Path> = paths.filter_map(Path::parent).collect();
        let daemon = OwnDaemon::start(place.folder(), &folders).map_err(GvFailure::step("virtual network"))?;
        let spawned = gateway(&settings.net, place).and_then(|mut command| command.spawn());
        let gateway = spawned.map_err(GvFailure::step("cannot start the gateway"))?;
        let mut network = GvNetwork { daemon: Some(daemon), gateway };
        network.wait(&place.control())?;
        Ok(network)
    }

    /// Waits until the gateway accepts connections on its control socket.
    fn wait(&mut self, control: &Path) -> Result<(), GvFailure> {
        let begun = Instant::now();
        while begun.elapsed() < LIMIT {
            if GvStream::connect(control).is_ok() {
                return Ok(());
            }
            if let Ok(Some(status)) = self.gateway.try_wait() {
                return Err(GvFailure(format!("the gateway has ended ({status}): see its message above")));
            }
            std::thread::sleep(PAUSE);
        }
        Err(GvFailure(format!("the gateway did not answer within {} s", LIMIT.as_secs())))
    }

    /// Returns a descriptor that is readable once the gateway has ended.
    ///
    /// # Errors
    /// pidfd_open(2) fails.
    pub(super) fn gateway_end(&self) -> Result<OwnedFd, GvFailure> {
        let pid = Pid::from_child(&self.gateway);
        rustix::process::pidfd_open(pid, PidfdFlags::empty()).map_err(GvFailure::step("cannot watch the gateway"))
    }
}

impl Drop for GvNetwork {
    fn drop(&mut self) {
        // This fails only if the gateway has already ended.
        let _ = rustix::process::kill_process(Pid::from_child(&self.gateway), Signal::TERM);
        let begun = Instant::now();
        while matches!(self.gateway.try_wait(), Ok(None)) && begun.elapsed() < ENDING {
            std::thread::sleep(PAUSE);
        }
        let _ = self.gateway.kill();
        let _ = self.gateway.wait();
        self.daemon.take().into_iter().for_each(OwnDaemon::end);
    }
}

fn gateway(net: &NetSettings, place: &GvPlace) -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    // The program's file may be called gvproxy. If argv[0] had this name, the new process would act as gvproxy instead
    // of `netvale`.
    command.arg0("netvale").arg("--run-dir").arg(place.folder()).args(["gateway", GATEWAY_PORT]);
    command.arg(format!("{}/{}", net.gateway.address, net.gateway.prefix));
    command.args(words(net));
    command.arg("--control").arg(place.control()).arg("--dial").arg(place.dial());
    command.arg("--serve").arg(format!("80={}", place.api().display()));
    command.stdin(Stdio::null()).stdout(Stdio::null());
    Ok(command)
}

/// Returns the gateway's options, except the options whose values are paths.
fn words(net: &NetSettings) -> Vec<String> {
    let mut words = Vec::new();
    let mut option = |name: &str, value: String| words.extend([format!("--{name}"), value]);
    option("mac", net.mac.to_string());
    option("mtu", net.mtu.to_string());
    option("host-address", net.host.to_string());
    option("log-level", "warn".to_owned());
    net.leases.iter().for_each(|(mac, address)| option("lease", format!("{mac}={address}")));
    net.search.iter().for_each(|domain| option("search", domain.clone()));
    PRIVATE_NETWORKS.iter().for_each(|network| option("allow", (*network).to_owned()));
    if net.ec2 {
        option("allow", METADATA_NETWORK.to_owned());
    }
    words.push("--allow-host-loopback".to_owned());
    words
}

/// A client of the daemon.
#[derive(Clone, Debug)]
pub(super) struct SwitchClient {
    pub run_dir: PathBuf,
}

impl SwitchClient {
    fn ask<T>(&self, ask: impl FnOnce(&mut Client) -> Result<T, ClientError>) -> Result<T, GvFailure> {
        let asked = Client::connect(&self.run_dir).and_then(|mut client| ask(&mut client));
        asked.map_err(|why| GvFailure::from(crate::ctx::to_cli(why)))
    }

    /// Attaches the ports of guests.
    ///
    /// # Errors
    /// The daemon refuses: e.g. a socket's path is in use.
    pub(super) fn attach_guests(&self, settings: &GvSettings) -> Result<(), GvFailure> {
        for (number, GuestInterface { name, endpoint }) in settings.guests.iter().enumerate() {
            let port = if number == 0 { GUEST_PORT } else { name };
            let peers = (*name != "vfkit").then_some(1);
            let attached = self.attach(&kinds::guest_port(endpoint), port, &settings.net, peers);
            attached.map_err(GvFailure::step(format!("{name} listen error")))?;
        }
        Ok(())
    }

    /// Attaches the port for streams that this program carries, at the path `socket`.
    ///
    /// # Errors
    /// The daemon refuses.
    pub(super) fn attach_connect(&self, socket: &Path, net: &NetSettings) -> Result<(), GvFailure> {
        self.attach(&kinds::stream_port(socket), CONNECT_PORT, net, None)
    }

    fn attach(&self, port: &str, name: &str, net: &NetSettings, peers: Option<u32>) -> Result<(), GvFailure> {
        let mtu = Some(u32::from(net.mtu));
        let options = PortOptions { name: Some(name.to_owned()), mtu, peers, ..PortOptions::default() };
        let params = AttachParams { switch: SWITCH.to_owned(), port: port.to_owned(), options };
        self.ask(|client| client.attach(params)).map(drop)
    }

    /// Returns two totals of bytes: those sent to guests, and those received from guests.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub(super) fn guest_bytes(&self) -> Result<(u64, u64), GvFailure> {
        let stats = self.ask(Client::all_stats)?;
        let guests = stats.ports.iter().filter(|port| port.name != GATEWAY_PORT);
        let sum = |rings: &[RingStats]| rings.iter().map(|ring| ring.bytes).sum::<u64>();
        Ok(guests.fold((0, 0), |(sent, received), port| (sent + sum(&port.egress), received + sum(&port.ingress))))
    }

    /// Returns guests' Ethernet addresses, each with the number of the guest's port, counted from 0.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub(super) fn stations(&self) -> Result<BTreeMap<String, usize>, GvFailure> {
        let ports = self.ask(|client| client.ports(Some(SWITCH)))?;
        let mut names: Vec<_> = ports.into_iter().map(|port| port.name).filter(|name| name != GATEWAY_PORT).collect();
        // Guests of `/connect` come after the guest that has its own socket.
        names.sort_by_key(|name| name.starts_with(&format!("{SWITCH}:{CONNECT_PORT}")));
        let number = |name: &str| names.iter().position(|known| known == name);
        Ok(self.learned()?.into_iter().filter_map(|(mac, port)| Some((mac, number(&port)?))).collect())
    }

    /// Returns guests' Ethernet addresses, each with the full name of the guest's port.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub(super) fn learned(&self) -> Result<BTreeMap<String, String>, GvFailure> {
        let table = self.ask(|client| client.table(SWITCH))?;
        let of_guests = table.into_iter().filter(|entry| entry.port != GATEWAY_PORT);
        Ok(of_guests.map(|entry| (entry.mac.to_string(), entry.port)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_reach_private_networks_and_metadata_only_if_asked_for() {
        let addresses: netvale_gateway::net::GatewayAddresses = "192.168.127.1/24".parse().unwrap();
        let net = NetSettings {
            mtu: 1500,
            gateway: addresses.v4.unwrap(),
            mac: "5a:94:ef:e4:0c:dd".parse().unwrap(),
            host: [192, 168, 127, 254].into(),
            leases: vec![("5a:94:ef:e4:0c:ee".parse().unwrap(), [192, 168, 127, 2].into())],
            search: vec!["example".into()],
            ec2: false,
        };
        let line = words(&net).join(" ");
        assert!(line.starts_with("--mac 5a:94:ef:e4:0c:dd --mtu 1500 --host-address 192.168.127.254"), "{line}");
        assert!(line.contains("--lease 5a:94:ef:e4:0c:ee=192.168.127.2 --search example"), "{line}");
        assert!(line.ends_with("--allow 198.18.0.0/15 --allow-host-loopback"), "{line}");
        assert!(words(&NetSettings { ec2: true, ..net }).contains(&METADATA_NETWORK.to_owned()));
    }
}
