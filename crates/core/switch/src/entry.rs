//! A port of a switch.

use std::sync::Arc;

use netvale_port::Egress;
use netvale_port::origin::Origin;
use netvale_wire::flow::FlowKey;

use crate::fdb::PortId;
use crate::holding::Holding;
use crate::owners::OwnerId;
use crate::policies::{CompiledPolicies, PolicyState};
use crate::trace::Trace;

/// A port to attach.
#[derive(Clone, Default)]
pub struct Port {
    /// Its name on the switch.
    pub name: String,
    /// Egresses to it, one per ring; empty for a port that only sends.
    pub egresses: Vec<Arc<dyn Egress>>,
    /// Number of rings that its frames come from; 0 counts as 1.
    pub rings: usize,
    /// Whether it holds senders back instead of dropping frames when full.
    pub lossless: bool,
    /// Its owner, for example a user's number. Ports of one owner share a part of the forwarding table.
    pub owner: u32,
    /// Limit of its owner's addresses in the forwarding table; `None`: the room of the table.
    pub most_addresses: Option<u32>,
    /// Its policies, if any.
    pub policies: Option<Arc<CompiledPolicies>>,
}

/// A port in the table.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) id: PortId,
    /// The number of its attachment.
    pub(crate) since: u64,
    pub(crate) port: Port,
    pub(crate) owner: OwnerId,
    /// The key that spreads frames over its queues.
    pub(crate) flows: FlowKey,
    /// Whether it also holds back other owners' senders.
    pub(crate) holds_others: bool,
    /// The state of holding senders back.
    pub(crate) holding: Arc<Holding>,
    /// Run-time state of its policies.
    pub(crate) state: Arc<PolicyState>,
    /// Monitors that get copies of the frames it sends.
    pub(crate) tx_monitors: Vec<Monitor>,
    /// Monitors that get copies of the frames it receives.
    pub(crate) rx_monitors: Vec<Monitor>,
    /// Traces of the frames it sends.
    pub(crate) traces: Vec<Arc<Trace>>,
}

/// Destinations of copies: for each ring of the watched port, a ring of the monitor, if that ring is watched. Empty: no
/// ring is.
pub type MonitorRings = Vec<Option<Arc<dyn Egress>>>;

/// A copy monitor on a port.
#[derive(Clone)]
pub(crate) struct Monitor {
    pub(crate) name: String,
    pub(crate) rings: MonitorRings,
}

impl Monitor {
    /// The destination of copies from ring `ring`.
    #[inline]
    pub(crate) fn egress(&self, ring: usize) -> Option<&dyn Egress> {
        self.rings.get(ring)?.as_deref()
    }
}

impl Entry {
    pub(crate) fn with_monitors(&self, tx: Vec<Monitor>, rx: Vec<Monitor>) -> Entry {
        Entry { tx_monitors: tx, rx_monitors: rx, ..self.clone() }
    }

    /// The origin of its frames.
    #[inline]
    pub(crate) fn origin(&self) -> Origin {
        Origin { port: self.id, owner: self.port.owner }
    }

    /// Whether frames of this owner may wait for room here.
    pub(crate) fn may_hold(&self, from: OwnerId) -> bool {
        self.holds_others || from == self.owner
    }
}
