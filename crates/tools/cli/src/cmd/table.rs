//! `netvale table`: a switch's forwarding table.

use netvale_control::types::{GroupEntry, GroupsInfo, MulticastDomain, TableEntry};
use serde::Serialize;

use crate::grid;
use crate::grid::Align::{Left, Right};
use crate::{CliContext, CliError, out};

/// Show a switch's forwarding table.
///
/// For each address: the port on which it was learned, and the seconds since it was last seen; for an address behind a
/// tunnel, the remote endpoint (VTEP). With --groups, for each multicast group: the ports that receive it, and for how
/// many more seconds; then the queriers and the ports with routers.
#[derive(Debug, clap::Args)]
pub struct TableArgs {
    /// The switch, e.g. vale0.
    pub switch: String,

    /// Show multicast groups and their receivers instead.
    #[arg(long)]
    pub groups: bool,

    /// Print one JSON object instead of the table.
    #[arg(long)]
    pub json: bool,
}

/// The object of `--json`.
#[derive(Serialize)]
struct TableListing<'a> {
    switch: &'a str,
    entries: &'a [TableEntry],
}

/// Runs the subcommand.
///
/// # Errors
/// No daemon answers, or the switch does not exist.
pub fn run(args: &TableArgs, ctx: &CliContext) -> Result<(), CliError> {
    let mut daemon = ctx.daemon()?;
    if args.groups {
        let known = daemon.ask(|client| client.groups(&args.switch))?;
        return if args.json { out::json(&known) } else { out::text(render_groups(&args.switch, &known)) };
    }
    let entries = daemon.ask(|client| client.table(&args.switch))?;
    if args.json {
        out::json(&TableListing { switch: &args.switch, entries: &entries })
    } else {
        out::text(render(&entries))
    }
}

fn render_groups(switch: &str, known: &GroupsInfo) -> String {
    if !known.snooping {
        return format!("{switch} does not snoop: enable it with 'netvale port set {switch}:PORT mcast_snooping on'\n");
    }
    let vlan = |vlan: Option<u16>| vlan.map_or("-".into(), |vlan| vlan.to_string());
    let heads = [("VLAN", Right), ("GROUP", Left), ("PORT", Left), ("FOR s", Right)];
    let row =
        |one: &GroupEntry| [vlan(one.vlan), one.group.to_string(), one.port.clone(), one.expires_seconds.to_string()];
    let groups = grid::render(heads, known.groups.iter().map(row));
    let heads = [("VLAN", Right), ("FAMILY", Left), ("QUERIER", Left), ("ROUTERS", Left)];
    let row = |one: &MulticastDomain| {
        let querier = match &one.querier {
            Some(querier) => querier.to_string(),
            None if one.queries => "this switch".to_owned(),
            None => "none: groups are flooded".to_owned(),
        };
        let routers = if one.routers.is_empty() { "-".to_owned() } else { one.routers.join(" ") };
        [vlan(one.vlan), one.family.clone(), querier, routers]
    };
    format!("{groups}\n{}", grid::render(heads, known.domains.iter().map(row)))
}

fn render(entries: &[TableEntry]) -> String {
    let has_vlans = entries.iter().any(|entry| entry.vlan.is_some());
    let has_vteps = entries.iter().any(|entry| entry.vtep.is_some());
    let mut heads = Vec::new();
    heads.extend(has_vlans.then_some(("VLAN", Right)));
    heads.extend([("ADDRESS", Left), ("PORT", Left)]);
    heads.extend(has_vteps.then_some([("VTEP", Left), ("SEQ", Right)]).into_iter().flatten());
    heads.push(("AGE s", Right));
    let row = |entry: &TableEntry| {
        let mut row = Vec::new();
        row.extend(has_vlans.then(|| entry.vlan.unwrap_or_default().to_string()));
        row.extend([entry.mac.to_string(), entry.port.clone()]);
        let text = |word: Option<String>| word.unwrap_or_else(|| "-".into());
        if has_vteps {
            row.extend([text(entry.vtep.map(|ip| ip.to_string())), text(entry.sequence.map(|n| n.to_string()))]);
        }
        row.push(if entry.given { "given".to_owned() } else { entry.age_seconds.to_string() });
        row
    };
    grid::render_rows(&heads, entries.iter().map(row))
}

#[cfg(test)]
mod tests {
    use netvale_control::types::Mac;

    use super::*;

    /// Objective: the output has one line per group and port, and then one per VLAN and address family; for a switch
    /// without snooping, it has the command that enables snooping.
    #[test]
    fn each_group_and_port_has_a_line() {
        let group =
            GroupEntry { group: [239, 1, 1, 1].into(), vlan: Some(10), port: "vale0:a".into(), expires_seconds: 200 };
        let domain = MulticastDomain {
            vlan: Some(10),
            family: "ipv4".into(),
            active: true,
            querier: None,
            queries: true,
            routers: vec!["vale0:b".into()],
        };
        let mut known =
            GroupsInfo { snooping: true, groups: vec![group], domains: vec![domain], ..GroupsInfo::default() };
        let text = render_groups("vale0", &known);
        assert_eq!(
            text,
            "VLAN  GROUP      PORT     FOR s\n  10  239.1.1.1  vale0:a    200\n\n\
             VLAN  FAMILY  QUERIER      ROUTERS\n  10  ipv4    this switch  vale0:b\n"
        );
        known.snooping = false;
        assert!(render_groups("vale0", &known).starts_with("vale0 does not snoop"));
    }

    /// Objective: the output has one line per address, with the address's VLAN if VLANs are in use.
    #[test]
    fn each_address_has_a_line() {
        let entry = TableEntry {
            mac: Mac([2, 0, 0, 0, 0, 10]),
            vlan: None,
            port: "vale0:a".into(),
            age_seconds: 7,
            ..TableEntry::default()
        };
        assert_eq!(
            render(std::slice::from_ref(&entry)),
            "ADDRESS            PORT     AGE s\n02:00:00:00:00:0a  vale0:a      7\n"
        );
        let remote = TableEntry { vtep: Some([10, 0, 0, 2].into()), given: true, sequence: Some(3), ..entry.clone() };
        assert_eq!(
            render(&[remote]),
            "ADDRESS            PORT     VTEP      SEQ  AGE s\n02:00:00:00:00:0a  vale0:a  10.0.0.2    3  given\n"
        );
        let tagged = TableEntry { vlan: Some(10), ..entry };
        let expected = "VLAN  ADDRESS            PORT     AGE s\n  10  02:00:00:00:00:0a  vale0:a      7\n";
        assert_eq!(render(&[tagged]), expected);
    }
}
