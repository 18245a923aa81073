//! The steps of one traced frame.
//!
//! The code that moves frames reports each step ([`step`]), at the cost of one load while no trace runs. A thread that
//! traces a frame moves it alone, and records the steps reported between [`begin`] and [`end`]. Every counted drop is
//! also a step: [`RingCounters::dropped`](crate::drops::RingCounters::dropped) reports it.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::reason::DropReason;

/// An event on a frame's path. Ports are identified by their index on the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The frame belongs to the VLAN with this ID.
    Vlan(u16),
    /// The source address was unknown, and is now learned.
    Learned,
    /// The source address moved to the source port from this other port.
    Moved(u16),
    /// The source address stays assigned to this other port.
    Kept(u16),
    /// The source address is not learned: the port, or its owner, has reached its limit of addresses.
    NotLearned,
    /// The steps that follow are decisions for this destination port.
    Out(u16),
    /// A rule of a filter matches: its number, from 0, and whether it drops the frame.
    Rule(u16, bool),
    /// The destination address is unknown.
    Unknown,
    /// The frame is flooded, or goes to the members of a group.
    Floods,
    /// The frame enters the emulated link (delay, loss) of its source port.
    Link,
    /// The frame goes to a ring: index of the port, and index of the port's ring.
    To(u16, u8),
    /// The frame waits for room in the ring of the last [`Step::To`].
    Waits,
    /// The frame entered the ring for which it waited.
    Taken,
    /// The frame was cut into this many segments.
    Cut(u32),
    /// The frame's checksum was filled in.
    Summed,
    /// This many copies of the frame were dropped.
    Dropped(DropReason, u32),
}

/// Maximum number of recorded steps of a frame.
const STEPS: usize = 30;
/// Number of entries in a frame's list that are reserved for drops, and for the steps that name the ports of the drops.
const FOR_DROPS: usize = 6;

/// The steps of a frame.
#[derive(Clone, Copy, Debug)]
pub struct Steps {
    list: [Step; STEPS],
    len: u8,
    more: u32,
    has_drop: bool,
    is_open: bool,
    /// The step omitted last, if it names a destination port.
    left_out: Option<Step>,
}

impl Steps {
    /// An empty list of steps.
    pub const NONE: Steps =
        Steps { list: [Step::Floods; STEPS], len: 0, more: 0, has_drop: false, is_open: false, left_out: None };

    /// Returns a list with a single step.
    #[must_use]
    pub fn one(step: Step) -> Steps {
        let mut steps = Steps::NONE;
        steps.add(step);
        steps
    }

    /// The steps, in order.
    #[must_use]
    pub fn list(&self) -> &[Step] {
        self.list.get(..self.len.into()).unwrap_or(&self.list)
    }

    /// Number of further steps that were omitted for lack of room.
    #[must_use]
    pub fn more(&self) -> u32 {
        self.more
    }

    /// Whether a step, listed or omitted, is a drop.
    #[must_use]
    pub fn has_drop(&self) -> bool {
        self.has_drop
    }

    /// Adds the steps of `later`.
    pub fn append(&mut self, later: &Steps) {
        later.list().iter().for_each(|step| self.add(*step));
        self.more = self.more.saturating_add(later.more);
        self.has_drop |= later.has_drop;
    }

    fn clear(&mut self, is_open: bool) {
        self.len = 0;
        self.more = 0;
        self.has_drop = false;
        self.is_open = is_open;
        self.left_out = None;
    }

    fn add(&mut self, step: Step) {
        let is_drop = matches!(step, Step::Dropped(..));
        self.has_drop |= is_drop;
        if usize::from(self.len) < STEPS - FOR_DROPS {
            return self.push(step);
        }
        match self.left_out.take() {
            Some(to) if is_drop && usize::from(self.len) + 1 < STEPS => {
                self.more -= 1;
                self.push(to);
                self.push(step);
            }
            _ if is_drop && usize::from(self.len) < STEPS => self.push(step),
            _ => {
                self.more = self.more.saturating_add(1);
                self.left_out = Some(step).filter(|step| matches!(step, Step::To(..) | Step::Out(_)));
            }
        }
    }

