//! `netvale list`: switches and their ports.

use netvale_control::client::Client;
use netvale_control::types::{AllStats, EvictionInfo, PortDetails, PortInfo, PortKind, SwitchInfo};
use serde::Serialize;
use serde_json::Value;

use crate::grid;
use crate::grid::Align::{Left, Right};
use crate::{CliContext, CliError, out, units};

/// List switches and their ports.
///
/// STATE is open if a program has the port open, idle if the port waits for one. UID and PID identify the process that
/// created the port. IN counts the frames that a port sent into its switch, OUT those that the switch delivered to it.
/// ABOUT has the port's policy 'info' and its flags. GONE lists the last ports that ended without being detached, with
/// the reason: their device or peer ended, or their program broke a rule. AGO is the number of seconds since. If a
/// terminal is too narrow, columns of the ports are omitted; '--json' has all.
#[derive(Debug, clap::Args)]
pub struct PortListArgs {
    /// Only this switch.
    pub switch: Option<String>,

    /// Print one JSON object instead of the table.
    #[arg(long)]
    pub json: bool,
}

/// The object of `--json`: the switches and ports.
#[derive(Debug, Default, Serialize)]
struct PortListing {
    switches: Vec<SwitchInfo>,
    ports: Vec<ListedPort>,
    evicted: Vec<EvictionInfo>,
}

#[derive(Debug, Serialize)]
struct ListedPort {
    #[serde(flatten)]
    info: PortInfo,
    counters: PortSums,
}

/// A port's counters, summed over its rings.
#[derive(Debug, Serialize)]
struct PortSums {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    switch: Option<String>,
    kind: PortKind,
    in_frames: u64,
    in_bytes: u64,
    out_frames: u64,
    out_bytes: u64,
    drops: u64,
    kicks_sent: u64,
    kicks_suppressed: u64,
    kicks_received: u64,
}

impl From<PortDetails> for PortSums {
    fn from(port: PortDetails) -> PortSums {
        let sent = port.sent();
        let got = port.got();
        PortSums {
            in_frames: sent.frames,
            in_bytes: sent.bytes,
            out_frames: got.frames,
            out_bytes: got.bytes,
            drops: port.drops(),
            name: port.name,
            switch: port.switch,
            kind: port.kind,
            kicks_sent: port.kicks_sent,
            kicks_suppressed: port.kicks_suppressed,
            kicks_received: port.kicks_received,
        }
    }
}

/// Runs the subcommand.
///
/// # Errors
/// No daemon answers, or the switch does not exist.
pub fn run(args: &PortListArgs, ctx: &CliContext) -> Result<(), CliError> {
    let mut daemon = ctx.daemon()?;
    let mut switches = daemon.ask(Client::switches)?;
    if let Some(wanted) = &args.switch {
        switches.retain(|switch| switch.name == *wanted);
        if switches.is_empty() {
            let what = format!("switch {wanted} does not exist");
            return Err(CliError::refused(what, "'netvale list' shows all switches"));
        }
    }
    let infos = daemon.ask(|client| client.ports(args.switch.as_deref()))?;
    let ports = with_counters(infos, daemon.ask(Client::all_stats)?);
    let mut evicted = daemon.ask(Client::evicted)?;
    evicted.retain(|one| args.switch.as_ref().is_none_or(|switch| one.port.starts_with(&format!("{switch}:"))));
    let listing = PortListing { switches, ports, evicted };
    if args.json { out::json(&listing) } else { out::text(render(&listing, out::width())) }
}

/// Joins ports and counters by name. A port that was added between the requests for ports and for counters has no
/// counters yet.
fn with_counters(infos: Vec<PortInfo>, mut stats: AllStats) -> Vec<ListedPort> {
    let mut counters = |name: &str| {
        let found = stats.ports.iter().position(|port| port.name == name);
        found.map(|index| stats.ports.swap_remove(index)).unwrap_or_default().into()
    };
    infos.into_iter().map(|info| ListedPort { counters: counters(&info.name), info }).collect()
}

fn render(listing: &PortListing, width: Option<usize>) -> String {
    let mut tables = vec![switches(&listing.switches)];
    if listing.switches.is_empty() && listing.ports.is_empty() {
        tables = vec!["no switches; `netvale attach vale0 a` makes one with a port\n".to_owned()];
    }
    tables.extend((!listing.ports.is_empty()).then(|| ports(&listing.ports, width)));
    tables.extend((!listing.evicted.is_empty()).then(|| evicted(&listing.evicted)));
    tables.join("\n")
}

