//! The entries of a switch's port table.

use std::sync::Arc;

use netvale_port::Egress;
use netvale_port::origin::Origin;
use netvale_wire::flow::FlowKey;

use crate::fdb::PortId;
use crate::holding::HoldLimit;
use crate::owners::OwnerId;
use crate::policies::{CompiledPolicies, PolicyState};
use crate::trace::Trace;

/// A port to attach.
#[derive(Clone, Default)]
pub struct AttachedPort {
    /// Name of the port on the switch.
    pub name: String,
    /// Egresses to the port, one per ring; empty for a port that only sends.
    pub egresses: Vec<Arc<dyn Egress>>,
    /// Number of rings from which the port sends; 0 counts as 1.
    pub rings: usize,
    /// Whether the port, when full, holds senders back instead of dropping their frames.
    pub lossless: bool,
    /// Owner of the port, for example a user ID. Ports of one owner share a part of the forwarding table.
    pub owner: u32,
    /// Maximum number of the owner's addresses in the forwarding table; `None`: the size of the table.
    pub most_addresses: Option<u32>,
    /// The port's policies; `None`: the default policies.
    pub policies: Option<Arc<CompiledPolicies>>,
}

/// A port in a switch's table.
#[derive(Clone)]
pub(crate) struct PortEntry {
    pub(crate) id: PortId,
    /// Sequence number of the port's attachment to the switch, never reused.
    pub(crate) since: u64,
    pub(crate) port: AttachedPort,
    pub(crate) owner: OwnerId,
    /// Key of the hash that spreads flows over the port's queues.
    pub(crate) flows: FlowKey,
    /// Whether a lossless port also holds back other owners' senders.
    pub(crate) holds_others: bool,
    /// Run-time state that limits how long the port holds senders back.
    pub(crate) holding: Arc<HoldLimit>,
    /// Run-time state of the policies.
    pub(crate) state: Arc<PolicyState>,
    /// Monitors that get copies of frames that the port sends.
    pub(crate) tx_monitors: Vec<PortMonitor>,
    /// Monitors that get copies of frames that the port receives.
    pub(crate) rx_monitors: Vec<PortMonitor>,
    /// Traces of frames that the port sends.
    pub(crate) traces: Vec<Arc<Trace>>,
}

/// One entry for each ring of the watched port: the monitor's ring that gets copies of the watched ring's frames, or
/// `None` if its frames are not copied. Empty if no ring is watched.
pub type MonitorRings = Vec<Option<Arc<dyn Egress>>>;

/// A monitor of a port's frames.
#[derive(Clone)]
pub(crate) struct PortMonitor {
    pub(crate) name: String,
    pub(crate) rings: MonitorRings,
}

impl PortMonitor {
    /// The egress for copies of frames of ring `ring`; `None` if the ring is not watched.
    #[inline]
    pub(crate) fn egress(&self, ring: usize) -> Option<&dyn Egress> {
        self.rings.get(ring)?.as_deref()
    }
}

impl PortEntry {
    pub(crate) fn with_monitors(&self, tx: Vec<PortMonitor>, rx: Vec<PortMonitor>) -> PortEntry {
        PortEntry { tx_monitors: tx, rx_monitors: rx, ..self.clone() }
    }

    /// The origin of frames that the port sends.
    #[inline]
    pub(crate) fn origin(&self) -> Origin {
        Origin { port: self.id, owner: self.port.owner }
    }

    /// Whether frames of this owner may wait for room at this port.
    pub(crate) fn may_hold(&self, from: OwnerId) -> bool {
        self.holds_others || from == self.owner
    }
}