    fn push(&mut self, step: Step) {
        if let Some(place) = self.list.get_mut(usize::from(self.len)) {
            *place = step;
            self.len += 1;
        }
    }
}

/// The number of running traces and, in the highest bit, whether batches are timed: one word, so that a single load
/// suffices.
static NOTED: AtomicU32 = AtomicU32::new(0);
const TIMED: u32 = 1 << 31;

thread_local! {
    static OWN: RefCell<Steps> = const { RefCell::new(Steps::NONE) };
}

/// A running trace: steps are recorded while any value of this type exists.
#[derive(Debug)]
pub struct Tracing(());

impl Tracing {
    /// Starts a trace.
    #[must_use]
    pub fn new() -> Tracing {
        NOTED.fetch_add(1, Ordering::Relaxed);
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
        NOTED.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether any trace runs.
#[inline]
#[must_use]
pub fn are_wanted() -> bool {
    NOTED.load(Ordering::Relaxed) & !TIMED > 0
}

/// Whether any trace runs, or batches are timed.
#[inline]
#[must_use]
pub fn are_noted() -> bool {
    NOTED.load(Ordering::Relaxed) > 0
}

/// Sets whether batches are timed.
pub(crate) fn set_timed(timed: bool) {
    if timed {
        NOTED.fetch_or(TIMED, Ordering::Relaxed);
    } else {
        NOTED.fetch_and(!TIMED, Ordering::Relaxed);
    }
}

/// Reports a step of the frame that the calling thread moves.
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

/// Starts recording. Until [`end`], the calling thread moves one frame alone.
pub fn begin() {
    OWN.with_borrow_mut(|own| own.clear(true));
}

/// Runs an action whose steps do not belong to the traced frame: they are not recorded.
pub fn aside(f: impl FnOnce()) {
    let is_open = OWN.with_borrow_mut(|own| std::mem::take(&mut own.is_open));
    f();
    OWN.with_borrow_mut(|own| own.is_open = is_open);
}

/// Ends recording. Returns the recorded steps; `None` if no steps were recorded.
#[must_use]
pub fn end() -> Option<Steps> {
    OWN.with_borrow_mut(|own| {
        own.is_open = false;
        (own.len > 0).then_some(*own)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drops::RingCounters;

    /// Objective: steps are recorded only between `begin` and `end`, by the same thread, and only while a trace runs;
    /// drops are steps.
    #[test]
    fn steps_are_recorded_only_while_a_trace_runs() {
        let counters = RingCounters::default();
        let tracing = Tracing::new();
        step(Step::Floods);
        begin();
        step(Step::To(1, 0));
        counters.dropped(DropReason::NoRoom, 2);
        let steps = end().unwrap();
        assert_eq!(steps.list(), [Step::To(1, 0), Step::Dropped(DropReason::NoRoom, 2)]);
        assert!(steps.has_drop());
        step(Step::Floods);
        begin();
        std::thread::scope(|scope| _ = scope.spawn(|| step(Step::Summed)));
        assert!(end().is_none(), "the step of another thread's frame");
        drop(tracing);
    }

    /// Objective: for a frame to more ports than a list has room for, drops are listed with their ports.
    #[test]
    fn drops_find_room() {
        let mut steps = Steps::NONE;
        (0..40).for_each(|port| steps.add(Step::To(port, 0)));
        assert_eq!((steps.list().len(), steps.more(), steps.has_drop()), (STEPS - FOR_DROPS, 40 - 24, false));
        for port in 40..50 {
            steps.add(Step::To(port, 0));
            steps.add(Step::Dropped(DropReason::NoRoom, 1));
        }
        assert_eq!(steps.list()[24..26], [Step::To(40, 0), Step::Dropped(DropReason::NoRoom, 1)]);
        assert_eq!((steps.list().len(), steps.more(), steps.has_drop()), (STEPS, 16 + 2 * 7, true));
        let mut both = Steps::NONE;
        both.add(Step::Waits);
        both.append(&steps);
        assert_eq!(both.list()[..2], [Step::Waits, Step::To(0, 0)]);
        assert!(both.has_drop() && both.list().len() + both.more() as usize >= 60);
    }
}
