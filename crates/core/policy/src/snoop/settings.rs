//! How a switch snoops: settings, versions of its queries, and what is said of multicast and of a router behind a port.

use std::fmt;
use std::str::FromStr;

use netvale_wire::MacAddr;

const SECOND: u64 = 1_000_000_000;

/// The version of IGMP in which a switch queries. Reports of all versions are understood.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum IgmpVersion {
    /// RFC 2236.
    #[default]
    V2,
    /// RFC 3376.
    V3,
}

/// The version of MLD in which a switch queries. Reports of both are understood.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MldVersion {
    /// RFC 2710.
    #[default]
    V1,
    /// RFC 3810.
    V2,
}

/// Whether a multicast router is behind a port, as iproute2's `mcast_router` says it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Router {
    /// `0`: never. Queries from there are refused, too.
    Never,
    /// `1`: if one is heard there.
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

/// What a port's operator says of groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Multicast {
    /// Whether the port gets only the groups that somebody behind it wants.
    pub snooping: bool,
    /// Whether the switch queries while nobody else does.
    pub querier: bool,
    /// Whether a router is behind it.
    pub router: Router,
    /// Whether a leave is believed without asking.
    pub fast_leave: bool,
}

impl Multicast {
    /// Whether its switch has to know who wants which groups.
    pub fn needs_groups(&self) -> bool {
        self.snooping || self.querier
    }
}

/// How a switch snoops. [`Settings::new`] has the Linux bridge's defaults; times are in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The address that queries come from.
    pub mac: MacAddr,
    /// Whether the switch queries while no one else does (`mcast_querier`).
    pub querier: bool,
    /// In which version of IGMP (`mcast_igmp_version`).
    pub igmp: IgmpVersion,
    /// In which version of MLD (`mcast_mld_version`).
    pub mld: MldVersion,
    /// Between two general queries (`mcast_query_interval`); one second at least.
    pub query_interval_ns: u64,
    /// How long hosts may take to answer one (`mcast_query_response_interval`).
    pub query_response_interval_ns: u64,
    /// Between the first general queries (`mcast_startup_query_interval`); one second at least.
    pub startup_query_interval_ns: u64,
    /// How many of those there are (`mcast_startup_query_count`).
    pub startup_query_count: u8,
    /// Between two queries after a host has left a group (`mcast_last_member_interval`); a tenth of a second at least.
    pub last_member_interval_ns: u64,
    /// How many of those there are (`mcast_last_member_count`).
    pub last_member_count: u8,
    /// After which a member that is not heard of is forgotten (`mcast_membership_interval`).
    pub membership_interval_ns: u64,
    /// After which another querier, or a router, is forgotten (`mcast_querier_interval`).
    pub other_querier_interval_ns: u64,
    /// The most groups in all VLANs (`mcast_hash_max`).
    pub max_groups: usize,
    /// The most groups of which one port can be a member, in all VLANs.
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

    /// The same with no interval so short that queries would be a flood, as Linux clamps them.
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

    /// Objective: the words of `mcast_router` read back as they print; the temporary kind of Linux is no setting here.
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
