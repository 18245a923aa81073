//! The owners of ports, and the number of each owner's addresses in the forwarding table.
//!
//! Any thread that learns an address changes the counts, without a lock. If a thread learns an address while its port
//! is detached, the count may be wrong by one; it never falls below zero, and the address expires.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, Ordering};

/// Maximum number of ports on a switch: the number of ports that an entry of the forwarding table can distinguish.
pub const MAX_PORTS: usize = 4096;

/// Index of a port on its switch.
pub type PortId = u16;

/// A small number for a user who owns ports on a switch, reused after the owner's last port is detached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnerId(u16);

impl OwnerId {
    pub(crate) fn new(id: u16) -> OwnerId {
        OwnerId(id)
    }

    /// The number as an index.
    pub(crate) fn index(self) -> usize {
        self.0.into()
    }
}

#[derive(Debug)]
struct OwnerShare {
    addresses: AtomicU32,
    most: AtomicU32,
}

impl Default for OwnerShare {
    fn default() -> OwnerShare {
        OwnerShare { addresses: AtomicU32::new(0), most: AtomicU32::new(u32::MAX) }
    }
}

impl OwnerShare {
    fn is_full(&self) -> bool {
        self.addresses.load(Ordering::Relaxed) >= self.most.load(Ordering::Relaxed)
    }

    fn lose(&self) {
        let less = |n: u32| Some(n.saturating_sub(1));
        let _ = self.addresses.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    fn get(&self) {
        self.addresses.fetch_add(1, Ordering::Relaxed);
    }
}

/// State of a port, and of the owner whose number equals the index of that port.
#[derive(Debug)]
struct PortAndOwner {
    owner: AtomicU16,
    port: OwnerShare,
    /// Number and limit of addresses of the owner whose number equals the index of this port.
    share: OwnerShare,
    /// Whether the port keeps its addresses, so that they neither expire nor move.
    keeps: AtomicBool,
}

/// Number of ports whose state is allocated in one piece.
const PART: usize = 64;
type OwnersPart = [PortAndOwner; PART];

/// The owner of each port, and the number of addresses of each owner and port. Memory is allocated in parts of [`PART`]
/// ports, each when its first port is attached.
#[derive(Debug)]
pub(crate) struct Owners {
    parts: [OnceLock<Box<OwnersPart>>; MAX_PORTS / PART],
}

impl PortAndOwner {
    /// Creates the state of a port that is its own owner, without a limit.
    fn new(port: PortId) -> PortAndOwner {
        PortAndOwner {
            owner: AtomicU16::new(port),
            port: OwnerShare::default(),
            share: OwnerShare::default(),
            keeps: AtomicBool::new(false),
        }
    }
}

fn part_from(first: usize) -> Box<OwnersPart> {
    Box::new(std::array::from_fn(|i| PortAndOwner::new((first + i) as PortId)))
}

impl Default for Owners {
    /// Each port is its own owner, without a limit.
    fn default() -> Owners {
        Owners { parts: std::array::from_fn(|_| OnceLock::new()) }
    }
}

impl Owners {
    /// The state of a port, allocated if it is missing. The packet path must not call this function.
    fn make(&self, number: u16) -> &PortAndOwner {
        let number = usize::from(number) % MAX_PORTS;
        let part = self.parts[number / PART].get_or_init(|| part_from(number / PART * PART));
        &part[number % PART]
    }

    /// The state of a port. `None` if no port of its part has been attached yet.
    #[inline]
    fn at(&self, number: u16) -> Option<&PortAndOwner> {
        let number = usize::from(number);
        Some(&self.parts.get(number / PART)?.get()?[number % PART])
    }

    /// Assigns a port to an owner, and sets the owner's limit of addresses to `most`.
    pub(crate) fn own(&self, port: PortId, owner: OwnerId, most: u32) {
        self.make(owner.0).share.most.store(most, Ordering::Relaxed);
        self.make(port).owner.store(owner.0, Ordering::Relaxed);
    }

    /// The owner of a port.
    pub(crate) fn of(&self, port: PortId) -> OwnerId {
        OwnerId(self.at(port).map_or(port, |state| state.owner.load(Ordering::Relaxed)))
    }

    /// Copies the owners of ports, and the limits of owners and ports, from another table.
    pub(crate) fn copy(&self, other: &Owners) {
        let set = |to: &AtomicU32, from: &AtomicU32| to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        for (first, part) in (0..).step_by(PART).zip(&other.parts) {
            for (port, from) in (first..).zip(part.get().into_iter().flat_map(|part| part.iter())) {
                let to = self.make(port);
                to.owner.store(from.owner.load(Ordering::Relaxed), Ordering::Relaxed);
                set(&to.share.most, &from.share.most);
                set(&to.port.most, &from.port.most);
                to.keeps.store(from.keeps.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
    }

    /// Limits the number of addresses behind a port, and sets whether the port keeps them, so that they neither expire
    /// nor move.
    pub(crate) fn restrict(&self, port: PortId, most: u32, keeps: bool) {
        let state = self.make(port);
        state.port.most.store(most, Ordering::Relaxed);
        state.keeps.store(keeps, Ordering::Relaxed);
    }

    /// Whether the addresses behind a port neither expire nor move.
    pub(crate) fn keeps(&self, port: PortId) -> bool {
        self.at(port).is_some_and(|state| state.keeps.load(Ordering::Relaxed))
    }

    /// Whether an owner is at its limit of addresses.
    pub(crate) fn is_full(&self, owner: OwnerId) -> bool {
        self.at(owner.0).is_some_and(|state| state.share.is_full())
    }

    /// Whether a port is at its limit of addresses.
    pub(crate) fn is_full_port(&self, port: PortId) -> bool {
        self.at(port).is_some_and(|state| state.port.is_full())
    }

    /// Updates the counts of addresses: port `lost`, if set, has one address fewer; port `got`, if set, has one address
    /// more.
    pub(crate) fn exchange(&self, lost: Option<PortId>, got: Option<PortId>) {
        if lost == got {
            return;
        }
        if let Some(state) = lost.and_then(|port| self.at(port)) {
            state.port.lose();
            self.share_of(state).into_iter().for_each(OwnerShare::lose);
        }
        if let Some(state) = got.and_then(|port| self.at(port)) {
            state.port.get();
            self.share_of(state).into_iter().for_each(OwnerShare::get);
        }
    }

    fn share_of(&self, port: &PortAndOwner) -> Option<&OwnerShare> {
        self.at(port.owner.load(Ordering::Relaxed)).map(|state| &state.share)
    }
}
