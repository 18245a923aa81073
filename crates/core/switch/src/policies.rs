//! A port's policies: their configuration, and their run-time state (buckets, end of a block).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use netvale_policy::bucket::{Bucket, GroupShare, RateLimit, Weight};
use netvale_policy::guard::Guard;
use netvale_policy::snoop::Multicast;
use netvale_policy::vlan::{TagProtocol, Tagging, Vlans};
use netvale_port::link::Link;

use crate::clock::now;
use crate::filters::Filters;

/// How often addresses may move to a port before its loop guard blocks it: moves per second, and moves in a burst.
const MOVES: (u64, u64) = (5, 20);
/// Maximum number of a port's multicast control messages that are read: per second, and in a burst.
const MESSAGES: (u64, u64) = (500, 256);
/// How long the loop guard blocks a port.
pub const BLOCKED: std::time::Duration = std::time::Duration::from_secs(10);

/// A port's policies in the form that workers read. The control protocol has its own type for the policies that an
/// operator sets. This type contains parts that are created with the port (its link, its share of a group's limit,
/// rules with counters), limits as numbers, and no defaults to look up.
#[derive(Clone)]
pub struct CompiledPolicies {
    /// The port's VLANs; `None`: VLAN 1 if the switch has VLANs.
    pub vlans: Option<Vlans>,
    /// Addresses that a policy fixes behind the port, as words whose lowest byte is the first on the wire.
    pub addresses: Vec<u64>,
    /// Maximum number of addresses learned behind the port; `None`: no limit.
    pub most_addresses: Option<u32>,
    /// Whether source addresses of frames from the port are learned.
    pub learning: bool,
    /// Whether learned addresses neither expire nor move.
    pub sticky: bool,
    /// Whether the port may send only from addresses that the forwarding table already contains behind this port.
    pub locked: bool,
    /// Whether frames between this port and other isolated ports are dropped.
    pub isolated: bool,
    /// The classes of flooded frames that the port gets.
    pub flood: Classes<bool>,
    /// Rate limits for each class of flooded frames that the port sends; `None`: no limit.
    pub storm: Classes<Option<RateLimit>>,
    /// Whether the port is blocked for [`BLOCKED`] if addresses move to it too often.
    pub loop_guard: bool,
    /// Multicast settings.
    pub multicast: Multicast,
    /// Rate limits of frames that the port sends.
    pub rates: Vec<RateLimit>,
    /// The port's share of a rate limit that a group of ports shares; `None` if the port is in no such group.
    pub group: Option<Arc<GroupShare>>,
    /// The impaired link (delay, loss, rate) that frames from the port pass; `None`: no link.
    pub link: Option<Arc<Link>>,
    /// Checks of source addresses in frames that the port sends; `None`: no checks.
    pub guard: Option<Guard>,
    /// Two filters: the filter for frames that the port sends (index 0), and the filter for frames that it gets (index
    /// 1).
    pub filters: [Filters; 2],
}

impl Default for CompiledPolicies {
    /// No policies.
    fn default() -> CompiledPolicies {
        CompiledPolicies {
            vlans: None,
            addresses: Vec::new(),
            most_addresses: None,
            learning: true,
            sticky: false,
            locked: false,
            isolated: false,
            flood: Classes([true; 3]),
            storm: Classes::default(),
            loop_guard: false,
            multicast: Multicast::default(),
            rates: Vec::new(),
            group: None,
            link: None,
            guard: None,
            filters: Default::default(),
        }
    }
}

/// The class of a flooded frame: the reason for flooding it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The destination is not in the forwarding table.
    Unknown,
    /// The destination is a group address other than the broadcast address.
    Multicast,
    /// The destination is the broadcast address, which is not counted as a multicast address.
    Broadcast,
}

/// One value for each [`Class`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Classes<T>(pub [T; 3]);

impl<T> Classes<T> {
    /// The value for a class.
    #[inline]
    pub fn of(&self, class: Class) -> &T {
        match (class, &self.0) {
            (Class::Unknown, [of, _, _]) | (Class::Multicast, [_, of, _]) | (Class::Broadcast, [_, _, of]) => of,
        }
    }
}

impl Class {
    /// The class of a group address.
    #[inline]
    pub(crate) fn of_group(dst: u64) -> Class {
        if dst == (1 << 48) - 1 { Class::Broadcast } else { Class::Multicast }
    }
}

/// Number of kinds of tags: none, customer tag (802.1Q), service tag (802.1ad).
pub(crate) const KINDS: usize = 3;

/// The kind of a frame's tag, as an index below [`KINDS`].
pub(crate) fn kind(tagging: Tagging) -> usize {
    match tagging {
        Tagging::Plain => 0,
        Tagging::Tagged(TagProtocol::Dot1q) => 1,
        Tagging::Tagged(TagProtocol::Dot1ad) => 2,
    }
}

/// The tag protocol of a kind of tag; `None` for the kind without a tag.
pub(crate) fn protocol(kind: usize) -> Option<TagProtocol> {
    [None, Some(TagProtocol::Dot1q), Some(TagProtocol::Dot1ad)].get(kind).copied().flatten()
}

/// Run-time state of a port's policies, which survives changes of the policies.
#[derive(Debug, Default)]
pub struct PolicyState {
    pub(crate) storm: Classes<Bucket>,
    pub(crate) rates: [Bucket; 2],
    moves: Bucket,
    messages: Bucket,
    /// Time at which the port's block ends, in nanoseconds of the policies' clock; 0: not blocked.
    blocked_until: AtomicU64,
    /// Number of times that the loop guard has blocked the port.
    blocked: AtomicU64,
}

impl PolicyState {
    /// Whether the port is blocked.
    #[inline]
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        let until = self.blocked_until.load(Ordering::Relaxed);
        until != 0 && now() < until
    }

    /// Number of times that the loop guard has blocked the port.
    #[must_use]
    pub fn loops(&self) -> u64 {
        self.blocked.load(Ordering::Relaxed)
    }

    /// Records that an address moved to this port, which has a loop guard. Blocks the port if addresses move too often.
    #[cold]
    pub(crate) fn note_move(&self) {
        let now = now();
        let limit = RateLimit::frames(MOVES.0, MOVES.1);
        if self.moves.take(&limit, now, [Weight::frame(0)].into_iter()) == 0 {
            self.blocked_until.store(now + BLOCKED.as_nanos() as u64, Ordering::Relaxed);
            self.blocked.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether another multicast control message from the port may be read now. Messages above the limit are forwarded,
    /// but are not read.
    #[cold]
    pub(crate) fn may_report(&self) -> bool {
        self.messages.take(&RateLimit::frames(MESSAGES.0, MESSAGES.1), now(), [Weight::frame(0)].into_iter()) > 0
    }

    pub(crate) fn unblock(&self) {
        self.blocked_until.store(0, Ordering::Relaxed);
    }
}
