//! One family in one VLAN: its querier and its routers.

use std::net::{IpAddr, Ipv4Addr};

use super::address::{self, Family};
use super::message::HeardQuery;
use super::settings::Settings;
use super::timers::Timers;

/// Queriers and routers of a family in a VLAN.
#[derive(Debug)]
pub(super) struct Domain {
    /// The source address of this switch's queries.
    own_addr: IpAddr,
    /// The general queries of this switch, if it queries.
    own: Option<Own>,
    /// The other querier, if one has taken over.
    other: Option<Other>,
    /// When hosts have had the time to answer.
    settled_at: u64,
    active: bool,
    /// Ports behind which routers were heard.
    pub routers: Timers,
    /// Ports with more groups than are recorded.
    pub overflowing: Timers,
}

#[derive(Debug)]
struct Own {
    next: u64,
    /// Number of queries left at the shorter startup interval.
    startup_left: u8,
}

impl Own {
    fn start(now_ns: u64, settings: &Settings) -> Self {
        Self { next: now_ns, startup_left: settings.startup_query_count }
    }
}

#[derive(Debug)]
struct Other {
    addr: IpAddr,
    until: u64,
}

impl Domain {
    /// A domain without any knowledge. Like Linux, it waits for the answers to the first query before groups are
    /// forwarded separately.
    pub fn start(now_ns: u64, family: Family, settings: &Settings) -> Self {
        let own_addr = match family {
            Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
            Family::V6 => address::link_local(settings.mac).into(),
        };
        Self {
            own_addr,
            own: settings.querier.then(|| Own::start(now_ns, settings)),
            other: None,
            settled_at: now_ns.saturating_add(settings.query_response_interval_ns),
            active: false,
            routers: Timers::default(),
            overflowing: Timers::default(),
        }
    }

    /// Whether groups are forwarded separately.
    pub fn is_active(&self) -> bool {
        self.active
    }

    /// Whether this switch is the querier.
    pub fn is_asking(&self) -> bool {
        self.own.is_some() && self.other.is_none()
    }

    /// The querier, if it is another.
    pub fn querier(&self) -> Option<IpAddr> {
        self.other.as_ref().map(|other| other.addr)
    }

    /// Handles a general query. The lowest address wins (RFC 2236 §3, RFC 3810 §7.6.2); a querier without an address
    /// loses to all others, and replaces another without one.
    pub fn elect(&mut self, now_ns: u64, query: &HeardQuery, settings: &Settings) {
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
        self.other = Some(Other { addr: query.source, until });
    }

    /// Whether a general query is due; counts it as sent.
    pub fn take_general_query(&mut self, now_ns: u64, settings: &Settings) -> bool {
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

    /// Ends what has expired. Returns whether frames have other destinations now.
    pub fn expire(&mut self, now_ns: u64, settings: &Settings) -> bool {
        if self.other.as_ref().is_some_and(|other| other.until <= now_ns) {
            self.other = None;
            self.own = self.own.as_ref().map(|_| Own::start(now_ns, settings));
        }
        let active = (self.own.is_some() || self.other.is_some()) && self.settled_at <= now_ns;
        let turned = std::mem::replace(&mut self.active, active) != active;
        let ports = self.routers.expire(now_ns) | self.overflowing.expire(now_ns);
        turned | ports
    }

    /// When there is next work.
    pub fn next(&self) -> u64 {
        let query = self.own.as_ref().filter(|_| self.is_asking()).map(|own| own.next);
        let other = self.other.as_ref().map(|other| other.until);
        let queried = self.own.is_some() || self.other.is_some();
        let settled = (queried && !self.active).then_some(self.settled_at);
        let ports = self.routers.next().min(self.overflowing.next());
        [query, other, settled].into_iter().flatten().fold(ports, u64::min)
    }
}

/// The order in which addresses win.
fn rank(addr: IpAddr) -> (bool, IpAddr) {
    (addr.is_unspecified(), addr)
}
