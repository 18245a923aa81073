//! Multicast groups and their member ports: IGMP and MLD snooping, as in RFC 4541 and the Linux bridge.
//!
//! A [`Snoop`] belongs to one switch. It takes the messages of IGMPv1 to 3, MLDv1 and 2 and the hellos of multicast
//! routers that arrive at the switch's ports, and the time; it returns queries to send. Forwarding code reads a
//! [`SnoopGroups`], an immutable snapshot that is replaced after each change:
//!
//! ```text
//!   port's worker                       the owner of the Snoop                   all workers
//!   is_control(head) -- message -->  observe, tick, next_query  -- Groups -->  Groups::ports(vlan, mac)
//! ```
//!
//! Destinations of a frame for a group:
//!
//! | frame | destination |
//! |---|---|
//! | to a MAC address other than `01:00:5e:…` and `33:33:…` | all ports: only IP groups are reported |
//! | to 224.0.0.x or ff02::1 | all ports: hosts need not report these groups (RFC 4541 §2.1.2, §3) |
//! | in a VLAN without a querier, or before hosts had time to answer its first query | all ports |
//! | to a group with members | the members and the ports of routers |
//! | to another group | the ports of routers |
//!
//! Without a querier, hosts do not repeat reports, so the known groups are incomplete. Frames are looked up by their
//! MAC address, which 32 IPv4 groups share, or all IPv6 groups with the same last 32 bits. A frame goes to the members
//! of all of these groups, and hosts drop frames of groups that they have not joined. For example, frames to 239.0.0.5
//! are flooded, as they have the MAC address of 224.0.0.5.
//!
//! A join for some sources only (IGMPv3, MLDv2) counts as a join of the group for all sources. [`Counters`] count the
//! messages that arrive; an [`Expiry`] reports whether the passage of time has changed destinations.
//!
//! The numbers of a port's memberships and of a switch's groups are limited. A port that exceeds a limit gets the
//! frames of all groups until its last refused join has expired; other ports are not affected.

mod address;
mod domain;
mod groups;
mod message;
mod portset;
mod query;
mod settings;
mod table;
mod timers;

use std::collections::BTreeMap;
use std::net::IpAddr;

use netvale_wire::{MacAddr, ethernet};

pub use address::GroupFamily;
pub use groups::{SetNumber, SnoopGroups};
pub use message::is_control;
pub use portset::PortSet;
pub use query::Query;
pub use settings::{BadRouter, IgmpVersion, MldVersion, Multicast, Router, SnoopSettings};

use domain::Domain;
use message::{ControlMessage, GroupChange, HeardQuery};
use table::{JoinResult, MemberKey, MemberTable};

/// The result of [`Snoop::observe`]: the kind of the message, and its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnoopResult {
    /// The kind of the message.
    pub message: MessageClass,
    /// Whether the snapshot for forwarding has changed.
    pub changed: bool,
}

/// The kind of a message, which determines its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MessageClass {
    /// A report of groups that a host joins or leaves. It goes only to [`SnoopGroups::routers`], as other hosts that
    /// hear it suppress their own reports (RFC 4541 §2.1.1).
    Report,
    /// A query, which goes to all ports.
    Query,
    /// A query from a port that may have no router behind it. It is ignored, and must not be forwarded.
    RefusedQuery,
    /// A router's hello, which goes to all ports.
    Router,
    /// Another message, forwarded like other frames.
    Other,
    /// An unreadable message, forwarded like other frames.
    Malformed,
}

/// Counts of observed messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Number of messages that join or leave groups.
    pub reports: u64,
    /// Number of accepted queries.
    pub queries: u64,
    /// Number of queries from ports that may have no router behind them.
    pub refused_queries: u64,
    /// Number of hellos of routers.
    pub hellos: u64,
    /// Number of unreadable messages.
    pub malformed: u64,
    /// Number of joins refused because of a limit.
    pub refused_joins: u64,
}

/// The result of [`Snoop::tick`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expiry {
    /// Whether the snapshot for forwarding has changed.
    pub changed: bool,
    /// Time in ns at which [`Snoop::tick`] or [`Snoop::next_query`] must be called next; `u64::MAX` if never.
    pub next_ns: u64,
}

