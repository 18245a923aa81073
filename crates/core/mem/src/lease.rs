//! Leases, with which several producers fill one ring and hold no lock while they copy frames.
//!
//! Every producer reserves a run of slots, copies its frames into them at its own pace, and completes the run. Runs
//! become visible in the order of their reservation, so that frames of one source stay in order:
//!
//! ```text
//!   consumed        published            reserved
//!      │  readable by   │ A: copying │ B: done │
//!      ▼  the receiver  ▼            ▼         ▼
//!   ───█████████████████░░░░░░░░░░░░░▒▒▒▒▒▒▒▒▒▒─────
//! ```
//!
//! If B finishes before A, B records its end in `ends` and continues, and A publishes both runs. Positions are sequence
//! numbers of 64 bits, which never wrap; a slot's index is the sequence number modulo the ring's size.

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

/// A run of reserved slots. A lease must be completed: until then, the slots after the run do not become visible.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a lease that is not completed blocks the ring"]
pub struct Lease {
    start: u64,
    /// Index of the first slot.
    pub slot: u32,
    /// Number of slots, at least 1.
    pub count: u32,
}

/// An invalid `head`: the value, which is outside the application's slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadHead(pub u32);

/// The state of one ring's leases, shared by its producers.
#[derive(Debug)]
pub struct Leases {
    slots: u64,
    reserved: AtomicU64,
    published: AtomicU64,
    consumed: AtomicU64,
    publishing: AtomicBool,
    ends: Box<[AtomicU64]>,
}

