//! The plan of a batch: each frame's destination and variants (its copies with the right tags), and the number of drops
//! for each reason.

use std::ops::Range;

use netvale_mem::drops::REASONS;
use netvale_mem::steps::{Step, step};
use netvale_policy::snoop::SetNumber;
use netvale_port::{BATCH, DropReason, RingCounters};

use crate::classify::{FLOOD, NOWHERE};
use crate::fdb::PortId;
use crate::policies::{Class, KINDS};
use crate::snooping::CurrentGroups;

/// Value in [`FramePlan::variants`] for a kind of tag with which the frame has no variant.
pub(super) const NO_VARIANT: u16 = u16::MAX;

/// Value of [`FramePlan::members`] for a frame without a set of ports: all ports that take frames of its class get it.
pub(super) const ALL: SetNumber = SetNumber::MAX;

/// The sets of ports to which frames for multicast groups go.
#[derive(Default)]
pub(super) struct PortSets {
    /// The multicast groups by which the frames were planned; `None` if no port snoops.
    groups: Option<CurrentGroups>,
}

impl PortSets {
    /// Sets the multicast groups. The numbers of sets in later plans refer to their sets of ports.
    pub(super) fn set(&mut self, groups: Option<CurrentGroups>) {
        self.groups = groups;
    }

    /// Whether a port is in set `number`. `None` if there is no such set, e.g. for [`ALL`].
    #[inline]
    pub(super) fn has(&self, number: SetNumber, port: PortId) -> Option<bool> {
        if number == ALL {
            return None;
        }
        let groups = self.groups.as_ref()?.as_ref()?;
        groups.set(number).map(|set| set.has(port))
    }
}

/// The plan of a frame: its destination, and the variants that are delivered.
#[derive(Clone, Copy)]
pub(super) struct FramePlan {
    /// The destination: a port, [`FLOOD`] or [`NOWHERE`].
    pub(super) to: PortId,
    pub(super) vlan: u16,
    /// The reason for flooding, if the frame is flooded.
    pub(super) class: Class,
    /// Number of the set of ports that get a frame for a multicast group, or [`ALL`].
    pub(super) members: SetNumber,
    /// Index of the frame's variant with each kind of tag, or [`NO_VARIANT`].
    pub(super) variants: [u16; KINDS],
}

const DROPPED: FramePlan =
    FramePlan { to: NOWHERE, vlan: 0, class: Class::Unknown, members: ALL, variants: [NO_VARIANT; KINDS] };

/// Consecutive frames of a conversation (same addresses and VLAN), each with one variant.
pub(super) struct FrameRun {
    pub(super) frames: Range<usize>,
    /// The plan of the first frame.
    pub(super) first: FramePlan,
    /// The kind of tag of the first frame's only variant. The variants of the other frames follow that variant in
    /// order.
    pub(super) kind: usize,
}

/// The plans of a batch's frames, and the number of drops for each reason.
pub(super) struct BatchPlan {
    frames: [FramePlan; BATCH],
    /// Frames that are planned like the frame before them. Their elements of `frames` are filled in only when needed.
    pub(super) runs: Vec<FrameRun>,
    pub(super) sets: PortSets,
    /// For each flooded frame, whether the frame reaches at least one port.
    reached: [bool; BATCH],
    /// Number of flooded frames in the range of the batch that is being planned.
    pub(super) floods: usize,
    /// Maximum number of flooded frames in the range of the batch that is being planned.
    pub(super) most_floods: usize,
    drops: [u32; REASONS],
    has_drops: bool,
    /// The destination of all frames of the range so far: a port, [`NOWHERE`] if there are no frames yet, or [`FLOOD`]
    /// if there are several destinations.
    only: PortId,
}

impl Default for BatchPlan {
    fn default() -> BatchPlan {
        BatchPlan {
            frames: [DROPPED; BATCH],
            runs: Vec::with_capacity(BATCH),
            sets: PortSets::default(),
            reached: [false; BATCH],
            floods: 0,
            most_floods: usize::MAX,
            drops: [0; REASONS],
            has_drops: false,
            only: NOWHERE,
        }
    }
}

impl BatchPlan {
    #[inline]
    pub(super) fn frame(&self, i: usize) -> &FramePlan {
        self.frames.get(i).unwrap_or(&DROPPED)
    }

    /// Begins to plan a new range of the batch's frames.
    #[inline]
    pub(super) fn begin(&mut self) {
        self.only = NOWHERE;
        self.floods = 0;
        self.runs.clear();
    }

    /// Fills in the plans of the frames in `runs`.
    pub(super) fn fill(&mut self) {
        for FrameRun { frames, first, kind } in self.runs.drain(..) {
            let mut planned = first;
            for frame in self.frames.get_mut(frames).unwrap_or_default() {
                *frame = planned;
                planned.variants[kind] += 1;
            }
        }
    }

    /// Begins the delivery of flooded frames, none of which has reached a port yet.
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

    /// Counts the flooded `frames` that reached no port as dropped: there is no other port, no other port is in their
    /// VLAN, or no other port takes such frames. Frames for a multicast group without members are not counted.
    pub(super) fn end_flood(&mut self, frames: &[u16]) {
        for &i in frames {
            let is_group = self.frame(i.into()).members != ALL;
            if !is_group && !self.reached.get(usize::from(i)).is_some_and(|reached| *reached) {
                self.drop(DropReason::NoPort);
            }
        }
    }

    /// Counts a flooded frame of the range. Returns whether the range has now reached its maximum of flooded frames.
    #[cold]
    #[inline(never)]
    pub(super) fn floods_enough(&mut self) -> bool {
        self.floods += 1;
        self.floods >= self.most_floods
    }

    /// The port to which all variants of the range go. `None` if they go to several ports or are flooded, or if there
    /// are no variants.
    #[inline]
    pub(super) fn only(&self) -> Option<PortId> {
        (self.only != NOWHERE && self.only != FLOOD).then_some(self.only)
    }

    /// Records the destination of a frame of the range.
    #[inline]
    pub(super) fn note(&mut self, to: PortId) {
        self.only = if self.only == NOWHERE || self.only == to { to } else { FLOOD };
    }

    #[inline]
    pub(super) fn set(&mut self, i: usize, planned: Result<FramePlan, DropReason>) {
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

    /// Adds the numbers of drops to `counters`.
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
