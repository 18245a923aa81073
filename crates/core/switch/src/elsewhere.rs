//! Address finders: ports that can report whether an address is behind them before any frame has come from that
//! address, such as tunnels whose control plane lists the addresses at the remote ends. The switch asks them about an
//! address missing from the forwarding table before it floods the frame.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;

use crate::owners::PortId;

/// Finds addresses behind a port. Called by workers, so implementations must neither allocate nor wait.
pub trait AddressFinder: Send + Sync {
    /// Whether the address is behind the port. The lowest byte of `mac` is the first byte on the wire.
    fn knows(&self, mac: u64) -> bool;
}

#[derive(Clone)]
struct AskedPort {
    port: PortId,
    vlan: u16,
    by: Arc<dyn AddressFinder>,
}

/// The address finders of a switch, with their ports and VLANs.
#[derive(Default)]
pub(crate) struct AddressFinders {
    any: AtomicBool,
    all: ArcSwap<Vec<AskedPort>>,
}

impl AddressFinders {
    /// Whether there are any address finders.
    #[inline]
    pub fn is_there(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Asks the address finders of a VLAN (0 without VLANs) for the port behind which an address is; `None` if no
    /// address finder finds the address.
    #[inline]
    pub fn find(&self, vlan: u16, mac: u64) -> Option<PortId> {
        if self.is_there() { self.ask(vlan, mac) } else { None }
    }

    #[cold]
    fn ask(&self, vlan: u16, mac: u64) -> Option<PortId> {
        self.all.load().iter().find(|asked| asked.vlan == vlan && asked.by.knows(mac)).map(|asked| asked.port)
    }

    /// Sets a port's address finder and the VLANs for which the finder is asked (possibly no VLANs); `None` removes the
    /// port's address finder.
    pub fn set(&self, port: PortId, vlans: &[u16], by: Option<&Arc<dyn AddressFinder>>) {
        let mut all: Vec<_> = self.all.load().iter().filter(|asked| asked.port != port).cloned().collect();
        all.extend(
            by.into_iter().flat_map(|by| vlans.iter().map(|&vlan| AskedPort { port, vlan, by: Arc::clone(by) })),
        );
        self.any.store(!all.is_empty(), Ordering::Relaxed);
        self.all.store(Arc::new(all));
    }
}

impl fmt::Debug for AddressFinders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} address finders", self.all.load().len())
    }
}
