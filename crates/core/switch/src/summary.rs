//! A summary of the policies of all ports on a switch.

use std::sync::Arc;

use netvale_policy::vlan::{Tagging, VlanId, Vlans};

use crate::entry::PortEntry;
use crate::fdb::PortId;
use crate::policies::{CompiledPolicies, KINDS, kind};

/// The policies of a switch that has policies or a trace on at least one port.
pub(crate) struct PolicySummary {
    /// Whether the ports have only traces, and no policies.
    pub(crate) is_only_traced: bool,
    /// Whether frames belong to VLANs.
    pub(crate) vlans: bool,
    /// Whether any port's policies need the members of multicast groups.
    pub(crate) snoops: bool,
    /// For each kind of tag, whether frames with this kind may leave any port.
    pub(crate) kinds: [bool; KINDS],
    /// Whether any port has filters for the frames that it gets.
    pub(crate) is_filtered: bool,
    /// Whether a filter for frames that a port gets may read bytes beyond a frame's head.
    pub(crate) is_deep: bool,
    /// Whether a filter for frames that a port gets may read bytes beyond the headers of a segment.
    pub(crate) looks_at_payload: bool,
    /// Addresses that a policy fixes behind a port, sorted.
    pinned: Vec<(u64, PortId)>,
    /// Default policies, for ports without policies.
    blank: CompiledPolicies,
    default_vlans: Vlans,
}

impl PolicySummary {
    /// Creates the summary of a switch without policies.
    pub(crate) fn none() -> PolicySummary {
        PolicySummary {
            is_only_traced: true,
            vlans: false,
            snoops: false,
            kinds: [true, false, false],
            is_filtered: false,
            is_deep: false,
            looks_at_payload: false,
            pinned: Vec::new(),
            blank: CompiledPolicies::default(),
            default_vlans: Vlans::default(),
        }
    }

    pub(crate) fn of(entries: &[Arc<PortEntry>]) -> Option<Box<PolicySummary>> {
        if entries.iter().all(|entry| entry.port.policies.is_none() && entry.traces.is_empty()) {
            return None;
        }
        let policies = || entries.iter().filter_map(|entry| Some((entry.id, entry.port.policies.as_deref()?)));
        let is_only_traced = policies().next().is_none();
        let mut pinned: Vec<_> =
            policies().flat_map(|(id, policies)| policies.addresses.iter().map(move |&mac| (mac, id))).collect();
        pinned.sort_unstable();
        pinned.dedup_by_key(|(mac, _)| *mac);
        let protocols = policies().filter_map(|(_, policies)| policies.vlans.as_ref()).map(|vlans| vlans.protocol);
        let mut kinds = [true, false, false];
        protocols.clone().for_each(|protocol| kinds[kind(Tagging::Tagged(protocol))] = true);
        let vlans = protocols.count() > 0;
        let is_filtered = policies().any(|(_, policies)| !policies.filters[1].rules().is_empty());
        let is_deep = policies().any(|(_, policies)| policies.filters[1].are_deep());
        let looks_at_payload = policies().any(|(_, policies)| policies.filters[1].reach_payload());
        let snoops = policies().any(|(_, policies)| policies.multicast.needs_groups());
        Some(Box::new(PolicySummary {
            is_only_traced,
            vlans,
            snoops,
            kinds,
            is_filtered,
            is_deep,
            looks_at_payload,
            pinned,
            ..PolicySummary::none()
        }))
    }

    /// The policies of a port; the default policies if the port has none.
    #[inline]
    pub(crate) fn policies<'a>(&'a self, of: &'a PortEntry) -> &'a CompiledPolicies {
        of.port.policies.as_deref().unwrap_or(&self.blank)
    }

    /// The VLANs of a port with these policies, on a switch with VLANs.
    #[inline]
    pub(crate) fn vlans<'a>(&'a self, of: &'a CompiledPolicies) -> &'a Vlans {
        of.vlans.as_ref().unwrap_or(&self.default_vlans)
    }

    /// The kind of tag with which frames of a VLAN leave a port; `None` if the port is not in the VLAN.
    #[inline]
    pub(crate) fn kind(&self, of: &CompiledPolicies, vlan: VlanId) -> Option<usize> {
        if self.vlans { self.vlans(of).tagging(vlan).map(kind) } else { Some(0) }
    }

    /// The port behind which a policy fixes this address; `None` if no policy fixes it.
    #[inline]
    pub(crate) fn pinned(&self, mac: u64) -> Option<PortId> {
        if self.pinned.is_empty() {
            return None;
        }
        let at = self.pinned.binary_search_by_key(&mac, |(pinned, _)| *pinned).ok()?;
        self.pinned.get(at).map(|(_, port)| *port)
    }
}
