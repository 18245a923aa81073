//! A client of the daemon that runs the switch: its ports, counters and addresses.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use netvale_control::client::{Client, ClientError};
use netvale_control::types::{
    AttachParams, Policies, PortDetail, PortDetails, PortInfo, PortOptions, RingStats, TableEntry, VdeInfo,
    VdeSetParams,
};
use serde_json::{Map, Value};

use super::VdeFailure;
use super::answers::VdeError;
use super::options::VdeOptions;

/// The name of the switch in the daemon.
const SWITCH: &str = "vale0";
/// The name of the `vde:` port, to which plugs connect. The name of each plug's port begins with it.
const PORT: &str = "port";
/// Maximum payload of a frame in bytes: the size of VDE plugs' buffers.
const MTU: u32 = 9216;
/// Maximum number of ports for plugs, including ports to which no plug is connected.
const MOST_PEERS: u32 = 4000;

/// A port of the switch, as commands print it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ShownPort {
    /// The full name, e.g. `vale0:port0001`.
    pub name: String,
    /// The peer of the port: a plug or a TAP.
    pub of: ShownPeer,
}

/// The peer of a port. A port for plugs may have no plug.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ShownPeer {
    Plug(VdeInfo),
    Tap(String),
}

impl ShownPort {
    /// Returns whether a plug is connected to the port; `true` for a TAP.
    pub(super) fn is_active(&self) -> bool {
        match &self.of {
            ShownPeer::Plug(info) => info.plug.is_some(),
            ShownPeer::Tap(_) => true,
        }
    }
}

/// Numbers of frames and bytes: those that a port sent to the switch, and those that it received from the switch.
pub(super) type PortCounts = [(u64, u64); 2];

/// The switch in the daemon, which is accessed through the daemon's control protocol.
#[derive(Debug)]
pub(super) struct VdeSwitch {
    run_dir: PathBuf,
    client: Option<Client>,
    /// Full names of the TAPs' ports, by port number.
    taps: BTreeMap<u16, String>,
}

impl VdeSwitch {
    /// Attaches the `vde:` port and the TAPs to the daemon's switch.
    pub(super) fn begin(
        run_dir: &Path,
        folder: &Path,
        options: &VdeOptions,
        policies: &Map<String, Value>,
    ) -> Result<VdeSwitch, VdeFailure> {
        let mut switch = VdeSwitch { run_dir: run_dir.to_owned(), client: None, taps: BTreeMap::new() };
        // The daemon admits the group by an ACL entry. If the mode has no permissions for the group, no group is
        // passed, since the entry would override the mode.
        let group = options.group.as_deref().filter(|_| options.mode & 0o070 != 0);
        let group = group.map(super::place::group_number).transpose()?;
        let port = PortOptions {
            name: Some(PORT.to_owned()),
            mtu: Some(MTU),
            peers: Some(peers(options.ports)),
            socket_mode: Some(format!("{:04o}", options.mode & 0o777)),
            socket_group: group.map(|group| group.to_string()),
            ..PortOptions::default()
        };
        switch.attach(format!("vde:{}", folder.display()), port, policies)?;
        for (number, tap) in (1..).zip(&options.taps) {
            switch.attach(format!("tap:{tap}"), PortOptions::default(), policies)?;
            switch.taps.insert(number, format!("{SWITCH}:{tap}"));
        }
        // Plugs must not get the TAPs' port numbers.
        let numbers: Vec<u16> = switch.taps.keys().copied().collect();
        if !numbers.is_empty() {
            switch.start(|client| client.vde_set(VdeSetParams { reserve: numbers, ..of_port() }))?;
        }
        Ok(switch)
    }

    fn attach(&mut self, port: String, options: PortOptions, policies: &Map<String, Value>) -> Result<(), VdeFailure> {
        let policies = Policies::default().with(policies).map_err(VdeFailure)?;
        let options = PortOptions { policies, ..options };
        self.start(|client| client.attach(AttachParams { switch: SWITCH.to_owned(), port, options })).map(drop)
    }

    /// Sends a request while the switch starts. If the request fails, the error ends the program.
    fn start<T>(&mut self, ask: impl FnOnce(&mut Client) -> Result<T, ClientError>) -> Result<T, VdeFailure> {
        self.asked(ask).map_err(|why| VdeFailure::from(crate::ctx::to_cli(why)))
    }

    fn asked<T>(&mut self, ask: impl FnOnce(&mut Client) -> Result<T, ClientError>) -> Result<T, ClientError> {
        let mut client = match self.client.take() {
            Some(client) => client,
            None => Client::connect(&self.run_dir)?,
        };
        let answer = ask(&mut client);
        // After any other error, the connection is closed.
        if matches!(answer, Ok(_) | Err(ClientError::Refused(_))) {
            self.client = Some(client);
        }
        answer
    }

