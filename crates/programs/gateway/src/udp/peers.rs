//! The destinations to which a guest's UDP socket has sent.

use std::net::SocketAddr;
use std::time::Instant;

use super::{UdpKey, ends_of};
use crate::core::GatewayCore;
use crate::flows::FlowBytes;

/// Maximum number of destinations of one socket.
const MAX_PEERS: usize = 64;

#[derive(Clone, Copy, Debug)]
struct UdpPeer {
    /// The destination as the guest sees it.
    remote: SocketAddr,
    /// The destination to which the host's socket sends.
    outer: SocketAddr,
    began: Instant,
    used: Instant,
    bytes: FlowBytes,
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

    /// Records that the guest has sent to a destination. A new one replaces the one unused for longest if the table is
    /// full.
    pub fn sent(&mut self, core: &mut GatewayCore, key: &UdpKey, remote: SocketAddr, outer: SocketAddr, len: usize) {
        if let Some(peer) = self.0.iter_mut().find(|peer| peer.remote == remote) {
            peer.bytes.sent += len as u64;
            peer.used = core.now;
            return;
        }
        if self.0.len() >= MAX_PEERS
            && let Some((oldest, _)) = self.0.iter().enumerate().min_by_key(|(_, peer)| peer.used)
        {
            close(core, key, &self.0.swap_remove(oldest), "limit");
        }
        core.flows.opened(&ends_of(key, remote));
        let bytes = FlowBytes { sent: len as u64, received: 0 };
        self.0.push(UdpPeer { remote, outer, began: core.now, used: core.now, bytes });
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
    let lived = core.now.saturating_duration_since(peer.began);
    core.flows.closed(&ends_of(key, peer.remote), reason, peer.bytes, lived);
}
