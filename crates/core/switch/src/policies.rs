//! A port's policies: configuration, and run-time state (buckets, block timer).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use netvale_policy::bucket::{Bucket, Limit, Share, Weight};
use netvale_policy::guard::Guard;
use netvale_policy::snoop::Multicast;
use netvale_policy::vlan::{Protocol, Tagging, Vlans};
use netvale_port::link::Link;

use crate::clock::now;
use crate::filters::Filters;

/// Moves of addresses to a port, per second and in a burst, before its loop guard blocks it.
const MOVES: (u64, u64) = (5, 20);
/// Messages about groups read from a port, per second and in a burst.
const MESSAGES: (u64, u64) = (500, 256);
/// How long a port stays blocked after a loop.
pub const BLOCKED: std::time::Duration = std::time::Duration::from_secs(10);

/// A port's policies in the form that workers read. The control protocol has its own type for an operator's input: this
/// one adds parts created with the port (its link, its share of a group, rules that count), has limits in tokens
/// instead of words, and leaves no defaults to look up.
#[derive(Clone)]
pub struct CompiledPolicies {
    /// Its VLANs. Without any, the port is in VLAN 1 if the switch has VLANs at all.
    pub vlans: Option<Vlans>,
    /// Addresses fixed behind it, in wire order, first byte lowest.
    pub addresses: Vec<u64>,
    /// Limit of addresses learned behind it.
    pub most_addresses: Option<u32>,
    /// Whether addresses are learned.
    pub learning: bool,
    /// Whether learned addresses neither expire nor move.
    pub sticky: bool,
    /// Whether only frames from addresses known behind it are accepted.
    pub locked: bool,
    /// Whether frames between it and other isolated ports are dropped.
    pub isolated: bool,
    /// The classes of flooded frames that it gets.
    pub flood: Classes<bool>,
    /// Limits of each class that it sends.
    pub storm: Classes<Option<Limit>>,
    /// Whether it is blocked for a while when addresses move to it again and again.
    pub loop_guard: bool,
    /// Multicast settings.
    pub multicast: Multicast,
    /// Limits of what it sends.
    pub rates: Vec<Limit>,
    /// Its share of a group's limit.
    pub group: Option<Arc<Share>>,
    /// The link that its frames pass.
    pub link: Option<Arc<Link>>,
    /// Checks of its frames' source addresses.
    pub guard: Option<Guard>,
    /// Filters of frames that it sends, and of frames that it gets.
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

/// The reason for flooding a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Its destination is unknown.
    Unknown,
    /// It is for a group.
    Multicast,
    /// It is a broadcast.
    Broadcast,
}

/// A value for each class.
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

/// Number of kinds of tags of a switch's frames: none, a customer's, a service's.
pub(crate) const KINDS: usize = 3;

/// The kind of a tag, as an index.
pub(crate) fn kind(tagging: Tagging) -> usize {
    match tagging {
        Tagging::Plain => 0,
        Tagging::Tagged(Protocol::Dot1q) => 1,
        Tagging::Tagged(Protocol::Dot1ad) => 2,
    }
}

/// The protocol of tags of a kind.
pub(crate) fn protocol(kind: usize) -> Option<Protocol> {
    [None, Some(Protocol::Dot1q), Some(Protocol::Dot1ad)].get(kind).copied().flatten()
}

/// Run-time state of policies, across changes of them.
#[derive(Debug, Default)]
pub struct PolicyState {
    pub(crate) storm: Classes<Bucket>,
    pub(crate) rates: [Bucket; 2],
    moves: Bucket,
    messages: Bucket,
    /// End of the port's block; 0: not blocked.
    blocked_until: AtomicU64,
    /// Number of blocks.
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

    /// Number of loops seen.
    #[must_use]
    pub fn loops(&self) -> u64 {
        self.blocked.load(Ordering::Relaxed)
    }

    /// Records that an address moved to this port, which has a loop guard. Blocks the port if that happened too often.
    #[cold]
    pub(crate) fn note_move(&self) {
        let now = now();
        let limit = Limit::frames(MOVES.0, MOVES.1);
        if self.moves.take(&limit, now, [Weight::frame(0)].into_iter()) == 0 {
            self.blocked_until.store(now + BLOCKED.as_nanos() as u64, Ordering::Relaxed);
            self.blocked.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether to read a message about groups; beyond the limit of what hosts send, messages are only forwarded.
    #[cold]
    pub(crate) fn may_report(&self) -> bool {
        self.messages.take(&Limit::frames(MESSAGES.0, MESSAGES.1), now(), [Weight::frame(0)].into_iter()) > 0
    }

    pub(crate) fn unblock(&self) {
        self.blocked_until.store(0, Ordering::Relaxed);
    }
}