/// A port's membership in a group, for display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Membership {
    /// The VLAN; 0 in a switch without VLANs.
    pub vlan: u16,
    /// The group.
    pub group: IpAddr,
    /// The member port.
    pub port: u16,
    /// Time in ns at which the membership expires unless a report renews it.
    pub expires_ns: u64,
}

/// The state of one family of groups (IPv4 or IPv6) in one VLAN, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownDomain {
    /// The VLAN; 0 in a switch without VLANs.
    pub vlan: u16,
    /// The family.
    pub family: GroupFamily,
    /// Whether frames for groups go only to members and routers, not to all ports.
    pub is_active: bool,
    /// Whether this switch is the querier.
    pub is_asking: bool,
    /// The address of the querier; `None` if there is no querier, or if this switch is the querier.
    pub querier: Option<IpAddr>,
    /// Ports with a multicast router behind them.
    pub routers: PortSet,
}

/// The snooping state of one switch. Times are in ns and must not decrease. The VLAN is 0 in a switch without
/// VLANs.
#[derive(Debug)]
pub struct Snoop {
    settings: SnoopSettings,
    table: MemberTable,
    domains: BTreeMap<(u16, GroupFamily), Domain>,
    /// Ports that are configured to have a router behind them.
    always: PortSet,
    /// Ports that are configured to have no router behind them.
    never: PortSet,
    fast_leave: PortSet,
    counters: Counters,
}

impl Snoop {
    /// Creates the state of a switch that has received no messages yet.
    pub fn new(settings: SnoopSettings) -> Self {
        let settings = settings.clamped();
        Self {
            table: MemberTable::new(&settings),
            settings,
            domains: BTreeMap::new(),
            always: PortSet::EMPTY,
            never: PortSet::EMPTY,
            fast_leave: PortSet::EMPTY,
            counters: Counters::default(),
        }
    }

    /// Starts snooping in `vlan`, and querying if configured, before the first message arrives. Does nothing if
    /// snooping has started.
    pub fn watch(&mut self, now_ns: u64, vlan: u16) {
        for family in [GroupFamily::V4, GroupFamily::V6] {
            self.domain(now_ns, vlan, family);
        }
    }

    /// Removes all state of `vlan`. Returns whether the snapshot changed.
    pub fn unwatch(&mut self, vlan: u16) -> bool {
        let before = self.domains.len();
        self.domains.retain(|key, _| key.0 != vlan);
        self.table.retain(|key, _| key.0 != vlan) | (self.domains.len() != before)
    }

    /// Sets whether a router is behind `port`. Returns whether the snapshot changed.
    pub fn set_router(&mut self, port: u16, router: Router) -> bool {
        let before = self.always.has(port);
        self.always.set(port, router == Router::Always);
        self.never.set(port, router == Router::Never);
        let learned = router == Router::Never && self.domains.values_mut().any(|domain| domain.routers.has(port));
        if router == Router::Never {
            self.domains.values_mut().for_each(|domain| _ = domain.routers.remove(port));
        }
        self.always.has(port) != before || learned
    }

    /// Sets whether a leave from `port` ends the port's membership without a query, because only one host is behind the
    /// port.
    pub fn set_fast_leave(&mut self, port: u16, fast: bool) {
        self.fast_leave.set(port, fast);
    }

    /// Removes all state of `port`, which leaves the switch. Returns whether the snapshot changed.
    pub fn remove_port(&mut self, port: u16) -> bool {
        let mut changed = self.table.retain(|_, member| member != port);
        for domain in self.domains.values_mut() {
            changed |= domain.routers.remove(port) | domain.overflowing.remove(port);
        }
        changed |= self.always.has(port);
        for set in [&mut self.always, &mut self.never, &mut self.fast_leave] {
            set.set(port, false);
        }
        changed
    }

