//! Multicast groups and their member ports: IGMP and MLD snooping, as in RFC 4541 and the Linux bridge.
//!
//! A [`Snoop`] belongs to one switch. It takes the messages of IGMPv1 to 3, MLDv1 and 2 and the hellos of multicast
//! routers that arrive at the switch's ports, and the time; it returns queries to send. Forwarding code reads a
//! [`Groups`] instead, an immutable snapshot that is renewed after a change:
//!
//! ```text
//!   port's worker                       the owner of the Snoop                   all workers
//!   is_control(head) -- message -->  observe, tick, next_query  -- Groups -->  Groups::ports(vlan, mac)
//! ```
//!
//! Destinations of a frame for a group:
//!
//! | destination | goes to |
//! |---|---|
//! | not `01:00:5e:…` or `33:33:…` | all ports: only IP groups are reported |
//! | 224.0.0.x, ff02::1 | all ports: hosts need not report these (RFC 4541 §2.1.2, §3) |
//! | a VLAN without a querier, or with one for less than hosts may take to answer | all ports |
//! | a group with members | its members and the ports of routers |
//! | another group | the ports of routers |
//!
//! Without a querier, hosts do not repeat reports, so the known groups are incomplete. Frames are looked up by their
//! MAC address, which 32 IPv4 groups share, and all IPv6 groups with the same last 32 bits: a frame goes to the members
//! of all of them, and hosts drop frames of groups they did not join. So 239.0.0.5 is flooded, as its address is that
//! of 224.0.0.5.
//!
//! Counters count messages; an expiry reports changes by time. Sources are not distinguished: a join for some sources
//! (IGMPv3, MLDv2) is a join of the group.
//!
//! Both a port's memberships and a switch's groups are limited. A port that joins more gets the frames of all groups
//! until it has been quiet for long enough; other ports are unaffected.

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

pub use address::Family;
pub use groups::Groups;
pub use message::is_control;
pub use portset::PortSet;
pub use query::Query;
pub use settings::{BadRouter, IgmpVersion, MldVersion, Multicast, Router, Settings};

use domain::Domain;
use message::{Change, Control, HeardQuery};
use table::{Joined, Key, Table};

/// The kind of a message, and whether [`Snoop::snapshot`] has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed {
    /// The message's kind.
    pub message: Message,
    /// Whether the snapshot for forwarding has changed.
    pub changed: bool,
}

/// The kind of a message, which decides its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Message {
    /// Reports groups that a host wants, or no longer wants. Goes only to [`Groups::routers`], lest other hosts
    /// suppress theirs (RFC 4541 §2.1.1).
    Report,
    /// Asks for reports: goes everywhere.
    Query,
    /// A query from a port that may have no router behind it. It is ignored and should not be forwarded.
    RefusedQuery,
    /// A router announces itself: goes everywhere.
    Router,
    /// Another message, forwarded like other frames.
    Other,
    /// An unreadable message, forwarded like other frames.
    Malformed,
}

/// Counts of observed messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages that join or leave groups.
    pub reports: u64,
    /// Queries.
    pub queries: u64,
    /// Queries from ports that may have no router behind them.
    pub refused_queries: u64,
    /// Hellos of routers.
    pub hellos: u64,
    /// Unreadable messages.
    pub malformed: u64,
    /// Joins beyond the limits.
    pub refused_joins: u64,
}

/// Changes by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expiry {
    /// Whether the snapshot for forwarding has changed.
    pub changed: bool,
    /// When [`Snoop::tick`] or [`Snoop::next_query`] next has work, in ns; `u64::MAX` if never.
    pub next_ns: u64,
}

/// A port's membership in a group, for display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Membership {
    /// VLAN; 0 in a switch without.
    pub vlan: u16,
    /// The group.
    pub group: IpAddr,
    /// The port.
    pub port: u8,
    /// When it expires unless reported again, in ns.
    pub expires_ns: u64,
}

/// One family in one VLAN, for display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownDomain {
    /// VLAN; 0 in a switch without.
    pub vlan: u16,
    /// The family.
    pub family: Family,
    /// Whether groups are forwarded separately.
    pub is_active: bool,
    /// Whether this switch is the querier.
    pub is_asking: bool,
    /// The querier, if it is another.
    pub querier: Option<IpAddr>,
    /// The ports of routers.
    pub routers: PortSet,
}

/// The snooping of one switch. Times are in ns and must not go back; ports are 0 to 254; the VLAN is 0 in a switch
/// without VLANs.
#[derive(Debug)]
pub struct Snoop {
    settings: Settings,
    table: Table,
    domains: BTreeMap<(u16, Family), Domain>,
    /// Ports configured as routers', and ports configured as never routers'.
    always: PortSet,
    never: PortSet,
    fast_leave: PortSet,
    counters: Counters,
}

