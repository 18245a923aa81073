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
    /// The egresses for frames to it, one per ring; may be empty for a port that only sends.
    pub egresses: Vec<Arc<dyn Egress>>,
    /// How many rings its frames come from; 0 is one.
    pub rings: usize,
    /// Whether it holds senders back instead of dropping frames when it is full.
    pub lossless: bool,
    /// Whose it is, for example a user's number. Ports of one owner share their part of the forwarding table.
    pub owner: u32,
    /// How many addresses its owner may have in the forwarding table; `None` is as many as there is room for.
    pub most_addresses: Option<u32>,
    /// What its operator wants of it, if anything.
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
    /// By which frames are spread over its queues.
    pub(crate) flows: FlowKey,
    /// Whether it holds back other owners' senders, too.
    pub(crate) holds_others: bool,
    /// How long senders are held back.
    pub(crate) holding: Arc<Holding>,
    /// What policies have counted.
    pub(crate) state: Arc<PolicyState>,
    /// Monitors that get a copy of what the port sends.
    pub(crate) tx_monitors: Vec<Monitor>,
    /// Monitors that get a copy of what the port receives.
    pub(crate) rx_monitors: Vec<Monitor>,
    /// Those who trace what becomes of the frames that it sends.
    pub(crate) traces: Vec<Arc<Trace>>,
}

/// Destinations of copies: for each ring of the watched port, a ring of the monitor, if that ring is watched. Empty:
/// none is.
pub type MonitorRings = Vec<Option<Arc<dyn Egress>>>;

/// A copy monitor on a port.
#[derive(Clone)]
pub(crate) struct Monitor {
    pub(crate) name: String,
    pub(crate) rings: MonitorRings,
}

impl Monitor {
    /// The destination of copies of the frames that pass ring `ring`.
    #[inline]
    pub(crate) fn egress(&self, ring: usize) -> Option<&dyn Egress> {
        self.rings.get(ring)?.as_deref()
    }
}

impl Entry {
    pub(crate) fn with_monitors(&self, tx: Vec<Monitor>, rx: Vec<Monitor>) -> Entry {
        Entry { tx_monitors: tx, rx_monitors: rx, ..self.clone() }
    }

    /// Whose its frames are.
    #[inline]
    pub(crate) fn origin(&self) -> Origin {
        Origin { port: self.id, owner: self.port.owner }
    }

    /// Whether frames of that owner may wait for room here.
    pub(crate) fn may_hold(&self, from: OwnerId) -> bool {
        self.holds_others || from == self.owner
    }
}