impl Leases {
    /// Creates the state of a new ring of `slots` slots.
    pub fn new(slots: u32) -> Self {
        Leases {
            slots: u64::from(slots),
            reserved: AtomicU64::new(0),
            published: AtomicU64::new(0),
            consumed: AtomicU64::new(0),
            publishing: AtomicBool::new(false),
            ends: (0..slots).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Creates the state of a ring that another process filled before: the receiver has released at least the slots
    /// before `consumed`, and sees the slots before `tail`. `consumed` and `tail` are slot indices that a peer may have
    /// written.
    pub fn continued(slots: u32, consumed: u32, tail: u32) -> Self {
        let this = Self::new(slots);
        let slots = this.slots;
        let consumed = u64::from(consumed) % this.slots;
        let tail = u64::from(tail) % this.slots;
        let published = consumed + (tail + slots - consumed) % slots;
        this.consumed.store(consumed, Ordering::Relaxed);
        this.published.store(published, Ordering::Relaxed);
        this.reserved.store(published, Ordering::Relaxed);
        this
    }

    /// Reserves `want` slots. If there is less room, reserves `fit(room)` slots, the number (at most `room`) that whole
    /// frames can use. `None` if that number is 0.
    ///
    /// The function `head`, which reads the receiver's `head`, is called only if the known room is not enough.
    ///
    /// # Errors
    /// [`BadHead`] if the receiver's `head` is outside its slots.
    #[inline]
    pub fn reserve(
        &self,
        want: u32,
        fit: impl Fn(u32) -> u32,
        head: impl Fn() -> u32,
    ) -> Result<Option<Lease>, BadHead> {
        let want = u64::from(want);
        loop {
            let start = self.reserved.load(Ordering::Acquire);
            let mut room = self.room(start);
            if room < want {
                self.see_head(&head)?;
                room = self.room(start);
            }
            let count = if room >= want { want } else { u64::from(fit(room as u32)).min(room) };
            if count == 0 {
                return Ok(None);
            }
            let taken = self.reserved.compare_exchange(start, start + count, Ordering::AcqRel, Ordering::Relaxed);
            if taken.is_ok() {
                let slot = (start % self.slots) as u32;
                return Ok(Some(Lease { start, slot, count: count as u32 }));
            }
        }
    }

    /// Gives back all slots of a lease but the first `used`, unless another lease follows. Returns the rest of the
    /// lease, which the caller must complete: the whole lease if another lease follows, `None` if no slot remains.
    pub fn give_back(&self, mut lease: Lease, used: u32) -> Option<Lease> {
        let end = lease.start + u64::from(lease.count);
        let to = lease.start + u64::from(used);
        // A following lease that was given back as a whole does not count.
        if to < end && self.reserved.compare_exchange(end, to, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            lease.count = used;
        }
        (lease.count > 0).then_some(lease)
    }

    /// Number of free slots from `start` on. One slot always stays empty: a ring with `head == tail` is empty, not
    /// full.
    #[inline]
    fn room(&self, start: u64) -> u64 {
        (self.slots - 1).saturating_sub(start - self.consumed.load(Ordering::Acquire).min(start))
    }

    /// Updates the receiver's position from its `head`. Returns the number of published slots that the receiver has not
    /// released yet.
    ///
    /// # Errors
    /// [`BadHead`], as in [`Leases::reserve`].
    pub fn see_head(&self, head: impl Fn() -> u32) -> Result<u64, BadHead> {
        loop {
            // The order matters: a head read after `consumed` is not older than `consumed`, and a published position
            // read after the head is not older than the published position that the receiver saw.
            let consumed = self.consumed.load(Ordering::Acquire);
            let h = head();
            let published = self.published.load(Ordering::Acquire);
            let at = consumed % self.slots;
            let moved = (u64::from(h) + self.slots).wrapping_sub(at) % self.slots;
            if u64::from(h) >= self.slots || moved > published.wrapping_sub(consumed) {
                if self.consumed.load(Ordering::Acquire) != consumed {
                    continue;
                }
                return Err(BadHead(h));
            }
            let to = consumed + moved;
            if moved == 0 || self.consumed.compare_exchange(consumed, to, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return Ok(published - to);
            }
        }
    }

    /// Completes a lease. Calls `publish(hwcur, hwtail)` (slot indices) if slots become visible, unless another thread
    /// publishes them. At most one `publish` runs at a time, with increasing positions.
    ///
    /// This consists of steps that a producer with leases in many rings takes for all of them together:
    /// [`Leases::end`], fence, [`Leases::begin`], [`Leases::publish`], [`Leases::stop`], fence, [`Leases::has_more`].
    #[inline]
    pub fn complete(&self, lease: Lease, mut publish: impl FnMut(u32, u32)) {
        self.end(lease);
        fence(Ordering::SeqCst);
        self.pass_on(&mut publish);
    }

    /// Publishes until no ended lease is left or another thread publishes. The caller must have called
    /// [`end`](Leases::end) and a full fence.
    pub fn pass_on(&self, publish: &mut impl FnMut(u32, u32)) {
        while self.begin() {
            self.publish(&mut *publish);
            self.stop();
            fence(Ordering::SeqCst);
            if !self.has_more() {
                return;
            }
        }
    }

    /// First step of [`Leases::complete`]: marks the lease's slots as filled. A full fence must follow: either this
    /// thread then sees that the publisher has stopped, or the publisher sees the end of this lease. Both threads
    /// store, fence, and load.
    #[inline]
    pub fn end(&self, lease: Lease) {
        self.end_at(lease.start).store(lease.start + u64::from(lease.count), Ordering::Release);
    }

    /// Second step of [`Leases::complete`]: returns whether the caller must publish. If not, the thread that is
    /// publishing also publishes this lease.
    #[inline]
    pub fn begin(&self) -> bool {
        self.publishing.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Third step of [`Leases::complete`], if `begin` returned true: makes the slots of ended leases visible.
    #[inline]
    pub fn publish(&self, publish: impl FnOnce(u32, u32)) {
        let from = self.published.load(Ordering::Relaxed);
        let to = self.completed(from);
        if to != from {
            self.published.store(to, Ordering::Release);
            let consumed = self.consumed.load(Ordering::Relaxed);
            publish((consumed % self.slots) as u32, (to % self.slots) as u32);
        }
    }

    /// Fourth step of [`Leases::complete`]: lets other threads publish. A full fence must follow before the last step.
    #[inline]
    pub fn stop(&self) {
        self.publishing.store(false, Ordering::Release);
    }

    /// Last step of [`Leases::complete`]: returns whether another thread has ended a lease meanwhile without publishing
    /// it. The caller must then call [`Leases::pass_on`].
    #[inline]
    pub fn has_more(&self) -> bool {
        // A stale position can only make this return true without need.
        let published = self.published.load(Ordering::Acquire);
        self.completed(published) != published
    }

    #[inline]
    fn end_at(&self, seq: u64) -> &AtomicU64 {
        // The modulus keeps the index in range: `ends` has one entry per slot.
        &self.ends[(seq % self.slots) as usize]
    }

    /// Position up to which all leases from `from` on have ended.
    #[inline]
    fn completed(&self, from: u64) -> u64 {
        let mut to = from;
        loop {
            // An entry from an earlier round of the ring is at most this position.
            let end = self.end_at(to).load(Ordering::Acquire);
            if end <= to {
                return to;
            }
            to = end;
        }
    }

    /// Index of the first slot that is not yet visible to the receiver.
    pub fn tail(&self) -> u32 {
        (self.published.load(Ordering::Acquire) % self.slots) as u32
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Objective: room ends one slot before the ring is full and grows as the receiver releases.
    #[test]
    fn room_ends_one_slot_before_the_ring_is_full() {
        let l = Leases::new(4);
        let head = Cell::new(0);
        let seen = Cell::new((9, 9));
        let a = l.reserve(2, |r| r, || head.get()).unwrap().unwrap();
        let b = l.reserve(9, |r| r, || head.get()).unwrap().unwrap();
        assert_eq!((a.slot, a.count, b.slot, b.count), (0, 2, 2, 1));
        assert_eq!(l.reserve(1, |r| r, || head.get()), Ok(None));
        l.complete(b, |c, t| seen.set((c, t)));
        assert_eq!(seen.get(), (9, 9), "b must wait for a");
        l.complete(a, |c, t| seen.set((c, t)));
        assert_eq!(seen.get(), (0, 3));
        head.set(2);
        let c = l.reserve(9, |r| r, || head.get()).unwrap().unwrap();
        assert_eq!((c.slot, c.count), (3, 2));
        l.complete(c, |c, t| seen.set((c, t)));
        assert_eq!(seen.get(), (2, 1));
    }

    /// Objective: slots that a lease leaves unused go to the next lease, unless the next lease is already reserved; a
    /// lease without used slots leaves no trace in the ring.
    #[test]
    fn unused_slots_go_to_the_next_lease() {
        let l = Leases::new(8);
        let lease = |want| l.reserve(want, |r| r, || 0).unwrap().unwrap();
        let first = lease(3);
        let second = lease(3);
        let first = l.give_back(first, 1).unwrap();
        assert_eq!(first.count, 3, "another lease follows");
        let second = l.give_back(second, 1).unwrap();
        assert_eq!((second.slot, second.count), (3, 1));
        assert_eq!(l.give_back(lease(2), 0), None);
        let third = lease(9);
        assert_eq!((third.slot, third.count), (4, 3));
        let seen = Cell::new((9, 9));
        l.complete(second, |c, t| seen.set((c, t)));
        l.complete(third, |c, t| seen.set((c, t)));
        l.complete(first, |c, t| seen.set((c, t)));
        assert_eq!(seen.get(), (0, 7));
    }

    /// Objective: a continued ring has the same room and position as before; indices outside the ring cause no fault.
    #[test]
    fn a_continued_ring_keeps_room_and_position() {
        let l = Leases::continued(4, 3, 1);
        assert_eq!(l.tail(), 1);
        let a = l.reserve(9, |r| r, || 3).unwrap().unwrap();
        assert_eq!((a.slot, a.count), (1, 1));
        let seen = Cell::new((9, 9));
        l.complete(a, |c, t| seen.set((c, t)));
        assert_eq!((seen.get(), l.see_head(|| 2)), ((3, 2), Ok(0)));
        let forged = Leases::continued(4, u32::MAX, 7);
        assert_eq!((forged.tail(), forged.reserve(9, |r| r, || 3).unwrap().unwrap().slot), (3, 3));
    }

    /// Objective: a receiver that releases slots that were not published is detected, and the ring works again once the
    /// `head` is valid.
    #[test]
    fn a_head_beyond_the_given_slots_is_detected() {
        let l = Leases::new(4);
        let a = l.reserve(2, |r| r, || 0).unwrap().unwrap();
        assert_eq!(l.see_head(|| 1), Err(BadHead(1)));
        l.complete(a, |_, _| {});
        assert_eq!(l.see_head(|| 3), Err(BadHead(3)));
        assert_eq!(l.see_head(|| 4), Err(BadHead(4)));
        assert_eq!(l.see_head(|| u32::MAX), Err(BadHead(u32::MAX)));
        assert_eq!(l.see_head(|| 2), Ok(0));
    }
}
