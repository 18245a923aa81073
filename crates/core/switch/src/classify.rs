//! First phase of forwarding: finds the destination of each frame of a batch.

use netvale_port::{BATCH, Batch, DropReason, FrameRef, MOST_NEWS, RingCounters};

use crate::fdb::{Fdb, PortId};
use crate::owners::MAX_PORTS;

/// Destination of flooded frames: all ports except the sender's.
pub(crate) const FLOOD: PortId = MAX_PORTS as PortId;
/// Destination of frames that are dropped.
pub(crate) const NOWHERE: PortId = FLOOD + 1;
const END: u16 = u16::MAX;

/// The frames of a batch grouped by destination: a list for each port, and one list of flooded frames, each in order.
pub struct DestinationGroups {
    next: [u16; BATCH],
    /// First and last frame of each port's list; entry [`FLOOD`] is the list of flooded frames.
    lists: [(u16, u16); MAX_PORTS + 1],
    /// Ports with a non-empty list, in order of first appearance.
    active: Vec<PortId>,
    /// The port to which all frames go; `None` if frames go to several ports, are flooded, or are dropped.
    only: Option<PortId>,
}

impl Default for DestinationGroups {
    fn default() -> Self {
        let next = [END; BATCH];
        let lists = [(END, END); MAX_PORTS + 1];
        DestinationGroups { next, lists, active: Vec::with_capacity(BATCH), only: None }
    }
}

impl DestinationGroups {
    /// Groups frames by the destinations that `to` returns: ports, [`FLOOD`] or [`NOWHERE`].
    pub(crate) fn sort(&mut self, frames: std::ops::Range<usize>, to: impl Fn(usize) -> PortId) {
        self.reset();
        let mut uniform = true;
        for i in frames {
            uniform &= self.append(to(i), i as u16);
        }
        self.only = self.active.first().copied().filter(|_| uniform && self.active.len() == 1);
    }

    /// Learns the source addresses of a range of `batch`, looks up the destinations, and groups the frames.
    #[cold]
    pub(crate) fn classify_range(
        &mut self,
        batch: &Batch,
        range: std::ops::Range<usize>,
        from: PortId,
        fdb: &Fdb,
        counters: &RingCounters,
    ) {
        let frames = range.filter_map(|i| Some((i, batch.get(i)?)));
        self.classify_with(frames, from, fdb, counters, destination_or_elsewhere);
    }

    /// Learns the source addresses of `batch`, looks up the destinations, and groups the frames.
    pub fn classify(&mut self, batch: &Batch, from: PortId, fdb: &Fdb, counters: &RingCounters) {
        if fdb.asks() {
            self.classify_with(batch.iter().enumerate(), from, fdb, counters, destination_or_elsewhere);
        } else {
            self.classify_with(batch.iter().enumerate(), from, fdb, counters, destination);
        }
    }

    /// The loop of `classify`, with one instance per kind of look-up, so that a switch without address finders does not
    /// pay for them.
    #[inline(never)]
    fn classify_with<'a>(
        &mut self,
        frames: impl Iterator<Item = (usize, FrameRef<'a>)>,
        from: PortId,
        fdb: &Fdb,
        counters: &RingCounters,
        destination: impl Fn(u64, &Fdb) -> PortId,
    ) {
        self.reset();
        let mut last = (u64::MAX, u64::MAX);
        let mut last_to = NOWHERE;
        let mut uniform = true;
        let mut news = MOST_NEWS;
        for (i, frame) in frames {
            let to = match frame.addresses() {
                None => {
                    counters.dropped(DropReason::Runt, 1);
                    NOWHERE
                }
                // Consecutive frames mostly have equal addresses, which need no second look-up.
                Some(pair) if pair == last && !frame.no_learn() => last_to,
                Some((dst, src)) => {
                    if !frame.no_learn() && news > 0 {
                        fdb.learn_some(src, from, &mut news);
                    }
                    last = (dst, src);
                    last_to = destination(dst, fdb);
                    last_to
                }
            };
            let to = if to == from {
                counters.dropped(DropReason::SamePort, 1);
                NOWHERE
            } else {
                to
            };
            uniform &= self.append(to, i as u16);
        }
        let one = self.active.first().copied().filter(|_| uniform && self.active.len() == 1);
        self.only = one;
    }

    fn reset(&mut self) {
        for id in self.active.drain(..) {
            self.lists[usize::from(id)] = (END, END);
        }
        self.lists[usize::from(FLOOD)] = (END, END);
        self.only = None;
    }

    /// Appends frame `i` to the list of `to`. Returns whether `to` is a port: not [`FLOOD`], nor [`NOWHERE`].
    #[inline]
    fn append(&mut self, to: PortId, i: u16) -> bool {
        if to == NOWHERE {
            return false;
        }
        let (first, last) = &mut self.lists[usize::from(to)];
        self.next[usize::from(i)] = END;
        if *first == END {
            *first = i;
            if to != FLOOD {
                self.active.push(to);
            }
        } else {
            self.next[usize::from(*last)] = i;
        }
        *last = i;
        to != FLOOD
    }

    /// The port to which all frames go; `None` if frames go to several ports, are flooded, or are dropped.
    #[inline]
    pub fn only(&self) -> Option<PortId> {
        self.only
    }

    /// Ports to which frames are addressed.
    pub fn active(&self) -> &[PortId] {
        &self.active
    }

    /// Whether frames are addressed to this port.
    #[inline]
    pub fn has(&self, port: PortId) -> bool {
        self.lists[usize::from(port)].0 != END
    }

    /// Whether any frames are flooded.
    pub fn floods(&self) -> bool {
        self.lists[usize::from(FLOOD)].0 != END
    }

    /// Writes the indices of the frames addressed to this port into `picks`, in order. Not inlined, so that the loop
    /// gets the registers that it needs.
    #[inline(never)]
    pub fn own<'a>(&self, port: PortId, picks: &'a mut [u16]) -> &'a [u16] {
        let mut next = self.lists[usize::from(port)].0;
        let mut n = 0;
        for place in &mut *picks {
            let Some(&behind) = self.next.get(usize::from(next)) else { break };
            *place = next;
            next = behind;
            n += 1;
        }
        &picks[..n]
    }

    /// Writes the indices of the frames for a port into `picks`, in order: frames addressed to the port if `own`, and
    /// flooded frames if `flood`.
    pub fn picks<'a>(&self, port: PortId, own: bool, flood: bool, picks: &'a mut [u16]) -> &'a [u16] {
        let mut a = if own { self.lists[usize::from(port)].0 } else { END };
        let mut b = if flood { self.lists[usize::from(FLOOD)].0 } else { END };
        let mut n = 0;
        // `a` and `b` are the first remaining frames of two sorted lists. END is larger than any index, so the
        // smaller of the two is always the next frame.
        while let Some(place) = picks.get_mut(n).filter(|_| a != END || b != END) {
            let from = if a < b { &mut a } else { &mut b };
            *place = *from;
            *from = self.next[usize::from(*from)];
            n += 1;
        }
        &picks[..n]
    }
}

#[inline]
fn destination(dst: u64, fdb: &Fdb) -> PortId {
    if dst & 1 != 0 { FLOOD } else { fdb.lookup(dst).unwrap_or(FLOOD) }
}

/// Like `destination`, but also asks the address finders about addresses missing from the table.
#[inline]
fn destination_or_elsewhere(dst: u64, fdb: &Fdb) -> PortId {
    if dst & 1 != 0 { FLOOD } else { fdb.lookup(dst).or_else(|| fdb.elsewhere(0, dst)).unwrap_or(FLOOD) }
}
