//! The destinations to which a guest's UDP socket has sent.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use super::{UdpKey, ends_of};
use crate::core::{FlowReview, GatewayCore, PermittedFlow};
use crate::flows::{FlowBytes, FlowLimited, OpenFlow};
use crate::guests::GuestId;
use crate::rates::{RateWay, datagram_cost};

/// Maximum number of destinations of one socket.
const MAX_PEERS: usize = 64;

#[derive(Clone, Debug)]
struct UdpPeer {
    /// The destination as the guest sees it.
    remote: SocketAddr,
    /// The destination to which the host's socket sends.
    outer: SocketAddr,
    /// The DNS name that the guest resolved to the destination's address.
    name: Option<Arc<str>>,
    began: Instant,
    used: Instant,
    bytes: FlowBytes,
    /// Number of datagrams that the guest's rate limit dropped.
    dropped: u64,
}

impl UdpPeer {
    fn record(&self, key: &UdpKey) -> OpenFlow {
        let ends = ends_of(key, self.remote);
        let limited = FlowLimited { dropped: self.dropped, ..FlowLimited::default() };
        OpenFlow { ends, name: self.name.clone(), bytes: self.bytes, began: self.began, limited }
    }
}

/// The destinations of one socket, in no particular order.
#[derive(Debug, Default)]
pub struct UdpPeers(Vec<UdpPeer>);

impl UdpPeers {
    /// Returns the address to which the host's socket sends when the guest sends to `remote`; `None` for a new
    /// destination.
    pub fn outer(&self, remote: SocketAddr) -> Option<SocketAddr> {
        self.0.iter().find(|peer| peer.remote == remote).map(|peer| peer.outer)
    }

    /// Returns the destination as the guest sees it, from the address to which the host's socket sends; `None` if that
    /// address is unknown.
    pub fn remote(&self, outer: SocketAddr) -> Option<SocketAddr> {
        self.0.iter().find(|peer| peer.outer == outer).map(|peer| peer.remote)
    }

    /// Records that the guest sends a datagram of `len` bytes to a known destination. Returns whether the guest's rate
    /// limit lets the datagram pass.
    pub fn sent(&mut self, core: &mut GatewayCore, who: GuestId, remote: SocketAddr, len: usize) -> bool {
        let Some(peer) = self.0.iter_mut().find(|peer| peer.remote == remote) else { return true };
        peer.used = core.now;
        let passes = core.passes(who, RateWay::Sent, datagram_cost(len, remote.is_ipv4()));
        peer.bytes.sent += if passes { len as u64 } else { 0 };
        peer.dropped += u64::from(!passes);
        passes
    }

    /// Adds a destination. If the table is full, the new destination replaces the one that has been unused for longest.
    pub fn add(&mut self, core: &mut GatewayCore, key: &UdpKey, remote: SocketAddr, flow: PermittedFlow) {
        if self.0.len() >= MAX_PEERS
            && let Some((oldest, _)) = self.0.iter().enumerate().min_by_key(|(_, peer)| peer.used)
        {
            close(core, key, &self.0.swap_remove(oldest), "limit");
        }
        let PermittedFlow { outer, name } = flow;
        core.flows.opened(&ends_of(key, remote), name.as_deref());
        let [began, used] = [core.now; 2];
        self.0.push(UdpPeer { remote, outer, name, began, used, bytes: FlowBytes::default(), dropped: 0 });
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

    /// Records a received datagram. Returns whether the datagram may pass: the guest's rate allows it, and the guest
    /// has sent to the datagram's source address before. For a source on the host's loopback, where each port may
    /// belong to a different program, the guest must have sent to the same port, too.
    pub fn received(&mut self, core: &mut GatewayCore, who: GuestId, from: SocketAddr, len: usize) -> bool {
        let exact = self.0.iter().position(|peer| peer.outer == from);
        let same_host = || self.0.iter().position(|peer| peer.outer.ip() == from.ip());
        let found = exact.or_else(|| if from.ip().is_loopback() { None } else { same_host() });
        let Some(peer) = found.and_then(|at| self.0.get_mut(at)) else { return false };
        peer.used = core.now;
        let passes = core.passes(who, RateWay::Received, datagram_cost(len, peer.remote.is_ipv4()));
        peer.bytes.received += if passes { len as u64 } else { 0 };
        peer.dropped += u64::from(!passes);
        passes
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
