//! Multicast settings of a switch (such as the version of its queries, intervals and limits) and of its ports (such as
//! a router behind a port).

use std::fmt;
use std::str::FromStr;

use netvale_wire::MacAddr;

const SECOND: u64 = 1_000_000_000;

/// The IGMP version of a switch's queries. The switch accepts reports of all versions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum IgmpVersion {
    /// IGMPv2 (RFC 2236).
    #[default]
    V2,
    /// IGMPv3 (RFC 3376).
    V3,
}

/// The MLD version of a switch's queries. The switch accepts reports of both versions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MldVersion {
    /// MLDv1 (RFC 2710).
    #[default]
    V1,
    /// MLDv2 (RFC 3810).
    V2,
}

/// Whether a multicast router is behind a port, with the values of iproute2's `mcast_router`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Router {
    /// `0`: never. Queries from the port are refused.
    Never,
    /// `1`: if messages of a router arrive at the port.
    #[default]
    Learned,
    /// `2`: always.
    Always,
}

/// The error for a text that is not a value of `mcast_router`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid router setting `{0}`: expected 0 (never), 1 (if its messages arrive) or 2 (always)")]
pub struct BadRouter(String);

impl FromStr for Router {
    type Err = BadRouter;

    fn from_str(text: &str) -> Result<Self, BadRouter> {
        match text {
            "0" => Ok(Self::Never),
            "1" => Ok(Self::Learned),
            "2" => Ok(Self::Always),
            _ => Err(BadRouter(text.into())),
        }
    }
}

impl fmt::Display for Router {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            Self::Never => "0",
            Self::Learned => "1",
            Self::Always => "2",
        })
    }
}

/// A port's multicast settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Multicast {
    /// Whether the port gets frames for a multicast group only if members of the group are behind it.
    pub snooping: bool,
    /// Whether the switch queries in the absence of another querier.
    pub querier: bool,
    /// Whether a router is behind the port.
    pub router: Router,
    /// Whether a leave ends the port's membership without a query.
    pub fast_leave: bool,
}

impl Multicast {
    /// Whether the port's switch must record the members of groups.
    pub fn needs_groups(&self) -> bool {
        self.snooping || self.querier
    }
}

/// A switch's snooping settings. [`SnoopSettings::new`] returns the defaults of the Linux bridge. Times are in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnoopSettings {
    /// The source address of queries.
    pub mac: MacAddr,
    /// Whether the switch queries in the absence of another querier (`mcast_querier`).
    pub querier: bool,
    /// The IGMP version of queries (`mcast_igmp_version`).
    pub igmp: IgmpVersion,
    /// The MLD version of queries (`mcast_mld_version`).
    pub mld: MldVersion,
    /// Interval of general queries (`mcast_query_interval`), at least one second.
    pub query_interval_ns: u64,
    /// Time for hosts to answer a general query (`mcast_query_response_interval`).
    pub query_response_interval_ns: u64,
    /// Interval of the first general queries (`mcast_startup_query_interval`), at least one second.
    pub startup_query_interval_ns: u64,
    /// Number of general queries at the startup interval (`mcast_startup_query_count`).
    pub startup_query_count: u8,
    /// Interval of queries after a leave (`mcast_last_member_interval`), at least a tenth of a second.
    pub last_member_interval_ns: u64,
    /// Number of queries after a leave (`mcast_last_member_count`).
    pub last_member_count: u8,
    /// Time after which a membership without reports expires (`mcast_membership_interval`).
    pub membership_interval_ns: u64,
    /// Time after which another querier, or a router, expires without messages (`mcast_querier_interval`).
    pub other_querier_interval_ns: u64,
    /// Maximum number of groups in all VLANs together (`mcast_hash_max`).
    pub max_groups: usize,
    /// Maximum number of one port's groups in all VLANs together.
    pub per_port: usize,
}

impl SnoopSettings {
    /// Returns the defaults, for a switch whose queries have the source address `mac`.
    pub const fn new(mac: MacAddr) -> Self {
        Self {
            mac,
            querier: false,
            igmp: IgmpVersion::V2,
            mld: MldVersion::V1,
            query_interval_ns: 125 * SECOND,
            query_response_interval_ns: 10 * SECOND,
            startup_query_interval_ns: 125 * SECOND / 4,
            startup_query_count: 2,
            last_member_interval_ns: SECOND,
            last_member_count: 2,
            membership_interval_ns: 260 * SECOND,
            other_querier_interval_ns: 255 * SECOND,
            max_groups: 4096,
            per_port: 1024,
        }
    }

    /// Raises each query interval to Linux's minimum, because a shorter interval would cause a flood of queries.
    pub(super) fn clamped(self) -> Self {
        Self {
            query_interval_ns: self.query_interval_ns.max(SECOND),
            startup_query_interval_ns: self.startup_query_interval_ns.max(SECOND),
            last_member_interval_ns: self.last_member_interval_ns.max(SECOND / 10),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: the values of `mcast_router` read back as they print; Linux's value for temporary routers (3) is
    /// refused.
    #[test]
    fn words_of_mcast_router_read_back() {
        for router in [Router::Never, Router::Learned, Router::Always] {
            assert_eq!(router.to_string().parse(), Ok(router));
        }
        assert!("3".parse::<Router>().unwrap_err().to_string().starts_with("invalid router setting `3`"));
    }

    /// Objective: intervals of zero do not cause an endless series of queries.
    #[test]
    fn intervals_are_not_zero() {
        let zero =
            SnoopSettings { query_interval_ns: 0, startup_query_interval_ns: 0, ..SnoopSettings::new(MacAddr::ZERO) };
        let clamped = SnoopSettings { last_member_interval_ns: 0, ..zero }.clamped();
        assert_eq!((clamped.query_interval_ns, clamped.startup_query_interval_ns), (SECOND, SECOND));
        assert_eq!(clamped.last_member_interval_ns, SECOND / 10);
        let default = SnoopSettings::new(MacAddr::ZERO);
        assert_eq!(default.clamped(), default);
    }
}
