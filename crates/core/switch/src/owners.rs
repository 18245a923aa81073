//! The owners of ports, and the number of each owner's addresses in the forwarding table.
//!
//! Any thread that learns an address changes the counts, without a lock. If a thread learns an address while its port
//! is detached, the count may be wrong by one; it never falls below zero, and the address expires.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

/// Index of a port on its switch.
pub type PortId = u8;

/// A small number for an owner of ports on a switch, reused once the owner's last port is detached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnerId(u8);

impl OwnerId {
    pub(crate) fn new(id: u8) -> OwnerId {
        OwnerId(id)
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

/// The owner of each port, and the number of addresses of each owner and port.
#[derive(Debug)]
pub(crate) struct Owners {
    of_port: [AtomicU8; 256],
    shares: [OwnerShare; 256],
    ports: [OwnerShare; 256],
    /// Whether a port keeps its addresses: they neither expire nor move.
    keeping: [AtomicBool; 256],
}

impl Default for Owners {
    /// Each port has an owner of its own, without a limit.
    fn default() -> Owners {
        Owners {
            of_port: std::array::from_fn(|port| AtomicU8::new(port as u8)),
            shares: std::array::from_fn(|_| OwnerShare::default()),
            ports: std::array::from_fn(|_| OwnerShare::default()),
            keeping: std::array::from_fn(|_| AtomicBool::new(false)),
        }
    }
}

impl Owners {
    /// Assigns a port to an owner, and sets the owner's limit of addresses to `most`.
    pub(crate) fn own(&self, port: PortId, owner: OwnerId, most: u32) {
        self.share(owner).most.store(most, Ordering::Relaxed);
        self.of_port[usize::from(port)].store(owner.0, Ordering::Relaxed);
    }

    /// The owner of a port.
    pub(crate) fn of(&self, port: PortId) -> OwnerId {
        OwnerId(self.of_port[usize::from(port)].load(Ordering::Relaxed))
    }

    /// Copies the owners of ports, and the limits of owners and ports, from another table.
    pub(crate) fn copy(&self, other: &Owners) {
        let set = |to: &AtomicU32, from: &AtomicU32| to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        for port in 0..=u8::MAX {
            self.own(port, other.of(port), other.share(other.of(port)).most.load(Ordering::Relaxed));
            set(&self.port(port).most, &other.port(port).most);
            self.keeping[usize::from(port)].store(other.keeps(port), Ordering::Relaxed);
        }
    }

    /// Limits the number of addresses behind a port, and sets whether the port keeps them, i.e. they neither expire nor
    /// move.
    pub(crate) fn restrict(&self, port: PortId, most: u32, keeps: bool) {
        self.port(port).most.store(most, Ordering::Relaxed);
        self.keeping[usize::from(port)].store(keeps, Ordering::Relaxed);
    }

    /// Whether the addresses behind a port neither expire nor move.
    pub(crate) fn keeps(&self, port: PortId) -> bool {
        self.keeping[usize::from(port)].load(Ordering::Relaxed)
    }

    /// Whether an owner is at its limit of addresses.
    pub(crate) fn is_full(&self, owner: OwnerId) -> bool {
        self.share(owner).is_full()
    }

    /// Whether a port is at its limit of addresses.
    pub(crate) fn is_full_port(&self, port: PortId) -> bool {
        self.port(port).is_full()
    }

    /// Updates the counts of addresses: port `lost`, if set, has one less; port `got`, if set, has one more.
    pub(crate) fn exchange(&self, lost: Option<PortId>, got: Option<PortId>) {
        if lost == got {
            return;
        }
        if let Some(port) = lost {
            self.share(self.of(port)).lose();
            self.port(port).lose();
        }
        if let Some(port) = got {
            self.share(self.of(port)).get();
            self.port(port).get();
        }
    }

    fn port(&self, port: PortId) -> &OwnerShare {
        &self.ports[usize::from(port)]
    }

    fn share(&self, owner: OwnerId) -> &OwnerShare {
        &self.shares[usize::from(owner.0)]
    }
}
