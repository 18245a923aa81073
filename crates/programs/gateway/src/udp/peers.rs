//! The destinations to which a guest's UDP socket has sent.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use super::{UdpKey, ends_of};
use crate::core::{FlowReview, GatewayCore, PermittedFlow};
use crate::flows::{FlowBytes, OpenFlow};

/// Maximum number of destinations of one socket.
const MAX_PEERS: usize = 64;

#[derive(Clone, Debug)]
struct UdpPeer {
    /// The destination as the guest sees it.
    remote: SocketAddr,
    /// The destination to which the host's socket sends.
    outer: SocketAddr,
    /// The name for which the guest has got the destination's address.
    name: Option<Arc<str>>,
    began: Instant,
    used: Instant,
    bytes: FlowBytes,
}

impl UdpPeer {
    fn record(&self, key: &UdpKey) -> OpenFlow {
        let ends = ends_of(key, self.remote);
        OpenFlow { ends, name: self.name.clone(), bytes: self.bytes, began: self.began }
    }
}

/// The destinations of one socket, in no order.
#[derive(Debug, Default)]
pub struct UdpPeers(Vec<UdpPeer>);

impl UdpPeers {
    /// Returns the address to which the host's socket sends for a destination of the guest; `None` for a new
    /// destination.
    pub fn outer(&self, remote: SocketAddr) -> Option<SocketAddr> {
        self.0.iter().find(|peer| peer.remote == remote).map(|peer| peer.outer)
    }

    /// Returns the address by which the guest sees a destination of the host's socket; `None` for an unknown one.
    pub fn remote(&self, outer: SocketAddr) -> Option<SocketAddr> {
        self.0.iter().find(|peer| peer.outer == outer).map(|peer| peer.remote)
    }

    /// Records that the guest has sent `len` bytes to a destination that is known.
    pub fn sent(&mut self, remote: SocketAddr, len: usize, now: Instant) {
        if let Some(peer) = self.0.iter_mut().find(|peer| peer.remote == remote) {
            peer.bytes.sent += len as u64;
            peer.used = now;
        }
    }

    /// Adds a destination. It replaces the one unused for longest if the table is full.
    pub fn add(&mut self, core: &mut GatewayCore, key: &UdpKey, remote: SocketAddr, flow: PermittedFlow) {
        if self.0.len() >= MAX_PEERS
            && let Some((oldest, _)) = self.0.iter().enumerate().min_by_key(|(_, peer)| peer.used)
        {
            close(core, key, &self.0.swap_remove(oldest), "limit");
        }
        let PermittedFlow { outer, name } = flow;
        core.flows.opened(&ends_of(key, remote), name.as_deref());
        self.0.push(UdpPeer { remote, outer, name, began: core.now, used: core.now, bytes: FlowBytes::default() });
    }

    /// Returns the flows.
    pub fn open_flows(&self, key: &UdpKey) -> impl Iterator<Item = OpenFlow> {
        self.0.iter().map(|peer| peer.record(key))
    }

    /// Closes the flows that the rules no longer allow. Returns their number.
    pub fn end_refused(&mut self, core: &mut GatewayCore, key: &UdpKey, review: &mut FlowReview) -> usize {
        let is_refused = |peer: &mut UdpPeer| !core.permits(review, &ends_of(key, peer.remote), peer.name.as_ref());
        let refused: Vec<_> = self.0.extract_if(.., is_refused).collect();
        refused.iter().for_each(|peer| close(core, key, peer, "policy"));
        refused.len()
    }

    /// Returns whether there is no destination.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Records a received datagram. Returns whether the guest has sent to the datagram's source address before; on the
    /// host's loopback, where each port may be another program, also to the same port.
    pub fn received(&mut self, from: SocketAddr, len: usize, now: Instant) -> bool {
        let exact = self.0.iter().position(|peer| peer.outer == from);
        let same_host = || self.0.iter().position(|peer| peer.outer.ip() == from.ip());
        let found = exact.or_else(|| if from.ip().is_loopback() { None } else { same_host() });
        let Some(peer) = found.and_then(|at| self.0.get_mut(at)) else { return false };
        peer.bytes.received += len as u64;
        peer.used = now;
        true
    }

    /// Closes all flows.
    pub fn close_all(&mut self, core: &mut GatewayCore, key: &UdpKey, reason: &str) {
        for peer in self.0.drain(..) {
            close(core, key, &peer, reason);
        }
    }
}

fn close(core: &mut GatewayCore, key: &UdpKey, peer: &UdpPeer, reason: &str) {
    core.flows.closed(&peer.record(key), reason, core.now);
}