fn switches(switches: &[SwitchInfo]) -> String {
    let heads = [("SWITCH", Left), ("PORTS", Right), ("ADDRESSES", Right), ("ROOM FOR", Right)];
    let row = |one: &SwitchInfo| {
        [one.name.clone(), one.ports.to_string(), one.addresses.to_string(), one.table_size.to_string()]
    };
    grid::render(heads, switches.iter().map(row))
}

fn ports(ports: &[ListedPort], width: Option<usize>) -> String {
    let heads = [
        ("PORT", Left),
        ("KIND", Left),
        ("STATE", Left),
        ("UID", Right),
        ("PID", Right),
        ("REGION", Right),
        ("MEMORY", Right),
        ("IN", Right),
        ("OUT", Right),
        ("DROPS", Right),
        ("ABOUT", Left),
    ];
    grid::render_within(heads, ports.iter().map(row), &["REGION", "PID", "MEMORY", "UID", "KIND", "STATE"], width)
}

fn evicted(evicted: &[EvictionInfo]) -> String {
    let heads = [("GONE", Left), ("UID", Right), ("PID", Right), ("AGO", Right), ("REASON", Left)];
    let row = |one: &EvictionInfo| {
        let uid = one.owner.uid.to_string();
        let pid = one.owner.pid.to_string();
        [one.port.clone(), uid, pid, one.age_seconds.to_string(), one.reason.clone()]
    };
    grid::render(heads, evicted.iter().map(row))
}

fn row(port: &ListedPort) -> [String; 11] {
    let ListedPort { info, counters } = port;
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    [
        info.name.clone(),
        info.kind.to_string(),
        info.state.to_string(),
        or_dash(info.owner.map(|owner| owner.uid.to_string())),
        or_dash(info.owner.map(|owner| owner.pid.to_string())),
        or_dash(info.region.map(|region| region.id.to_string())),
        or_dash(info.region.map(|region| units::memory(region.bytes))),
        counters.in_frames.to_string(),
        counters.out_frames.to_string(),
        counters.drops.to_string(),
        flags(info),
    ]
}

fn flags(info: &PortInfo) -> String {
    let mut flags = Vec::new();
    flags.extend(info.policies.get("info").and_then(Value::as_str).map(str::to_owned));
    flags.extend(info.lossless.then(|| "lossless".to_owned()));
    flags.extend((info.vnet_hdr > 0).then(|| format!("vnet-hdr={}", info.vnet_hdr)));
    flags.join(" ")
}

#[cfg(test)]
mod tests {
    use netvale_control::types::{Owner, PortState, RegionInfo, RingStats};

    use super::*;

    /// Objective: columns are aligned, a missing value is a dash, and the counters in a port's row are those of this
    /// port.
    #[test]
    fn columns_are_aligned() {
        let switch =
            SwitchInfo { name: "vale0".into(), ports: 2, addresses: 3, table_size: 16_384, ..SwitchInfo::default() };
        let info = |name: &str| PortInfo { name: name.into(), ..PortInfo::default() };
        let tap =
            PortInfo { kind: PortKind::Tap, state: PortState::Open, vnet_hdr: 12, lossless: true, ..info("vale0:nv0") };
        let local = PortInfo {
            owner: Some(Owner { uid: 0, pid: 4242 }),
            region: Some(RegionInfo { id: 2, bytes: 4 << 20, ..RegionInfo::default() }),
            ..info("vale0:a")
        };
        let counters = PortDetails {
            name: "vale0:nv0".into(),
            ingress: vec![RingStats { frames: 10, ..RingStats::default() }],
            out_drops: [("no-room".to_owned(), 1)].into(),
            ..PortDetails::default()
        };
        let stats = AllStats { ports: vec![counters], ..AllStats::default() };
        let owner = Owner { uid: 1000, pid: 77 };
        let gone = EvictionInfo { port: "vale0:b".into(), owner, reason: "it is gone".into(), age_seconds: 5 };
        let listing =
            PortListing { switches: vec![switch], ports: with_counters(vec![local, tap], stats), evicted: vec![gone] };
        let text = render(&listing, None);
        let expected = "\
SWITCH  PORTS  ADDRESSES  ROOM FOR
vale0       2          3     16384

PORT       KIND   STATE  UID   PID  REGION   MEMORY  IN  OUT  DROPS  ABOUT
vale0:a    local  idle     0  4242       2  4.0 MiB   0    0      0
vale0:nv0  tap    open     -     -       -        -  10    0      1  lossless vnet-hdr=12

GONE      UID  PID  AGO  REASON
vale0:b  1000   77    5  it is gone
";
        assert_eq!(text, expected);
    }

    /// Objective: the list of a daemon without ports suggests the next step.
    #[test]
    fn an_empty_list_suggests_the_next_step() {
        assert!(render(&PortListing::default(), None).contains("netvale attach"));
    }
}
