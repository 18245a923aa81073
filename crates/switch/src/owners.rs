//! Whose each port is, and how many addresses each owner has in the forwarding table.
//!
//! Counts are changed by any thread that learns an address, without a lock. A thread that learns while a port leaves may
//! miscount by one; the count is never below zero, and the address expires.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// Number of a port on its switch.
pub type PortId = u8;

/// An owner of ports of a switch: a small number, used again when the last of these ports has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnerId(u8);

impl OwnerId {
    pub(crate) fn new(id: u8) -> OwnerId {
        OwnerId(id)
    }
}

#[derive(Debug)]
struct Share {
    addresses: AtomicU32,
    most: AtomicU32,
}

/// The owners of a switch's ports.
#[derive(Debug)]
pub(crate) struct Owners {
    of_port: [AtomicU8; 256],
    shares: [Share; 256],
}

impl Default for Owners {
    /// Each port is an owner of its own, without a limit.
    fn default() -> Owners {
        let share = |_| Share { addresses: AtomicU32::new(0), most: AtomicU32::new(u32::MAX) };
        Owners { of_port: std::array::from_fn(|port| AtomicU8::new(port as u8)), shares: std::array::from_fn(share) }
    }
}

impl Owners {
    /// Makes a port one of that owner's, who may have `most` addresses.
    pub(crate) fn own(&self, port: PortId, owner: OwnerId, most: u32) {
        self.share(owner).most.store(most, Ordering::Relaxed);
        self.of_port[usize::from(port)].store(owner.0, Ordering::Relaxed);
    }

    /// The owner of a port.
    pub(crate) fn of(&self, port: PortId) -> OwnerId {
        OwnerId(self.of_port[usize::from(port)].load(Ordering::Relaxed))
    }

    /// Whether an owner has as many addresses as they may.
    pub(crate) fn is_full(&self, owner: OwnerId) -> bool {
        let Share { addresses, most } = self.share(owner);
        addresses.load(Ordering::Relaxed) >= most.load(Ordering::Relaxed)
    }

    /// Counts an address that one owner lost and another got.
    pub(crate) fn exchange(&self, lost: Option<OwnerId>, got: Option<OwnerId>) {
        if lost == got {
            return;
        }
        let less = |n: u32| Some(n.saturating_sub(1));
        if let Some(owner) = lost {
            let _ = self.share(owner).addresses.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
        if let Some(owner) = got {
            self.share(owner).addresses.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn share(&self, owner: OwnerId) -> &Share {
        &self.shares[usize::from(owner.0)]
    }
}
