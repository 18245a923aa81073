//! Ports that know addresses behind them without having seen their frames: tunnels whose control plane lists the
//! addresses at the other ends. They are asked about an address missing from the forwarding table before its frame is
//! flooded.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;

use crate::owners::PortId;

/// Knowledge of addresses behind a port. Used by workers: it neither allocates nor waits.
pub trait Knows: Send + Sync {
    /// Whether the address (in wire order, first byte lowest) is behind the port.
    fn knows(&self, mac: u64) -> bool;
}

#[derive(Clone)]
struct Asked {
    port: PortId,
    vlan: u16,
    by: Arc<dyn Knows>,
}

/// The ports to ask.
#[derive(Default)]
pub(crate) struct Elsewhere {
    any: AtomicBool,
    all: ArcSwap<Vec<Asked>>,
}

impl Elsewhere {
    /// Whether any port is asked.
    #[inline]
    pub fn is_there(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// The port that knows an address in a VLAN (0 without VLANs).
    #[inline]
    pub fn find(&self, vlan: u16, mac: u64) -> Option<PortId> {
        if self.is_there() { self.ask(vlan, mac) } else { None }
    }

    #[cold]
    fn ask(&self, vlan: u16, mac: u64) -> Option<PortId> {
        self.all.load().iter().find(|asked| asked.vlan == vlan && asked.by.knows(mac)).map(|asked| asked.port)
    }

    /// Sets the VLANs (possibly none) about whose addresses a port is asked; `None` when the port goes.
    pub fn set(&self, port: PortId, vlans: &[u16], by: Option<&Arc<dyn Knows>>) {
        let mut all: Vec<_> = self.all.load().iter().filter(|asked| asked.port != port).cloned().collect();
        all.extend(by.into_iter().flat_map(|by| vlans.iter().map(|&vlan| Asked { port, vlan, by: Arc::clone(by) })));
        self.any.store(!all.is_empty(), Ordering::Relaxed);
        self.all.store(Arc::new(all));
    }
}

impl fmt::Debug for Elsewhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ports are asked", self.all.load().len())
    }
}
