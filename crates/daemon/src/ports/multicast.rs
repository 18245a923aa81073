//! Multicast snooping of switches. It starts when a switch gets its first port whose policies request it, and ends when
//! the last such port is removed.

use std::sync::Arc;
use std::time::Duration;

use netvale_control::types::{GroupEntry, GroupsInfo, MulticastDomain};
use netvale_mem::notify::Doorbell;
use netvale_policy::snoop::{GroupFamily, Snoop};
use netvale_switch::{PortId, QueryTask, Switch};

use crate::daemon::Daemon;

/// Starts snooping on switches that now have a port that requests it, ends snooping on switches that no longer have
/// such a port, and processes snooped messages. Returns the time until the next call.
pub fn tick(d: &mut Daemon) -> Duration {
    let over = d.snoops.end();
    d.workers.retire(&over);
    let new: Vec<_> = d.switches.iter().filter(|switch| is_new(d, switch)).cloned().collect();
    for switch in new {
        if let Err(e) = begin(d, &switch) {
            tracing::warn!("switch {} cannot snoop on multicast groups: {e}", switch.name());
        }
    }
    d.snoops.tick()
}

fn is_new(d: &Daemon, switch: &Arc<Switch>) -> bool {
    switch.snooping().is_some() && d.snoops.get(switch.name()).is_none()
}

fn begin(d: &mut Daemon, switch: &Arc<Switch>) -> std::io::Result<()> {
    let Some(snooping) = switch.snooping() else { return Ok(()) };
    let bell = Arc::new(Doorbell::new()?);
    let task = QueryTask::new(Arc::clone(switch), Arc::clone(snooping), Arc::clone(&bell));
    let task = d.workers.place(Box::new(task));
    d.snoops.begin(switch, snooping, task, bell);
    Ok(())
}

/// Returns a switch's group membership. `name` returns a port's name, or `None` if the caller may not see the port.
pub fn groups(d: &Daemon, switch: &str, name: impl Fn(PortId) -> Option<String>) -> GroupsInfo {
    let Some(known) = d.snoops.get(switch) else { return GroupsInfo::default() };
    let now = d.snoops.now();
    let vlan = |vlan: u16| (vlan > 0).then_some(vlan);
    let entry = |one: netvale_policy::snoop::Membership| {
        let expires_seconds = one.expires_ns.saturating_sub(now) / 1_000_000_000;
        Some(GroupEntry { group: one.group, vlan: vlan(one.vlan), port: name(one.port)?, expires_seconds })
    };
    let counters = known.snoop.counters();
    GroupsInfo {
        snooping: true,
        groups: known.snoop.memberships().filter_map(entry).collect(),
        domains: domains(&known.snoop, &name).collect(),
        reports: counters.reports,
        queries: counters.queries,
        refused_joins: counters.refused_joins,
        malformed: counters.malformed,
        lost: known.snooping.lost(),
    }
}

fn domains(snoop: &Snoop, name: impl Fn(PortId) -> Option<String>) -> impl Iterator<Item = MulticastDomain> {
    snoop.domains().map(move |domain| MulticastDomain {
        vlan: (domain.vlan > 0).then_some(domain.vlan),
        family: if domain.family == GroupFamily::V4 { "ipv4" } else { "ipv6" }.to_owned(),
        active: domain.is_active,
        querier: domain.querier,
        queries: domain.is_asking,
        routers: domain.routers.iter().filter_map(&name).collect(),
    })
}
