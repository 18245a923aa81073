//! Finds the ports for a group's frames, and hears a port's messages about groups.

use std::sync::Arc;

use arc_swap::Guard;
use netvale_policy::snoop::{self, Groups, Message, PortSet, Router};
use netvale_port::DropReason;

use crate::entry::Entry;
use crate::policies::CompiledPolicies;
use crate::snooping::Snooping;

/// Knowledge of groups.
pub(super) struct Listener<'a> {
    snooping: &'a Snooping,
    groups: Guard<Option<Arc<Groups>>>,
}

impl Listener<'_> {
    pub(super) fn new(snooping: &Arc<Snooping>) -> Listener<'_> {
        Listener { snooping, groups: snooping.groups() }
    }

    /// The ports for a frame that does not go to a single one. `None`: all.
    #[inline]
    pub(super) fn members(
        &self,
        policies: &CompiledPolicies,
        me: &Entry,
        vlan: u16,
        head: &[u8],
        is_control: bool,
    ) -> Result<Option<&PortSet>, DropReason> {
        if is_control {
            return self.hear(policies, me, vlan, head);
        }
        Ok(self.groups.as_ref().and_then(|groups| groups.ports_of(vlan, head)))
    }

    /// Handles a message: reports go to routers; queries go everywhere, if allowed.
    #[cold]
    fn hear(
        &self,
        policies: &CompiledPolicies,
        me: &Entry,
        vlan: u16,
        head: &[u8],
    ) -> Result<Option<&PortSet>, DropReason> {
        let (message, family) = snoop::message(head);
        let groups = self.groups.as_ref();
        let to = match message {
            Message::Query | Message::Router if policies.multicast.router == Router::Never => {
                return Err(DropReason::RogueQuery);
            }
            Message::Report => groups.and_then(|groups| groups.routers(vlan, family)),
            Message::Query | Message::Router | Message::RefusedQuery => None,
            Message::Other | Message::Malformed => groups.and_then(|groups| groups.ports_of(vlan, head)),
        };
        if !matches!(message, Message::Other) && me.state.may_report() {
            self.snooping.hear(vlan, (me.id, me.since), head);
        }
        Ok(to)
    }
}
