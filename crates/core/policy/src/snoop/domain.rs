//! The state of one family of groups (IPv4 or IPv6) in one VLAN: its querier and its routers.

use std::net::{IpAddr, Ipv4Addr};

use super::address::{self, GroupFamily};
use super::message::HeardQuery;
use super::settings::SnoopSettings;
use super::timers::Timers;

/// The querier and the routers of a family in a VLAN.
#[derive(Debug)]
pub(super) struct Domain {
    /// The source address of this switch's queries.
    own_addr: IpAddr,
    /// The general queries of this switch, if it queries.
    own: Option<OwnQuerier>,
    /// The other querier, if one has taken over.
    other: Option<OtherQuerier>,
    /// Time in ns at which hosts have had enough time to answer the first query.
    settled_at: u64,
    active: bool,
    /// Ports at which messages of routers have arrived.
    pub routers: Timers,
    /// Ports whose groups are not all recorded, because a limit was reached and joins were refused.
    pub overflowing: Timers,
}

#[derive(Debug)]
struct OwnQuerier {
    next: u64,
    /// Number of queries left at the shorter startup interval.
    startup_left: u8,
}

impl OwnQuerier {
    fn start(now_ns: u64, settings: &SnoopSettings) -> Self {
        Self { next: now_ns, startup_left: settings.startup_query_count }
    }
}

#[derive(Debug)]
struct OtherQuerier {
    addr: IpAddr,
    until: u64,
}

impl Domain {
    /// Creates an empty domain. As in Linux, frames for groups go to all ports until hosts have had time to answer the
    /// first query.
    pub fn start(now_ns: u64, family: GroupFamily, settings: &SnoopSettings) -> Self {
        let own_addr = match family {
            GroupFamily::V4 => Ipv4Addr::UNSPECIFIED.into(),
            GroupFamily::V6 => address::link_local(settings.mac).into(),
        };
        Self {
            own_addr,
            own: settings.querier.then(|| OwnQuerier::start(now_ns, settings)),
            other: None,
            settled_at: now_ns.saturating_add(settings.query_response_interval_ns),
            active: false,
            routers: Timers::default(),
            overflowing: Timers::default(),
        }
    }

    /// Whether frames for groups go only to members and routers, not to all ports.
    pub fn is_active(&self) -> bool {
        self.active
    }

    /// Whether this switch is the querier.
    pub fn is_asking(&self) -> bool {
        self.own.is_some() && self.other.is_none()
    }

    /// The address of the querier; `None` if there is no querier, or if this switch is the querier.
    pub fn querier(&self) -> Option<IpAddr> {
        self.other.as_ref().map(|other| other.addr)
    }

    /// Handles a general query of another querier. The querier with the lowest address is elected (RFC 2236 §3, RFC
    /// 3810 §7.6.2); a querier without an address yields to a querier with an address, and replaces another querier
    /// without an address.
    pub fn elect(&mut self, now_ns: u64, query: &HeardQuery, settings: &SnoopSettings) {
        let holder = match &self.other {
            Some(other) => Some(other.addr),
            None => self.own.as_ref().map(|_| self.own_addr),
        };
        match holder {
            Some(holder) if rank(query.source) > rank(holder) => return,
            Some(_) => {}
            None => {
                let wait = query.max_response_ns.min(settings.membership_interval_ns);
                self.settled_at = now_ns.saturating_add(wait);
            }
        }
        let until = now_ns.saturating_add(settings.other_querier_interval_ns);
        self.other = Some(OtherQuerier { addr: query.source, until });
    }

    /// Returns whether a general query is due. If so, counts it as sent, and schedules the next general query.
    pub fn take_general_query(&mut self, now_ns: u64, settings: &SnoopSettings) -> bool {
        let asking = self.is_asking();
        let Some(own) = self.own.as_mut().filter(|own| asking && own.next <= now_ns) else {
            return false;
        };
        own.startup_left = own.startup_left.saturating_sub(1);
        let interval =
            if own.startup_left > 0 { settings.startup_query_interval_ns } else { settings.query_interval_ns };
        own.next = now_ns.saturating_add(interval);
        true
    }

    /// Removes what has expired: the other querier, ports of routers, and ports with refused joins. Returns whether
    /// destinations of frames have changed.
    pub fn expire(&mut self, now_ns: u64, settings: &SnoopSettings) -> bool {
        if self.other.as_ref().is_some_and(|other| other.until <= now_ns) {
            self.other = None;
            self.own = self.own.as_ref().map(|_| OwnQuerier::start(now_ns, settings));
        }
        let active = (self.own.is_some() || self.other.is_some()) && self.settled_at <= now_ns;
        let turned = std::mem::replace(&mut self.active, active) != active;
        let ports = self.routers.expire(now_ns) | self.overflowing.expire(now_ns);
        turned | ports
    }

    /// Time in ns at which [`Domain::expire`] or a query is due next; `u64::MAX` if never.
    pub fn next(&self) -> u64 {
        let query = self.own.as_ref().filter(|_| self.is_asking()).map(|own| own.next);
        let other = self.other.as_ref().map(|other| other.until);
        let queried = self.own.is_some() || self.other.is_some();
        let settled = (queried && !self.active).then_some(self.settled_at);
        let ports = self.routers.next().min(self.overflowing.next());
        [query, other, settled].into_iter().flatten().fold(ports, u64::min)
    }
}

/// Returns the rank of a querier's address in elections; the lowest is elected.
fn rank(addr: IpAddr) -> (bool, IpAddr) {
    (addr.is_unspecified(), addr)
}