    /// Sends a request. Prints an error on standard error, and returns it as VDE's `EIO`.
    fn ask<T>(&mut self, ask: impl FnOnce(&mut Client) -> Result<T, ClientError>) -> Result<T, VdeError> {
        self.asked(ask).map_err(|why| {
            super::say(format_args!("the switch: {}", crate::ctx::to_cli(why)));
            VdeError::NoAnswer
        })
    }

    /// Returns the ports of plugs and TAPs, by number.
    pub(super) fn ports(&mut self) -> Result<BTreeMap<u16, ShownPort>, VdeError> {
        let ports = self.ask(|client| client.ports(Some(SWITCH)))?;
        let mut shown: BTreeMap<u16, ShownPort> = ports.into_iter().filter_map(shown).collect();
        for (number, name) in &self.taps {
            let tap = name.split_once(':').map_or_else(String::new, |(_, tap)| tap.to_owned());
            shown.insert(*number, ShownPort { name: name.clone(), of: ShownPeer::Tap(tap) });
        }
        Ok(shown)
    }

    /// Returns the counters of the ports, by the ports' full names.
    pub(super) fn counts(&mut self) -> Result<BTreeMap<String, PortCounts>, VdeError> {
        let stats = self.ask(Client::all_stats)?;
        let sum = |rings: &[RingStats]| {
            let sum: RingStats = rings.iter().sum();
            (sum.frames, sum.bytes)
        };
        let counts = |port: &PortDetails| [sum(&port.ingress), sum(&port.egress)];
        Ok(stats.ports.iter().map(|port| (port.name.clone(), counts(port))).collect())
    }

    /// Returns the learned addresses.
    pub(super) fn table(&mut self) -> Result<Vec<TableEntry>, VdeError> {
        self.ask(|client| client.table(SWITCH))
    }

    /// Returns the number of the port with this full name; `None` if the port is neither for a plug nor a TAP.
    pub(super) fn number_of(&self, name: &str) -> Option<u16> {
        let of_tap = self.taps.iter().find(|(_, tap)| *tap == name).map(|(number, _)| *number);
        of_tap.or_else(|| name.strip_prefix(SWITCH)?.strip_prefix(':')?.strip_prefix(PORT)?.parse().ok())
    }

    /// Reserves a port for plugs that request its number. Creates the port if necessary.
    pub(super) fn reserve(&mut self, number: u16) -> Result<(), VdeError> {
        self.ask(|client| client.vde_set(VdeSetParams { reserve: vec![number], ..of_port() })).map(drop)
    }

    /// Makes a port available to any plug. Creates the port if necessary.
    pub(super) fn release(&mut self, number: u16) -> Result<(), VdeError> {
        self.ask(|client| client.vde_set(VdeSetParams { release: vec![number], ..of_port() })).map(drop)
    }

    /// Sets the maximum number of ports, including the unused number 0.
    pub(super) fn limit(&mut self, ports: u32) -> Result<(), VdeError> {
        self.ask(|client| client.vde_set(VdeSetParams { peers: Some(peers(ports)), ..of_port() })).map(drop)
    }

    /// Removes the port with this full name, and disconnects its plug.
    pub(super) fn remove(&mut self, name: &str) -> Result<(), VdeError> {
        let port = name.split_once(':').map_or(name, |(_, port)| port).to_owned();
        self.ask(|client| client.detach(SWITCH, &port))
    }

    /// Sets policies of the port with this full name.
    pub(super) fn set(&mut self, name: &str, policies: Map<String, Value>) -> Result<(), VdeError> {
        self.ask(|client| client.set(name, policies)).map(drop)
    }

    /// Sets the policies of new ports.
    pub(super) fn set_usual(&mut self, policies: Map<String, Value>) -> Result<(), VdeError> {
        self.set(&format!("{SWITCH}:{PORT}"), policies)
    }
}

fn of_port() -> VdeSetParams {
    VdeSetParams { port: format!("{SWITCH}:{PORT}"), ..VdeSetParams::default() }
}

/// Returns the maximum number of plugs for a maximum number `ports` of ports, which includes the unused number 0.
fn peers(ports: u32) -> u32 {
    ports.saturating_sub(1).clamp(1, MOST_PEERS)
}

fn shown(port: PortInfo) -> Option<(u16, ShownPort)> {
    match port.detail {
        Some(PortDetail::Vde(info)) => Some((info.number, ShownPort { name: port.name, of: ShownPeer::Plug(info) })),
        _ => None,
    }
}