impl Snoop {
    /// Creates the snooping of a switch that has heard no messages yet.
    pub fn new(settings: Settings) -> Self {
        let settings = settings.clamped();
        Self {
            table: Table::new(&settings),
            settings,
            domains: BTreeMap::new(),
            always: PortSet::EMPTY,
            never: PortSet::EMPTY,
            fast_leave: PortSet::EMPTY,
            counters: Counters::default(),
        }
    }

    /// Starts snooping in `vlan`, and querying if configured, ahead of the first message there. Does nothing the second
    /// time.
    pub fn watch(&mut self, now_ns: u64, vlan: u16) {
        for family in [Family::V4, Family::V6] {
            self.domain(now_ns, vlan, family);
        }
    }

    /// Forgets all of `vlan`. Returns whether the snapshot changed.
    pub fn unwatch(&mut self, vlan: u16) -> bool {
        let before = self.domains.len();
        self.domains.retain(|key, _| key.0 != vlan);
        self.table.retain(|key, _| key.0 != vlan) | (self.domains.len() != before)
    }

    /// Sets whether a router is behind `port`. Returns whether the snapshot changed.
    pub fn set_router(&mut self, port: u8, router: Router) -> bool {
        let before = self.always;
        self.always.set(port, router == Router::Always);
        self.never.set(port, router == Router::Never);
        let learned = router == Router::Never && self.domains.values_mut().any(|domain| domain.routers.has(port));
        if router == Router::Never {
            self.domains.values_mut().for_each(|domain| _ = domain.routers.remove(port));
        }
        self.always != before || learned
    }

    /// Sets whether a leave from `port` ends its membership without a query, because one host is behind it.
    pub fn set_fast_leave(&mut self, port: u8, fast: bool) {
        self.fast_leave.set(port, fast);
    }

