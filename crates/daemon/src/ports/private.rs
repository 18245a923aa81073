//! Private ports. The daemon picks a separate VLAN for each private port. Of the other ports, only a trunk of all
//! VLANs, such as a gateway's port, may be in that VLAN.

use netvale_control::types::{AttachParams, Policies};
use netvale_policy::vlan::{DEFAULT_VLAN, MAX_VLAN, VlanId, VlanSet};
use rustix::io::Errno;

use crate::daemon::{Daemon, DaemonPort};
use crate::refusal::Refusal;

/// The VLANs that the daemon picks for private ports: all except VLAN 1, which ports without VLAN policies use.
const VLANS: std::ops::RangeInclusive<VlanId> = DEFAULT_VLAN + 1..=MAX_VLAN;

/// Completes the policies of the port whose full name is `full`: if they make the port private but set no VLAN, the
/// port keeps its current VLAN, or gets one that no other port on the switch has.
///
/// # Errors
/// [`Refusal`] if no VLAN is free, or the policies give the port a VLAN that was picked for another port.
pub fn complete(d: &mut Daemon, switch: &str, full: &str, policies: Policies) -> Result<Policies, Refusal> {
    // A private trunk is impossible; it is refused when the policies are compiled.
    let has_vlans = name_vlans(&policies);
    if has_vlans {
        check(d, switch, full, &policies)?;
    }
    if policies.private != Some(true) || has_vlans {
        return Ok(policies);
    }
    let had = d.ports.get(full).filter(|record| record.policies.private == Some(true));
    let vlan = had.and_then(|record| record.policies.access).or_else(|| pick(d, switch, full)).ok_or_else(|| {
        let text = format!("private: every VLAN of switch {switch} is in use; use fewer private ports or trunks");
        Refusal::new(Errno::NOSPC, text)
    })?;
    Ok(Policies { access: Some(vlan), ..policies })
}

/// Returns whether the daemon picks a VLAN for a port with these attach parameters. Such ports are attached after all
/// other ports of a configuration file, so that the daemon picks no VLAN that one of the other ports names.
pub fn is_picked_for(d: &Daemon, params: &AttachParams) -> bool {
    let given = &params.options.policies;
    let is_private = [given.private, d.config.switch.policies.of(&params.switch).private].contains(&Some(true));
    is_private && !name_vlans(given)
}

fn name_vlans(policies: &Policies) -> bool {
    policies.access.is_some() || policies.trunk.is_some() || policies.native.is_some()
}

/// Checks that none of a port's VLANs was picked for another port on the switch.
fn check(d: &Daemon, switch: &str, full: &str, policies: &Policies) -> Result<(), Refusal> {
    let mut wanted = VlanSet::default();
    add_vlans(&mut wanted, policies);
    let picked = others(d, switch, full).filter_map(|(name, record)| Some((name, record.picked_vlan()?)));
    match picked.filter(|(_, vlan)| wanted.contains(*vlan)).min() {
        None => Ok(()),
        Some((name, vlan)) => {
            let text = format!("VLAN {vlan}: expected one that is not the private port {name}'s; choose another VLAN");
            Err(Refusal::new(Errno::INVAL, text))
        }
    }
}

/// Adds the VLANs that policies name. A trunk of all VLANs counts as naming no VLANs.
fn add_vlans(to: &mut VlanSet, policies: &Policies) {
    [policies.access, policies.native].into_iter().flatten().for_each(|vlan| to.insert(vlan));
    let trunk = policies.trunk.as_deref().filter(|trunk| !VLANS.into_iter().all(|vlan| trunk.contains(vlan)));
    trunk.into_iter().flat_map(VlanSet::iter).for_each(|vlan| to.insert(vlan));
}

/// Returns the switch's other ports, with their full names.
fn others<'a>(d: &'a Daemon, switch: &'a str, full: &'a str) -> impl Iterator<Item = (&'a str, &'a DaemonPort)> {
    let is_there = move |record: &DaemonPort| record.switch.as_ref().is_some_and(|known| known.name() == switch);
    d.ports.iter().filter(move |(name, record)| *name != full && is_there(record))
}

/// Picks a VLAN that no other port on the switch has; `None` if no VLAN is free. The search begins after the VLAN that
/// was picked last, so that a VLAN is not soon reused: stations may still have cached addresses of the port that had
/// the VLAN before.
fn pick(d: &mut Daemon, switch: &str, full: &str) -> Option<VlanId> {
    let taken = taken(d, switch, full);
    let last = d.switches.last_private();
    let mut after = (last.max(DEFAULT_VLAN) + 1..=MAX_VLAN).chain(VLANS).filter(|vlan| !taken.contains(*vlan));
    let vlan = after.next()?;
    d.switches.set_last_private(vlan);
    Some(vlan)
}

/// Returns the VLANs of the switch's other ports, except the VLANs of a trunk of all VLANs.
fn taken(d: &Daemon, switch: &str, full: &str) -> VlanSet {
    let mut taken = VlanSet::default();
    others(d, switch, full).for_each(|(_, record)| add_vlans(&mut taken, &record.policies));
    taken
}
