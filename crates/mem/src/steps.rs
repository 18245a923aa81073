//! What becomes of one frame, step by step, while somebody traces it.
//!
//! Who moves frames says at each turn what is happening ([`step`]); that costs a look at one word while nobody traces. A thread
//! that moves a traced frame alone takes the steps down between [`begin`] and [`end`], whichever code says them: so every drop
//! that is counted is also a step, as [`RingCounters::dropped`](crate::drops::RingCounters::dropped) says one.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::drops::DropReason;

/// Something that happens to a frame. Ports are numbers of the switch's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Its VLAN.
    Vlan(u16),
    /// Its source was not known, and is known from now on.
    Learned,
    /// Its source was known behind another port.
    Moved(u8),
    /// A filter's rule fits it: its number, from 0, and whether it drops.
    Rule(u16, bool),
    /// It goes to all, or to a group's members.
    Floods,
    /// It is put on the link of the port that it comes from.
    Link,
    /// It goes to a port's ring.
    To(u8, u8),
    /// It waits there until there is room.
    Waits,
    /// It was cut into that many segments.
    Cut(u32),
    /// Its checksum was computed.
    Summed,
    /// It, or that many copies of it, were dropped.
    Dropped(DropReason, u32),
}

/// Steps of a frame that are taken down.
const STEPS: usize = 30;

/// The steps of a frame.
#[derive(Clone, Copy, Debug)]
pub struct Steps {
    list: [Step; STEPS],
    len: u8,
    more: u32,
    is_open: bool,
}

impl Steps {
    /// No steps.
    pub const NONE: Steps = Steps { list: [Step::Floods; STEPS], len: 0, more: 0, is_open: false };

    /// The steps, in order.
    #[must_use]
    pub fn list(&self) -> &[Step] {
        self.list.get(..self.len.into()).unwrap_or(&self.list)
    }

    /// Number of further ones, which found no room.
    #[must_use]
    pub fn more(&self) -> u32 {
        self.more
    }

    fn add(&mut self, step: Step) {
        match self.list.get_mut(usize::from(self.len)) {
            Some(place) => {
                *place = step;
                self.len += 1;
            }
            None => self.more = self.more.saturating_add(1),
        }
    }
}

/// Traces that are running.
static TRACES: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static OWN: RefCell<Steps> = const { RefCell::new(Steps::NONE) };
}

/// While it lives, steps can be taken down.
#[derive(Debug)]
pub struct Tracing(());

impl Tracing {
    /// Begins.
    #[must_use]
    pub fn new() -> Tracing {
        TRACES.fetch_add(1, Ordering::Relaxed);
        Tracing(())
    }
}

impl Default for Tracing {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Tracing {
    fn drop(&mut self) {
        TRACES.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether anybody traces anything.
#[inline]
#[must_use]
pub fn are_wanted() -> bool {
    TRACES.load(Ordering::Relaxed) > 0
}

/// Something happens to the frame that the calling thread moves.
#[inline]
pub fn step(step: Step) {
    if are_wanted() {
        take_down(step);
    }
}

#[cold]
fn take_down(step: Step) {
    OWN.with_borrow_mut(|own| {
        if own.is_open {
            own.add(step);
        }
    });
}

/// The calling thread moves a frame alone from now on.
pub fn begin() {
    OWN.set(Steps { is_open: true, ..Steps::NONE });
}

/// What became of it so far.
#[must_use]
pub fn end() -> Steps {
    OWN.replace(Steps::NONE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drops::RingCounters;

    /// Objective: steps are taken down between begin and end only, and only while somebody traces; drops are steps; what finds no
    /// room is counted.
    #[test]
    fn taken_down() {
        let counters = RingCounters::default();
        let tracing = Tracing::new();
        step(Step::Floods);
        begin();
        step(Step::To(1, 0));
        counters.dropped(DropReason::NoRoom, 2);
        let steps = end();
        assert_eq!(steps.list(), [Step::To(1, 0), Step::Dropped(DropReason::NoRoom, 2)]);
        begin();
        (0..40).for_each(|_| step(Step::Learned));
        let steps = end();
        assert_eq!((steps.list().len(), steps.more()), (STEPS, 10));
        begin();
        std::thread::scope(|scope| _ = scope.spawn(|| step(Step::Summed)));
        assert!(end().list().is_empty(), "another thread's frame");
        drop(tracing);
    }
}
