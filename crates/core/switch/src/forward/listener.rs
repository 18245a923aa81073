//! Finds the ports to which multicast frames go, and passes multicast control messages to the thread that keeps the
//! switch's groups.

use std::sync::Arc;

use netvale_policy::snoop::{self, MessageClass, Router, SetNumber};
use netvale_port::DropReason;

use crate::entry::PortEntry;
use crate::policies::CompiledPolicies;
use crate::snooping::{CurrentGroups, Snooping};

/// The switch's multicast groups as they were when the batch began.
pub(super) struct GroupKnowledge<'a> {
    snooping: &'a Snooping,
    groups: CurrentGroups,
}

impl GroupKnowledge<'_> {
    pub(super) fn new(snooping: &Arc<Snooping>) -> GroupKnowledge<'_> {
        GroupKnowledge { snooping, groups: snooping.groups() }
    }

    /// Returns the groups by which frames were planned; the delivery of the frames uses the same groups.
    pub(super) fn into_groups(self) -> CurrentGroups {
        self.groups
    }

    /// Returns the set of ports to which a frame with a group address goes (`None`: all ports), or the reason for
    /// dropping the frame.
    #[inline]
    pub(super) fn members(
        &self,
        policies: &CompiledPolicies,
        me: &PortEntry,
        vlan: u16,
        head: &[u8],
        is_control: bool,
    ) -> Result<Option<SetNumber>, DropReason> {
        if is_control {
            return self.hear(policies, me, vlan, head);
        }
        Ok(self.groups.as_ref().and_then(|groups| groups.ports_of(vlan, head)))
    }

    /// Handles a multicast control message, and returns the set of ports to which it goes (`None`: all ports). Reports
    /// go to routers; queries go to all ports, if the sender may send queries.
    #[cold]
    fn hear(
        &self,
        policies: &CompiledPolicies,
        me: &PortEntry,
        vlan: u16,
        head: &[u8],
    ) -> Result<Option<SetNumber>, DropReason> {
        let (message, family) = snoop::message(head);
        let groups = self.groups.as_ref();
        let to = match message {
            MessageClass::Query | MessageClass::Router if policies.multicast.router == Router::Never => {
                return Err(DropReason::RogueQuery);
            }
            MessageClass::Report => groups.and_then(|groups| groups.routers(vlan, family)),
            MessageClass::Query | MessageClass::Router | MessageClass::RefusedQuery => None,
            MessageClass::Other | MessageClass::Malformed => groups.and_then(|groups| groups.ports_of(vlan, head)),
        };
        if !matches!(message, MessageClass::Other) && me.state.may_report() {
            self.snooping.hear(vlan, me.id, me.since, head);
        }
        Ok(to)
    }
}
