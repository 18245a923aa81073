//! Multicast settings of a switch and of its ports, such as a router behind one, and versions of queries.

use std::fmt;
use std::str::FromStr;

use netvale_wire::MacAddr;

const SECOND: u64 = 1_000_000_000;

/// The IGMP version of a switch's queries. Reports of all versions are understood.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum IgmpVersion {
    /// RFC 2236.
    #[default]
    V2,
    /// RFC 3376.
    V3,
}

/// The MLD version of a switch's queries. Reports of both are understood.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MldVersion {
    /// RFC 2710.
    #[default]
    V1,
    /// RFC 3810.
    V2,
}

/// Whether a multicast router is behind a port, in the words of iproute2's `mcast_router`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Router {
    /// `0`: never. Queries from there are refused, too.
    Never,
    /// `1`: if one is heard.
    #[default]
    Learned,
    /// `2`: always.
    Always,
}

/// The text is not one of `mcast_router`'s words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` does not say whether a router is there: write 0 for never, 1 for if one is heard or 2 for always")]
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
    /// Whether the port gets only groups with members behind it.
    pub snooping: bool,
    /// Whether the switch queries in the absence of another querier.
    pub querier: bool,
    /// Whether a router is behind it.
    pub router: Router,
    /// Whether a leave ends the membership without a query.
    pub fast_leave: bool,
}

impl Multicast {
    /// Whether its switch must know the members of groups.
    pub fn needs_groups(&self) -> bool {
        self.snooping || self.querier
    }
}

/// A switch's snooping settings. [`Settings::new`] has the Linux bridge's defaults; times are in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The source address of queries.
    pub mac: MacAddr,
    /// Whether the switch queries in the absence of another querier (`mcast_querier`).
    pub querier: bool,
    /// The IGMP version of queries (`mcast_igmp_version`).
    pub igmp: IgmpVersion,
    /// The MLD version of queries (`mcast_mld_version`).
    pub mld: MldVersion,
    /// Interval of general queries (`mcast_query_interval`); at least one second.
    pub query_interval_ns: u64,
    /// Time for hosts to answer one (`mcast_query_response_interval`).
    pub query_response_interval_ns: u64,
    /// Interval of the first general queries (`mcast_startup_query_interval`); at least one second.
    pub startup_query_interval_ns: u64,
    /// Number of these (`mcast_startup_query_count`).
    pub startup_query_count: u8,
    /// Interval of queries after a leave (`mcast_last_member_interval`); at least a tenth of a second.
    pub last_member_interval_ns: u64,
    /// Number of these (`mcast_last_member_count`).
    pub last_member_count: u8,
    /// Time after which a silent member expires (`mcast_membership_interval`).
    pub membership_interval_ns: u64,
    /// Time after which another querier, or a router, expires (`mcast_querier_interval`).
    pub other_querier_interval_ns: u64,
    /// Limit of groups in all VLANs (`mcast_hash_max`).
    pub max_groups: usize,
    /// Limit of one port's groups, in all VLANs.
    pub per_port: usize,
}

impl Settings {
    /// The defaults, for a switch whose queries come from `mac`.
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

    /// The same with intervals long enough to avoid a flood of queries, clamped as in Linux.
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

    /// Objective: the words of `mcast_router` read back as they print; Linux's temporary kind is not a setting here.
    #[test]
    fn words_of_routers() {
        for router in [Router::Never, Router::Learned, Router::Always] {
            assert_eq!(router.to_string().parse(), Ok(router));
        }
        assert!("3".parse::<Router>().unwrap_err().to_string().starts_with("`3` does not say"));
    }

    /// Objective: intervals of zero do not make queries endless.
    #[test]
    fn intervals_are_not_zero() {
        let zero = Settings { query_interval_ns: 0, startup_query_interval_ns: 0, ..Settings::new(MacAddr::ZERO) };
        let clamped = Settings { last_member_interval_ns: 0, ..zero }.clamped();
        assert_eq!((clamped.query_interval_ns, clamped.startup_query_interval_ns), (SECOND, SECOND));
        assert_eq!(clamped.last_member_interval_ns, SECOND / 10);
        let default = Settings::new(MacAddr::ZERO);
        assert_eq!(default.clamped(), default);
    }
}
