//! The destinations to which a guest's UDP socket has sent.

use std::net::SocketAddr;

use super::{UdpKey, ends_of};
use crate::core::{FlowReview, GatewayCore, PermittedFlow};
use crate::flows::OpenFlow;
use crate::outward::DatagramFlow;
use crate::rates::RateWay;

/// Maximum number of destinations of one socket.
const MAX_PEERS: usize = 64;

#[derive(Debug)]
struct UdpPeer {
    /// The destination to which the host's socket sends.
    outer: SocketAddr,
    /// The flow, with the destination as the guest sees it.
    flow: DatagramFlow,
}

impl UdpPeer {
    fn remote(&self) -> SocketAddr {
        self.flow.open().ends.remote
    }
}

/// The destinations of one socket, in no particular order.
#[derive(Debug, Default)]
pub struct UdpPeers(Vec<UdpPeer>);

impl UdpPeers {
    /// Returns the address to which the host's socket sends when the guest sends to `remote`; `None` for a new
    /// destination.
    pub fn outer(&self, remote: SocketAddr) -> Option<SocketAddr> {
        self.0.iter().find(|peer| peer.remote() == remote).map(|peer| peer.outer)
    }

    /// Returns the destination as the guest sees it, from the address to which the host's socket sends; `None` if that
    /// address is unknown.
    pub fn remote(&self, outer: SocketAddr) -> Option<SocketAddr> {
        self.0.iter().find(|peer| peer.outer == outer).map(UdpPeer::remote)
    }

    /// Records that the guest sends a datagram of `len` bytes to a known destination. Returns whether the guest's rate
    /// limit lets the datagram pass.
    pub fn sent(&mut self, core: &mut GatewayCore, remote: SocketAddr, len: usize) -> bool {
        let Some(UdpPeer { flow, .. }) = self.0.iter_mut().find(|peer| peer.remote() == remote) else { return true };
        flow.used = core.now;
        flow.passes(core, RateWay::Sent, len)
    }

    /// Adds a destination. If the table is full, the new destination replaces the one that has been unused for longest.
    pub fn add(&mut self, core: &mut GatewayCore, key: &UdpKey, remote: SocketAddr, flow: PermittedFlow) {
        if self.0.len() >= MAX_PEERS
            && let Some((oldest, _)) = self.0.iter().enumerate().min_by_key(|(_, peer)| peer.flow.used)
        {
            self.0.swap_remove(oldest).flow.close(core, "limit");
        }
        let PermittedFlow { outer, name } = flow;
        self.0.push(UdpPeer { outer, flow: DatagramFlow::begin(core, ends_of(key, remote), name) });
    }

    /// Returns the flows.
    pub fn open_flows(&self) -> impl Iterator<Item = OpenFlow> {
        self.0.iter().map(|peer| peer.flow.open().clone())
    }

    /// Closes the flows that the rules no longer allow. Returns their number.
    pub fn end_refused(&mut self, core: &mut GatewayCore, review: &mut FlowReview) -> usize {
        let refused: Vec<_> = self.0.extract_if(.., |peer| !peer.flow.is_permitted(core, review)).collect();
        refused.iter().for_each(|peer| peer.flow.close(core, "policy"));
        refused.len()
    }

    /// Returns whether there is no destination.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Records a received datagram. Returns whether the datagram may pass: the guest's rate allows it, and the guest
    /// has sent to the datagram's source address before. For a source on the host's loopback, where each port may
    /// belong to a different program, the guest must have sent to the same port, too.
    pub fn received(&mut self, core: &mut GatewayCore, from: SocketAddr, len: usize) -> bool {
        let exact = self.0.iter().position(|peer| peer.outer == from);
        let same_host = || self.0.iter().position(|peer| peer.outer.ip() == from.ip());
        let found = exact.or_else(|| if from.ip().is_loopback() { None } else { same_host() });
        let Some(UdpPeer { flow, .. }) = found.and_then(|at| self.0.get_mut(at)) else { return false };
        flow.used = core.now;
        flow.passes(core, RateWay::Received, len)
    }

    /// Closes all flows.
    pub fn close_all(&mut self, core: &mut GatewayCore, reason: &str) {
        self.0.drain(..).for_each(|peer| peer.flow.close(core, reason));
    }
}