    /// Processes a message that arrived at `port`, in a frame for which [`is_control`] is true. `head` is a private
    /// copy of the whole frame: a message that exceeds it is malformed.
    pub fn observe(&mut self, now_ns: u64, vlan: u16, port: u16, head: &[u8]) -> SnoopResult {
        let Ok(control) = message::parse(head) else {
            self.counters.malformed += 1;
            return SnoopResult { message: MessageClass::Malformed, changed: false };
        };
        let (message, changed) = match control {
            ControlMessage::Query(query) => self.hear_query(now_ns, vlan, port, query),
            ControlMessage::Hello(family) => (MessageClass::Router, self.hear_hello(now_ns, vlan, port, family)),
            ControlMessage::Report(report) => {
                self.counters.reports += 1;
                let changes = report.fold(false, |changed, change| changed | self.apply(now_ns, vlan, port, change));
                (MessageClass::Report, changes)
            }
            ControlMessage::Other => (MessageClass::Other, false),
        };
        SnoopResult { message, changed }
    }

    /// Ends expired memberships, routers and queriers. Must be called at the time that the last call returned, and
    /// after each message, because a message may require an earlier time. Call [`Snoop::next_query`] first until no
    /// query is due: otherwise, the returned time is the time of the due query.
    pub fn tick(&mut self, now_ns: u64) -> Expiry {
        let mut changed = self.table.expire(now_ns);
        for domain in self.domains.values_mut() {
            changed |= domain.expire(now_ns, &self.settings);
        }
        let domains = self.domains.values().map(Domain::next).min().unwrap_or(u64::MAX);
        Expiry { changed, next_ns: domains.min(self.table.next()) }
    }

    /// Returns a query that is due. The caller must repeat the call until it returns `None`. Without the setting
    /// `querier` it always returns `None`.
    pub fn next_query(&mut self, now_ns: u64) -> Option<Query> {
        for (&(vlan, family), domain) in &mut self.domains {
            if domain.take_general_query(now_ns, &self.settings) {
                return Some(Query::general(&self.settings, vlan, family));
            }
        }
        while let Some((key, port)) = self.table.take_question(now_ns) {
            let (vlan, group) = key;
            // If another querier has taken over since the host left, that querier sends the query.
            if self.domains.get(&(vlan, GroupFamily::of(group))).is_some_and(Domain::is_asking) {
                return Some(Query::specific(&self.settings, vlan, port, group));
            }
        }
        None
    }

    /// Creates a snapshot for forwarding, which takes time and memory for each group.
    pub fn snapshot(&self) -> SnoopGroups {
        let mut groups = SnoopGroups::default();
        for (&(vlan, family), domain) in self.domains.iter().filter(|(_, domain)| domain.is_active()) {
            groups.add_domain(vlan, family, self.routers(domain), self.everything(domain));
        }
        for (&(vlan, group), members) in self.table.groups() {
            groups.add_members(vlan, group, &members);
        }
        groups
    }

    /// Returns the destinations of a frame to `mac`, like [`SnoopGroups::ports`]: ports, or `None` for all ports.
    /// Creates a snapshot each time; for several look-ups, use one snapshot.
    pub fn members(&self, vlan: u16, mac: MacAddr) -> Option<PortSet> {
        let groups = self.snapshot();
        groups.set(groups.ports(vlan, mac)?).cloned()
    }

    /// The memberships, by VLAN, group and port.
    pub fn memberships(&self) -> impl Iterator<Item = Membership> {
        self.table.memberships()
    }

    /// The ports of multicast routers of a family in a VLAN.
    pub fn router_ports(&self, vlan: u16, family: GroupFamily) -> PortSet {
        self.domains.get(&(vlan, family)).map_or_else(|| self.always.clone(), |domain| self.routers(domain))
    }

    /// Whether frames for groups of a family in a VLAN go only to members and routers, not to all ports.
    pub fn is_active(&self, vlan: u16, family: GroupFamily) -> bool {
        self.domains.get(&(vlan, family)).is_some_and(Domain::is_active)
    }

    /// The address of the querier of a family in a VLAN; `None` if there is no querier, or if this switch is the
    /// querier.
    pub fn querier(&self, vlan: u16, family: GroupFamily) -> Option<IpAddr> {
        self.domains.get(&(vlan, family)).and_then(Domain::querier)
    }

    /// The state of each VLAN and family.
    pub fn domains(&self) -> impl Iterator<Item = KnownDomain> {
        self.domains.iter().map(|(&(vlan, family), domain)| KnownDomain {
            vlan,
            family,
            is_active: domain.is_active(),
            is_asking: domain.is_asking(),
            querier: domain.querier(),
            routers: self.routers(domain),
        })
    }

