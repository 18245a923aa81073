//! The plan of a batch: each frame's destination and variants, and counts of drops.

use std::ops::Range;

use netvale_mem::drops::REASONS;
use netvale_mem::steps::{Step, step};
use netvale_policy::snoop::PortSet;
use netvale_port::{BATCH, DropReason, RingCounters};

use crate::classify::{FLOOD, NOWHERE};
use crate::fdb::PortId;
use crate::policies::{Class, KINDS};

/// No variant of that kind.
pub(super) const NO_VARIANT: u16 = u16::MAX;

/// Every port that takes frames of its class.
pub(super) const ALL: u16 = u16::MAX;

/// Sets of ports for frames to groups.
pub(super) struct Sets {
    sets: [PortSet; BATCH],
    used: u16,
}

impl Sets {
    /// The number of a set; consecutive frames often share one.
    pub(super) fn number(&mut self, set: Option<&PortSet>) -> u16 {
        let Some(set) = set else { return ALL };
        let last = self.used.checked_sub(1).and_then(|last| self.sets.get(usize::from(last)));
        if last != Some(set)
            && let Some(place) = self.sets.get_mut(usize::from(self.used))
        {
            *place = *set;
            self.used += 1;
        }
        self.used - 1
    }

    /// Whether a port is in a set; `None` if there is no set.
    #[inline]
    pub(super) fn has(&self, number: u16, port: PortId) -> Option<bool> {
        if number == ALL { None } else { self.sets.get(usize::from(number)).map(|set| set.has(port)) }
    }
}

/// A frame's plan.
#[derive(Clone, Copy)]
pub(super) struct Planned {
    /// A port, [`FLOOD`], or [`NOWHERE`].
    pub(super) to: u8,
    pub(super) vlan: u16,
    /// The reason for flooding, if it is flooded.
    pub(super) class: Class,
    /// The set of ports for a frame to a group.
    pub(super) members: u16,
    /// Its variants, by kind of tag.
    pub(super) variants: [u16; KINDS],
}

const DROPPED: Planned =
    Planned { to: NOWHERE, vlan: 0, class: Class::Unknown, members: ALL, variants: [NO_VARIANT; KINDS] };

/// Frames of a conversation, with a variant each.
pub(super) struct Run {
    pub(super) frames: Range<usize>,
    /// The plan of the first frame, and the kind of its only variant. The others' variants follow.
    pub(super) first: Planned,
    pub(super) kind: usize,
}

/// The plans of a batch, and counts of drops.
pub(super) struct Plan {
    frames: [Planned; BATCH],
    /// Frames planned like the one before them; their part of `frames` is filled only when needed.
    pub(super) runs: Vec<Run>,
    pub(super) sets: Sets,
    /// Flooded frames that reach a port.
    reached: [bool; BATCH],
    drops: [u32; REASONS],
    has_drops: bool,
    /// The port of all frames of the range; [`NOWHERE`] if they go nowhere so far, [`FLOOD`] if they go to more than
    /// one.
    only: u8,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            frames: [DROPPED; BATCH],
            runs: Vec::with_capacity(BATCH),
            sets: Sets { sets: [PortSet::EMPTY; BATCH], used: 0 },
            reached: [false; BATCH],
            drops: [0; REASONS],
            has_drops: false,
            only: NOWHERE,
        }
    }
}

impl Plan {
    #[inline]
    pub(super) fn frame(&self, i: usize) -> &Planned {
        self.frames.get(i).unwrap_or(&DROPPED)
    }

    /// Begins another range.
    #[inline]
    pub(super) fn begin(&mut self) {
        self.only = NOWHERE;
        self.sets.used = 0;
        self.runs.clear();
    }

    /// Fills in the plans of frames planned like others before them.
    pub(super) fn fill(&mut self) {
        for Run { frames, first, kind } in self.runs.drain(..) {
            let mut planned = first;
            for frame in self.frames.get_mut(frames).unwrap_or_default() {
                *frame = planned;
                planned.variants[kind] += 1;
            }
        }
    }

    /// Begins to deliver flooded frames: none has reached a port yet.
    pub(super) fn begin_flood(&mut self) {
        self.reached.fill(false);
    }

    /// Records that flooded frame `i` reaches a port.
    #[inline]
    pub(super) fn reach(&mut self, i: u16) {
        if let Some(reached) = self.reached.get_mut(usize::from(i)) {
            *reached = true;
        }
    }

    /// Counts the flooded `frames` that reach no port: there is no other port, or none of their VLAN, or none that
    /// takes such frames. For a group, a lack of members is not a drop.
    pub(super) fn end_flood(&mut self, frames: &[u16]) {
        for &i in frames {
            let is_group = self.frame(i.into()).members != ALL;
            if !is_group && !self.reached.get(usize::from(i)).is_some_and(|reached| *reached) {
                self.drop(DropReason::NoPort);
            }
        }
    }

    /// The port that gets a single variant of each frame of the range that goes anywhere.
    #[inline]
    pub(super) fn only(&self) -> Option<PortId> {
        (self.only != NOWHERE && self.only != FLOOD).then_some(self.only)
    }

    /// Records a frame's destination.
    #[inline]
    pub(super) fn note(&mut self, to: u8) {
        self.only = if self.only == NOWHERE || self.only == to { to } else { FLOOD };
    }

    #[inline]
    pub(super) fn set(&mut self, i: usize, planned: Result<Planned, DropReason>) {
        let planned = planned.unwrap_or_else(|reason| {
            self.drop(reason);
            DROPPED
        });
        if let Some(frame) = self.frames.get_mut(i) {
            *frame = planned;
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn drop(&mut self, reason: DropReason) {
        step(Step::Dropped(reason, 1));
        self.drops[reason as usize] += 1;
        self.has_drops = true;
    }

    /// Counts the drops.
    pub(super) fn count_drops(&mut self, counters: &RingCounters) {
        if !std::mem::take(&mut self.has_drops) {
            return;
        }
        for (reason, count) in DropReason::ALL.iter().zip(&mut self.drops) {
            match std::mem::take(count) {
                0 => {}
                count => counters.dropped_before(*reason, count.into()),
            }
        }
    }
}
