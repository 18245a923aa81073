//! Multicast snooping: passes control messages from workers to the thread that keeps a switch's groups, and passes
//! groups and queries from that thread to the workers.
//!
//! ```text
//!   workers                                  the daemon's main thread
//!   messages of hosts and routers ─ heard ─►  reads them, keeps groups
//!   look members up ◄──────────── groups ───  a snapshot, made anew after a change
//!   deliver ◄─────────────────── queries ───  when the switch queries
//! ```

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwapOption, Guard};
use crossbeam_queue::ArrayQueue;
use netvale_policy::snoop::{Query, SnoopGroups};

use crate::fdb::PortId;

/// Maximum number of messages that wait to be read. Further messages are lost, but hosts repeat their reports.
const MESSAGES: usize = 1024;
/// Maximum number of queries that wait to be sent; further queries are dropped.
const QUERIES: usize = 256;
/// Length of the longest message in bytes: an Ethernet frame with two tags.
const LONGEST: usize = 1522;

/// A multicast control message (IGMP, MLD or PIM) that a port sent.
pub struct HeardMessage {
    /// VLAN of the message; 0 in a switch without VLANs.
    pub vlan: u16,
    /// Index of the port.
    pub port: PortId,
    /// Sequence number of the port's attachment. The port's index may belong to another port by the time the message is
    /// read.
    pub since: u64,
    len: u16,
    bytes: [u8; LONGEST],
}

impl HeardMessage {
    /// The whole frame.
    #[must_use]
    pub fn frame(&self) -> &[u8] {
        self.bytes.get(..self.len.into()).unwrap_or_default()
    }
}

/// The current groups. `None`: frames for multicast groups go to all ports.
pub(crate) type CurrentGroups = Guard<Option<Arc<SnoopGroups>>>;

type WakeFn = Box<dyn Fn() + Send + Sync>;

/// State that the workers of a snooping switch share with the thread that keeps the switch's groups.
pub struct Snooping {
    heard: ArrayQueue<HeardMessage>,
    groups: ArcSwapOption<SnoopGroups>,
    queries: ArrayQueue<Query>,
    /// Whether the reader has been woken and has not begun to read yet.
    is_told: AtomicBool,
    wake: OnceLock<WakeFn>,
    lost: AtomicU64,
}

impl Default for Snooping {
    fn default() -> Self {
        Snooping {
            heard: ArrayQueue::new(MESSAGES),
            groups: ArcSwapOption::empty(),
            queries: ArrayQueue::new(QUERIES),
            is_told: AtomicBool::new(false),
            wake: OnceLock::new(),
            lost: AtomicU64::new(0),
        }
    }
}

impl Snooping {
    /// Sets the function that wakes the reader. After each [`Snooping::begin_to_read`], the first message calls the
    /// function.
    pub fn wake_by(&self, wake: impl Fn() + Send + Sync + 'static) {
        let _ = self.wake.set(Box::new(wake));
    }

    /// Makes the next message wake the reader. Must be called before messages are read.
    pub fn begin_to_read(&self) {
        self.is_told.store(false, Ordering::SeqCst);
    }

    /// Takes the oldest message; `None` if no message waits.
    pub fn read(&self) -> Option<HeardMessage> {
        self.heard.pop()
    }

    /// Number of messages that were lost because they found no room or were too long.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Publishes the groups and their members; workers then forward by them. `None`: frames for multicast groups go to
    /// all ports.
    pub fn tell(&self, groups: Option<SnoopGroups>) {
        self.groups.store(groups.map(Arc::new));
    }

    /// Queues a query to be sent. If there is no room, the query is dropped.
    pub fn send(&self, query: Query) {
        let _ = self.queries.push(query);
    }

    /// Takes the next query to send; `None` if no query is queued.
    pub(crate) fn take_query(&self) -> Option<Query> {
        self.queries.pop()
    }

    pub(crate) fn has_queries(&self) -> bool {
        !self.queries.is_empty()
    }

    pub(crate) fn groups(&self) -> CurrentGroups {
        self.groups.load()
    }

    /// Passes a message to the reader, if there is room.
    #[cold]
    pub(crate) fn hear(&self, vlan: u16, port: PortId, since: u64, frame: &[u8]) {
        let mut heard = HeardMessage { vlan, port, since, len: frame.len() as u16, bytes: [0; LONGEST] };
        let room = heard.bytes.get_mut(..frame.len());
        let has_room = room.map(|room| room.copy_from_slice(frame)).is_some() && self.heard.push(heard).is_ok();
        if !has_room {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        if !self.is_told.swap(true, Ordering::SeqCst)
            && let Some(wake) = self.wake.get()
        {
            wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: messages are read whole and in order; messages that are too long or find no room are counted as lost;
    /// the reader is woken only once before it begins to read again.
    #[test]
    fn messages_are_heard_in_order_and_whole() {
        let snooping = Snooping::default();
        let woken = Arc::new(AtomicU64::new(0));
        let bell = Arc::clone(&woken);
        snooping.wake_by(move || _ = bell.fetch_add(1, Ordering::Relaxed));
        for i in 0..MESSAGES + 5 {
            snooping.hear(7, (i % 3) as PortId, i as u64, &[i as u8; 60]);
        }
        snooping.hear(7, 1, 1, &[0; LONGEST + 1]);
        assert_eq!((snooping.lost(), woken.load(Ordering::Relaxed)), (6, 1));
        snooping.begin_to_read();
        for i in 0..MESSAGES {
            let heard = snooping.read().unwrap();
            assert_eq!((heard.vlan, usize::from(heard.port), heard.since), (7, i % 3, i as u64));
            assert_eq!(heard.frame(), &[i as u8; 60][..]);
        }
        assert!(snooping.read().is_none());
        snooping.hear(0, 1, 1, &[1; LONGEST]);
        assert_eq!((snooping.read().unwrap().frame().len(), woken.load(Ordering::Relaxed)), (LONGEST, 2));
    }
}
