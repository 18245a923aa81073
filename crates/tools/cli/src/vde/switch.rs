//! The switch, as the daemon shows it: its ports, counters and addresses.

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

/// The switch, and the port that its plugs come through.
const SWITCH: &str = "vale0";
const PORT: &str = "port";
/// Longest payload of a frame: what plugs of VDE have room for.
const MTU: u32 = 9216;
/// Most ports of plugs, with those that plugs have left.
const MOST_PEERS: u32 = 250;

/// A port of the switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ShownPort {
    /// Its full name.
    pub name: String,
    /// A plug's, or one without plugs: a TAP.
    pub of: ShownPeer,
}

/// Who is behind a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ShownPeer {
    Plug(VdeInfo),
    Tap(String),
}

impl ShownPort {
    /// Whether somebody is there.
    pub(super) fn is_active(&self) -> bool {
        match &self.of {
            ShownPeer::Plug(info) => info.plug.is_some(),
            ShownPeer::Tap(_) => true,
        }
    }
}

/// Frames and bytes into the switch, and out of it.
pub(super) type PortCounts = [(u64, u64); 2];

/// The switch.
#[derive(Debug)]
pub(super) struct VdeSwitch {
    run_dir: PathBuf,
    client: Option<Client>,
    /// TAPs by the numbers of their ports.
    taps: BTreeMap<u16, String>,
}

impl VdeSwitch {
    /// Attaches the port for plugs, and the TAPs.
    pub(super) fn begin(
        run_dir: &Path,
        folder: &Path,
        options: &VdeOptions,
        policies: &Map<String, Value>,
    ) -> Result<VdeSwitch, VdeFailure> {
        let mut switch = VdeSwitch { run_dir: run_dir.to_owned(), client: None, taps: BTreeMap::new() };
        // An entry of a list would let the group in, whatever the mode says.
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
        // Plugs get other numbers.
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

    /// Asks something without which there is no switch.
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

    /// Asks something; what the daemon refuses is told on standard error.
    fn ask<T>(&mut self, ask: impl FnOnce(&mut Client) -> Result<T, ClientError>) -> Result<T, VdeError> {
        self.asked(ask).map_err(|why| {
            super::say(format_args!("the switch: {}", crate::ctx::to_cli(why)));
            VdeError::NoAnswer
        })
    }

    /// Its ports by number.
    pub(super) fn ports(&mut self) -> Result<BTreeMap<u16, ShownPort>, VdeError> {
        let ports = self.ask(|client| client.ports(Some(SWITCH)))?;
        let mut shown: BTreeMap<u16, ShownPort> = ports.into_iter().filter_map(shown).collect();
        for (number, name) in &self.taps {
            let tap = name.split_once(':').map_or_else(String::new, |(_, tap)| tap.to_owned());
            shown.insert(*number, ShownPort { name: name.clone(), of: ShownPeer::Tap(tap) });
        }
        Ok(shown)
    }

    /// The counters of its ports, by full name.
    pub(super) fn counts(&mut self) -> Result<BTreeMap<String, PortCounts>, VdeError> {
        let stats = self.ask(Client::all_stats)?;
        let sum = |rings: &[RingStats]| {
            let sum: RingStats = rings.iter().sum();
            (sum.frames, sum.bytes)
        };
        let counts = |port: &PortDetails| [sum(&port.ingress), sum(&port.egress)];
        Ok(stats.ports.iter().map(|port| (port.name.clone(), counts(port))).collect())
    }

    /// Its addresses.
    pub(super) fn table(&mut self) -> Result<Vec<TableEntry>, VdeError> {
        self.ask(|client| client.table(SWITCH))
    }

    /// The number of a port, by its full name.
    pub(super) fn number_of(&self, name: &str) -> Option<u16> {
        let of_tap = self.taps.iter().find(|(_, tap)| *tap == name).map(|(number, _)| *number);
        of_tap.or_else(|| name.strip_prefix(SWITCH)?.strip_prefix(':')?.strip_prefix(PORT)?.parse().ok())
    }

    /// Makes a port, for plugs that ask for it.
    pub(super) fn reserve(&mut self, number: u16) -> Result<(), VdeError> {
        self.ask(|client| client.vde_set(VdeSetParams { reserve: vec![number], ..of_port() })).map(drop)
    }

    /// Makes a port, for any plug.
    pub(super) fn release(&mut self, number: u16) -> Result<(), VdeError> {
        self.ask(|client| client.vde_set(VdeSetParams { release: vec![number], ..of_port() })).map(drop)
    }

    /// Changes how many ports there may be.
    pub(super) fn limit(&mut self, ports: u32) -> Result<(), VdeError> {
        self.ask(|client| client.vde_set(VdeSetParams { peers: Some(peers(ports)), ..of_port() })).map(drop)
    }

    /// Removes a port, with its plug.
    pub(super) fn remove(&mut self, name: &str) -> Result<(), VdeError> {
        let port = name.split_once(':').map_or(name, |(_, port)| port).to_owned();
        self.ask(|client| client.detach(SWITCH, &port))
    }

    /// Sets policies of a port.
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

/// Ports of plugs on a switch with that many ports, with the unused number 0.
fn peers(ports: u32) -> u32 {
    ports.saturating_sub(1).clamp(1, MOST_PEERS)
}

fn shown(port: PortInfo) -> Option<(u16, ShownPort)> {
    match port.detail {
        Some(PortDetail::Vde(info)) => Some((info.number, ShownPort { name: port.name, of: ShownPeer::Plug(info) })),
        _ => None,
    }
}