    /// Forgets `port` when it leaves the switch. Returns whether the snapshot changed.
    pub fn remove_port(&mut self, port: u8) -> bool {
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

    /// Learns from a frame that arrived at `port` and passed [`is_control`]. `head` is a private copy of the whole
    /// frame: a message that does not end in it is malformed.
    pub fn observe(&mut self, now_ns: u64, vlan: u16, port: u8, head: &[u8]) -> Observed {
        let Ok(control) = message::parse(head) else {
            self.counters.malformed += 1;
            return Observed { message: Message::Malformed, changed: false };
        };
        let (message, changed) = match control {
            Control::Query(query) => self.hear_query(now_ns, vlan, port, query),
            Control::Hello(family) => (Message::Router, self.hear_hello(now_ns, vlan, port, family)),
            Control::Report(report) => {
                self.counters.reports += 1;
                let changes = report.fold(false, |changed, change| changed | self.apply(now_ns, vlan, port, change));
                (Message::Report, changes)
            }
            Control::Other => (Message::Other, false),
        };
        Observed { message, changed }
    }

    /// Ends what has expired. Call it no later than the time that the last call returned, and after messages, which may
    /// have made that earlier; and call [`Snoop::next_query`] before it, as a due query counts as pending work.
    pub fn tick(&mut self, now_ns: u64) -> Expiry {
        let mut changed = self.table.expire(now_ns);
        for domain in self.domains.values_mut() {
            changed |= domain.expire(now_ns, &self.settings);
        }
        let domains = self.domains.values().map(Domain::next).min().unwrap_or(u64::MAX);
        Expiry { changed, next_ns: domains.min(self.table.next()) }
    }

    /// Returns a due query: call it until it returns `None`, as it always does without the setting `querier`.
    pub fn next_query(&mut self, now_ns: u64) -> Option<Query> {
        for (&(vlan, family), domain) in &mut self.domains {
            if domain.take_general_query(now_ns, &self.settings) {
                return Some(Query::general(&self.settings, vlan, family));
            }
        }
        while let Some((key, port)) = self.table.take_question(now_ns) {
            let (vlan, group) = key;
            // Another querier may have taken over since the host left; it then sends the query.
            if self.domains.get(&(vlan, Family::of(group))).is_some_and(Domain::is_asking) {
                return Some(Query::specific(&self.settings, vlan, port, group));
            }
        }
        None
    }

    /// A snapshot for forwarding. Takes time and memory for each group.
    pub fn snapshot(&self) -> Groups {
        let mut groups = Groups::default();
        for (&(vlan, family), domain) in self.domains.iter().filter(|(_, domain)| domain.is_active()) {
            groups.add_domain(vlan, family, self.routers(domain), self.everything(domain));
        }
        for (&(vlan, group), members) in self.table.groups() {
            groups.add_members(vlan, group, members);
        }
        groups
    }

    /// Destinations of a frame to `mac`, the same as [`Groups::ports`] of a snapshot would return: for a single
    /// look-up.
    pub fn members(&self, vlan: u16, mac: MacAddr) -> Option<PortSet> {
        self.snapshot().ports(vlan, mac).copied()
    }

    /// The memberships, by VLAN, group and port.
    pub fn memberships(&self) -> impl Iterator<Item = Membership> {
        self.table.memberships()
    }

    /// The ports of multicast routers of a family in a VLAN.
    pub fn router_ports(&self, vlan: u16, family: Family) -> PortSet {
        self.domains.get(&(vlan, family)).map_or(self.always, |domain| self.routers(domain))
    }

    /// Whether a family's querier in a VLAN has been known for long enough to forward groups separately.
    pub fn is_active(&self, vlan: u16, family: Family) -> bool {
        self.domains.get(&(vlan, family)).is_some_and(Domain::is_active)
    }

    /// The querier of a family in a VLAN, if it is another than this switch.
    pub fn querier(&self, vlan: u16, family: Family) -> Option<IpAddr> {
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
        domain.routers.ports().union(self.always)
    }

    /// The ports that get the frames of all groups.
    fn everything(&self, domain: &Domain) -> PortSet {
        self.routers(domain).union(domain.overflowing.ports())
    }

    fn domain(&mut self, now_ns: u64, vlan: u16, family: Family) -> &mut Domain {
        self.domains.entry((vlan, family)).or_insert_with(|| Domain::start(now_ns, family, &self.settings))
    }

    fn hear_query(&mut self, now_ns: u64, vlan: u16, port: u8, query: HeardQuery) -> (Message, bool) {
        if self.never.has(port) {
            self.counters.refused_queries += 1;
            return (Message::RefusedQuery, false);
        }
        self.counters.queries += 1;
        let expires = now_ns.saturating_add(self.settings.other_querier_interval_ns);
        let settings = self.settings;
        let domain = self.domain(now_ns, vlan, Family::of(query.source));
        // RFC 4541 §2.1.1 (1b): a switch that only stands in for a router has no address.
        let changed = !query.source.is_unspecified() && domain.routers.set(port, expires);
        match query.group {
            None => domain.elect(now_ns, &query, &settings),
            Some(group) if query.lowers_timers => {
                // Members have this long to report again. A shorter time is ignored: it would end before they had a
                // chance.
                let wait = query.max_response_ns.max(settings.last_member_interval_ns);
                let until = now_ns.saturating_add(wait.saturating_mul(settings.last_member_count.into()));
                self.table.lower((vlan, group), until);
            }
            Some(_) => {}
        }
        (Message::Query, changed)
    }

    fn hear_hello(&mut self, now_ns: u64, vlan: u16, port: u8, family: Family) -> bool {
        self.counters.hellos += 1;
        let expires = now_ns.saturating_add(self.settings.other_querier_interval_ns);
        !self.never.has(port) && self.domain(now_ns, vlan, family).routers.set(port, expires)
    }

    fn apply(&mut self, now_ns: u64, vlan: u16, port: u8, change: Change) -> bool {
        match change {
            Change::Join(group) => self.join(now_ns, (vlan, group), port),
            Change::Leave(group) if self.fast_leave.has(port) => self.table.leave((vlan, group), port),
            Change::Leave(group) | Change::Ask(group) => {
                // Only a querier can find out whether another host behind the port wants the group.
                if self.domain(now_ns, vlan, Family::of(group)).is_asking() {
                    self.table.question(now_ns, (vlan, group), port);
                }
                false
            }
        }
    }

    fn join(&mut self, now_ns: u64, key: Key, port: u8) -> bool {
        if !address::is_snooped(key.1) {
            return false;
        }
        let expires = now_ns.saturating_add(self.settings.membership_interval_ns);
        let domain = self.domains.entry((key.0, Family::of(key.1)));
        let domain = domain.or_insert_with(|| Domain::start(now_ns, Family::of(key.1), &self.settings));
        match self.table.join(key, port, expires) {
            Joined::Anew => true,
            Joined::Again => false,
            Joined::Refused => {
                self.counters.refused_joins += 1;
                domain.overflowing.set(port, expires)
            }
        }
    }
}

/// The kind and family of a frame's message, for forwarding. [`Snoop::observe`] returns the same kind, except for
/// refused queries.
pub fn message(frame: &[u8]) -> (Message, Family) {
    let is_v6 = ethernet::network(frame).is_ok_and(|(ethertype, _)| ethertype == ethernet::IPV6);
    let message = match message::parse(frame) {
        Ok(Control::Query(_)) => Message::Query,
        Ok(Control::Hello(_)) => Message::Router,
        Ok(Control::Report(_)) => Message::Report,
        Ok(Control::Other) => Message::Other,
        Err(_) => Message::Malformed,
    };
    (message, if is_v6 { Family::V6 } else { Family::V4 })
}
