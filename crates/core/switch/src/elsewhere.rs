//! Ports that know of addresses behind them without having seen frames of theirs: tunnels whose control plane says what
//! is at their other ends. They are asked about an address that the forwarding table does not know, before its frame
//! goes to all.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;

use crate::owners::PortId;

/// What knows of addresses behind a port. Asked by workers: it neither allocates nor waits.
pub trait Knows: Send + Sync {
    /// Whether that address (in wire order, first byte lowest) is behind it.
    fn knows(&self, mac: u64) -> bool;
}

#[derive(Clone)]
struct Asked {
    port: PortId,
    vlan: u16,
    by: Arc<dyn Knows>,
}

/// Whom to ask.
#[derive(Default)]
pub(crate) struct Elsewhere {
    any: AtomicBool,
    all: ArcSwap<Vec<Asked>>,
}

impl Elsewhere {
    /// Whether anybody is asked.
    #[inline]
    pub fn is_there(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// The port behind which an address of that VLAN (0 if there are none) is known to be.
    #[inline]
    pub fn find(&self, vlan: u16, mac: u64) -> Option<PortId> {
        if self.is_there() { self.ask(vlan, mac) } else { None }
    }

    #[cold]
    fn ask(&self, vlan: u16, mac: u64) -> Option<PortId> {
        self.all.load().iter().find(|asked| asked.vlan == vlan && asked.by.knows(mac)).map(|asked| asked.port)
    }

    /// Asks about addresses of these VLANs; of none if the port goes.
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
