//! What a port's operator wants of it beyond the switch's usual ways, and what of it changes while frames pass.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use netvale_policy::bucket::{Bucket, Limit, Share, Weight};
use netvale_policy::guard::Guard;
use netvale_policy::snoop::Multicast;
use netvale_policy::vlan::{Protocol, Tagging, Vlans};
use netvale_port::link::Link;

use crate::clock::now;
use crate::filters::Filters;

/// How often addresses may move to a port a second, and together, before its loop guard blocks it.
const MOVES: (u64, u64) = (5, 20);
/// How many messages about groups of a port are read a second, and together.
const MESSAGES: (u64, u64) = (500, 256);
/// For how long a port is blocked after a loop was seen.
pub const BLOCKED: std::time::Duration = std::time::Duration::from_secs(10);

/// A port's policies in the form that workers read. What an operator gives is another type, that of the control
/// protocol: this one has what comes into being with the port (its link, its part of a group, rules that count), limits
/// in tokens instead of words, and no defaults left to look up.
#[derive(Clone)]
pub struct CompiledPolicies {
    /// Its VLANs. Without any, the port is in VLAN 1 if the switch has VLANs at all.
    pub vlans: Option<Vlans>,
    /// Addresses that are behind it and nowhere else, in wire order, first byte lowest.
    pub addresses: Vec<u64>,
    /// How many addresses may be learned behind it.
    pub most_addresses: Option<u32>,
    /// Whether addresses are learned.
    pub learning: bool,
    /// Whether addresses that were learned here neither expire nor move.
    pub sticky: bool,
    /// Whether only frames from addresses that are behind it are taken from it.
    pub locked: bool,
    /// Whether frames between it and other isolated ports are dropped.
    pub isolated: bool,
    /// What it gets of the frames that go to all.
    pub flood: Classes<bool>,
    /// How much of each class it may send.
    pub storm: Classes<Option<Limit>>,
    /// Whether it is blocked for a while when addresses move to it again and again.
    pub loop_guard: bool,
    /// What is said of multicast groups.
    pub multicast: Multicast,
    /// How much it may send.
    pub rates: Vec<Limit>,
    /// Its part of what a group may send.
    pub group: Option<Arc<Share>>,
    /// The link on which what it sends comes.
    pub link: Option<Arc<Link>>,
    /// What its frames may say of where they come from.
    pub guard: Option<Guard>,
    /// Filters of what it sends, and of what it gets.
    pub filters: [Filters; 2],
}

impl Default for CompiledPolicies {
    /// None.
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

/// Why a frame goes to all ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Nobody knows where its destination is.
    Unknown,
    /// It is for a group.
    Multicast,
    /// It is for all.
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

/// Kinds of tags that frames of a switch may have: none, a customer's, a service's.
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

/// What policies have counted, over all changes of them.
#[derive(Debug, Default)]
pub struct PolicyState {
    pub(crate) storm: Classes<Bucket>,
    pub(crate) rates: [Bucket; 2],
    moves: Bucket,
    messages: Bucket,
    /// Until when the port is blocked; 0: it is not.
    blocked_until: AtomicU64,
    /// How often it was.
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

    /// How often a loop was seen.
    #[must_use]
    pub fn loops(&self) -> u64 {
        self.blocked.load(Ordering::Relaxed)
    }

    /// An address moved to this port, which has a loop guard. Blocks the port if that happened too often.
    #[cold]
    pub(crate) fn note_move(&self) {
        let now = now();
        let limit = Limit::frames(MOVES.0, MOVES.1);
        if self.moves.take(&limit, now, [Weight::frame(0)].into_iter()) == 0 {
            self.blocked_until.store(now + BLOCKED.as_nanos() as u64, Ordering::Relaxed);
            self.blocked.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether a message about groups may be read; a port that sends more than hosts do has them forwarded only.
    #[cold]
    pub(crate) fn may_report(&self) -> bool {
        self.messages.take(&Limit::frames(MESSAGES.0, MESSAGES.1), now(), [Weight::frame(0)].into_iter()) > 0
    }

    pub(crate) fn unblock(&self) {
        self.blocked_until.store(0, Ordering::Relaxed);
    }
}