    /// The counts of observed messages.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    fn routers(&self, domain: &Domain) -> PortSet {
        domain.routers.ports().union(&self.always)
    }

    /// The ports that get the frames of all groups: ports of routers, and ports with refused joins.
    fn everything(&self, domain: &Domain) -> PortSet {
        self.routers(domain).union(&domain.overflowing.ports())
    }

    fn domain(&mut self, now_ns: u64, vlan: u16, family: GroupFamily) -> &mut Domain {
        self.domains.entry((vlan, family)).or_insert_with(|| Domain::start(now_ns, family, &self.settings))
    }

    fn hear_query(&mut self, now_ns: u64, vlan: u16, port: u16, query: HeardQuery) -> (MessageClass, bool) {
        if self.never.has(port) {
            self.counters.refused_queries += 1;
            return (MessageClass::RefusedQuery, false);
        }
        self.counters.queries += 1;
        let expires = now_ns.saturating_add(self.settings.other_querier_interval_ns);
        let settings = self.settings;
        let domain = self.domain(now_ns, vlan, GroupFamily::of(query.source));
        // RFC 4541 §2.1.1 (1b): a query without a source address comes from a switch, not from a router.
        let changed = !query.source.is_unspecified() && domain.routers.set(port, expires);
        match query.group {
            None => domain.elect(now_ns, &query, &settings),
            Some(group) if query.lowers_timers => {
                // Members have this time to report again. A shorter time in the query is ignored, as members could not
                // answer within it.
                let wait = query.max_response_ns.max(settings.last_member_interval_ns);
                let until = now_ns.saturating_add(wait.saturating_mul(settings.last_member_count.into()));
                self.table.lower((vlan, group), until);
            }
            Some(_) => {}
        }
        (MessageClass::Query, changed)
    }

    fn hear_hello(&mut self, now_ns: u64, vlan: u16, port: u16, family: GroupFamily) -> bool {
        self.counters.hellos += 1;
        let expires = now_ns.saturating_add(self.settings.other_querier_interval_ns);
        !self.never.has(port) && self.domain(now_ns, vlan, family).routers.set(port, expires)
    }

    fn apply(&mut self, now_ns: u64, vlan: u16, port: u16, change: GroupChange) -> bool {
        match change {
            GroupChange::Join(group) => self.join(now_ns, (vlan, group), port),
            GroupChange::Leave(group) if self.fast_leave.has(port) => self.table.leave((vlan, group), port),
            GroupChange::Leave(group) | GroupChange::Ask(group) => {
                // Only the querier can ask whether another host behind the port wants the group.
                if self.domain(now_ns, vlan, GroupFamily::of(group)).is_asking() {
                    self.table.question(now_ns, (vlan, group), port);
                }
                false
            }
        }
    }

    fn join(&mut self, now_ns: u64, key: MemberKey, port: u16) -> bool {
        if !address::is_snooped(key.1) {
            return false;
        }
        let expires = now_ns.saturating_add(self.settings.membership_interval_ns);
        let domain = self.domains.entry((key.0, GroupFamily::of(key.1)));
        let domain = domain.or_insert_with(|| Domain::start(now_ns, GroupFamily::of(key.1), &self.settings));
        match self.table.join(key, port, expires) {
            JoinResult::Anew => true,
            JoinResult::Again => false,
            JoinResult::Refused => {
                self.counters.refused_joins += 1;
                domain.overflowing.set(port, expires)
            }
        }
    }
}

/// Returns the kind and family of a frame's message, for forwarding. [`Snoop::observe`] returns the same kind, except
/// for refused queries.
pub fn message(frame: &[u8]) -> (MessageClass, GroupFamily) {
    let is_v6 = ethernet::network(frame).is_ok_and(|(ethertype, _)| ethertype == ethernet::IPV6);
    let message = match message::parse(frame) {
        Ok(ControlMessage::Query(_)) => MessageClass::Query,
        Ok(ControlMessage::Hello(_)) => MessageClass::Router,
        Ok(ControlMessage::Report(_)) => MessageClass::Report,
        Ok(ControlMessage::Other) => MessageClass::Other,
        Err(_) => MessageClass::Malformed,
    };
    (message, if is_v6 { GroupFamily::V6 } else { GroupFamily::V4 })
}
