//! The VTEPs that a tunnel knows, with traffic counters for each.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use netvale_port::pace::QueuePace;

use crate::ip::{self, IpWords};

/// Maximum number of VTEPs of a tunnel.
pub const MAX_PEERS: usize = 4096;

/// Counters of the frames and bytes sent to a VTEP and received from the VTEP.
#[derive(Debug, Default)]
pub struct PeerCounters {
    sent: [AtomicU64; 2],
    received: [AtomicU64; 2],
}

impl PeerCounters {
    /// Counts sent frames.
    pub fn sent(&self, frames: u64, bytes: u64) {
        add(&self.sent, frames, bytes);
    }

    /// Counts received frames.
    pub fn received(&self, frames: u64, bytes: u64) {
        add(&self.received, frames, bytes);
    }

    /// Returns the numbers of sent frames, sent bytes, received frames and received bytes.
    #[must_use]
    pub fn all(&self) -> [u64; 4] {
        let [sent, received] =
            [&self.sent, &self.received].map(|of| [0, 1].map(|i: usize| of[i].load(Ordering::Relaxed)));
        [sent[0], sent[1], received[0], received[1]]
    }
}

fn add([frames, bytes]: &[AtomicU64; 2], more: u64, more_bytes: u64) {
    frames.fetch_add(more, Ordering::Relaxed);
    bytes.fetch_add(more_bytes, Ordering::Relaxed);
}

/// A remote VTEP.
#[derive(Clone, Debug)]
pub struct VtepPeer {
    /// Address of the VTEP.
    pub ip: IpAddr,
    /// Whether the VTEP receives flooded frames.
    pub floods: bool,
    /// Traffic between the VTEP and this tunnel.
    pub counters: Arc<PeerCounters>,
    /// Limits the workers' time for datagrams to the VTEP.
    pub(crate) pace: Arc<QueuePace>,
}

/// A list of VTEPs, which is replaced as a whole when a VTEP is added or removed.
#[derive(Debug, Default)]
pub struct VtepPeers {
    list: Vec<VtepPeer>,
    /// Each VTEP's address and its index in `list`, sorted by address. With few VTEPs, as is usual, a binary search is
    /// faster than a hash table.
    places: Vec<(IpWords, usize)>,
    flood: Vec<IpWords>,
}

impl VtepPeers {
    /// Creates a list of VTEPs with their flood flags; VTEPs that are also in `before` keep their counters.
    #[must_use]
    pub fn new(all: impl IntoIterator<Item = (IpAddr, bool)>, before: &VtepPeers) -> VtepPeers {
        let mut peers = VtepPeers::default();
        for (ip, floods) in all {
            let words = ip::words(ip);
            let kept = before.get(words).map(|peer| (Arc::clone(&peer.counters), Arc::clone(&peer.pace)));
            let (counters, pace) = kept.unwrap_or_default();
            peers.places.push((words, peers.list.len()));
            peers.list.push(VtepPeer { ip, floods, counters, pace });
            peers.flood.extend(floods.then_some(words));
        }
        peers.places.sort_unstable();
        peers
    }

    /// Returns the VTEP with this address; `None` if it is unknown.
    #[inline]
    #[must_use]
    pub fn get(&self, words: IpWords) -> Option<&VtepPeer> {
        let found = self.places.binary_search_by_key(&words, |(words, _)| *words).ok()?;
        self.list.get(self.places[found].1)
    }

    /// Returns all VTEPs.
    #[must_use]
    pub fn all(&self) -> &[VtepPeer] {
        &self.list
    }

    /// Returns the VTEPs that receive flooded frames.
    #[inline]
    #[must_use]
    pub fn flood(&self) -> &[IpWords] {
        &self.flood
    }
}
