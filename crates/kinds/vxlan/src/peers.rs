//! The VTEPs that a tunnel knows, and the counters of what passed between it and each.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use netvale_port::pace::Pace;

use crate::ip::{self, Words};

/// Most VTEPs of a tunnel.
pub const MAX_PEERS: usize = 4096;

/// Frames and bytes that went to a VTEP and came from it.
#[derive(Debug, Default)]
pub struct PeerCounters {
    sent: [AtomicU64; 2],
    received: [AtomicU64; 2],
}

impl PeerCounters {
    /// Counts what was sent.
    pub fn sent(&self, frames: u64, bytes: u64) {
        add(&self.sent, frames, bytes);
    }

    /// Counts what was received.
    pub fn received(&self, frames: u64, bytes: u64) {
        add(&self.received, frames, bytes);
    }

    /// Frames and bytes sent, then received.
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

/// A VTEP.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Its address.
    pub ip: IpAddr,
    /// Whether it gets what goes to all.
    pub floods: bool,
    /// What passed between it and this tunnel.
    pub counters: Arc<PeerCounters>,
    /// The worker's time that datagrams to it take.
    pub(crate) pace: Arc<Pace>,
}

/// A list of VTEPs, which is replaced as a whole.
#[derive(Debug, Default)]
pub struct Peers {
    list: Vec<Peer>,
    /// Where each is in the list, by address: to search takes less than to hash for the few that there mostly are.
    places: Vec<(Words, usize)>,
    flood: Vec<Words>,
}

impl Peers {
    /// The list with those VTEPs, and whether they get what goes to all; those of `before` keep their counters.
    #[must_use]
    pub fn new(all: impl IntoIterator<Item = (IpAddr, bool)>, before: &Peers) -> Peers {
        let mut peers = Peers::default();
        for (ip, floods) in all {
            let words = ip::words(ip);
            let kept = before.get(words).map(|peer| (Arc::clone(&peer.counters), Arc::clone(&peer.pace)));
            let (counters, pace) = kept.unwrap_or_default();
            peers.places.push((words, peers.list.len()));
            peers.list.push(Peer { ip, floods, counters, pace });
            peers.flood.extend(floods.then_some(words));
        }
        peers.places.sort_unstable();
        peers
    }

    /// A VTEP that is in the list.
    #[inline]
    #[must_use]
    pub fn get(&self, words: Words) -> Option<&Peer> {
        let found = self.places.binary_search_by_key(&words, |(words, _)| *words).ok()?;
        self.list.get(self.places[found].1)
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> &[Peer] {
        &self.list
    }

    /// Those that get what goes to all.
    #[inline]
    #[must_use]
    pub fn flood(&self) -> &[Words] {
        &self.flood
    }
}
