//! The host's side of an application's rings: intake of sent frames, delivery of received frames.
//!
//! The host keeps its own state (`hwcur`, leases) in private memory, and checks each snapshot of the application's
//! `head` against that state. A bad `head` is an error ([`BadHead`]), and stops only the ring of the application that
//! wrote it.

use std::sync::Arc;

use crate::lease::{BadHead, Lease, Leases};
use crate::notify::{Doorbell, KickCounts, arm, disarm, wanted, wanted_now};
use crate::side::RingSide;

/// The host's end of a tx ring. One worker owns it.
#[derive(Debug)]
pub struct HostTx {
    side: RingSide,
    /// First slot that the host has not processed yet.
    hwcur: u32,
    /// A `head` that does not count as news: a bad value that was reported already, or the end of the slots of an
    /// incomplete frame.
    no_news: Option<u32>,
    wake: Arc<Doorbell>,
    kicks: Arc<KickCounts>,
}

impl HostTx {
    /// Creates the host's end of a new ring. `wake` is the doorbell that wakes the application.
    pub fn new(side: RingSide, wake: impl Into<Arc<Doorbell>>) -> Self {
        Self::counted(side, wake, Default::default())
    }

    /// Like [`HostTx::new`], with the kick counts of an earlier ring.
    pub fn counted(side: RingSide, wake: impl Into<Arc<Doorbell>>, kicks: Arc<KickCounts>) -> Self {
        HostTx { side, hwcur: 0, no_news: None, wake: wake.into(), kicks }
    }

    /// Takes over a ring that another process served, at the `hwcur` in the ring's CSB entry.
    pub fn continued(side: RingSide, wake: impl Into<Arc<Doorbell>>) -> Self {
        Self::new(side, wake).going_on()
    }

    /// Continues at the `hwcur` in the ring's CSB entry, not at slot 0.
    #[must_use]
    pub fn going_on(self) -> Self {
        let hwcur = self.side.csb.hwcur();
        self.at(hwcur)
    }

    /// Continues at slot `hwcur`, where an earlier owner of the ring stopped.
    #[must_use]
    pub fn at(self, hwcur: u32) -> Self {
        HostTx { hwcur: hwcur.min(self.side.ring.num_slots() - 1), ..self }
    }

    /// The ring and its CSB.
    #[inline]
    pub fn side(&self) -> &RingSide {
        &self.side
    }

    /// First slot that the host has not processed yet.
    #[inline]
    pub fn hwcur(&self) -> u32 {
        self.hwcur
    }

    /// Counts of kicks to and from the application.
    pub fn kicks(&self) -> Arc<KickCounts> {
        Arc::clone(&self.kicks)
    }

    /// Counts a kick that came from the application.
    pub fn count_kick(&self) {
        self.kicks.count_received();
    }

    /// Whether the application has published new slots. Costs one load.
    #[inline]
    pub fn has_news(&self) -> bool {
        let head = self.side.csb.head();
        head != self.hwcur && self.no_news != Some(head)
    }

    /// Returns the slot after the last filled slot: a snapshot of `head`. Any index inside the ring is valid, as every
    /// slot may be filled; a `head` that moves backwards looks like nearly a whole ring of slots, as in netmap.
    ///
    /// # Errors
    /// [`BadHead`] when a bad value is read for the first time. While the bad value stays the same, later calls return
    /// `hwcur`: no new slots.
    #[inline]
    pub fn head(&mut self) -> Result<u32, BadHead> {
        let head = self.side.csb.head();
        if head < self.side.ring.num_slots() {
            self.no_news = None;
            return Ok(head);
        }
        if self.no_news.replace(head) == Some(head) { Ok(self.hwcur) } else { Err(BadHead(head)) }
    }

    /// Records that the slots up to `head` end in the middle of a frame: only another `head` counts as news.
    pub fn wait_beyond(&mut self, head: u32) {
        self.no_news = Some(head);
    }

    /// Returns all slots before `to` to the application, and kicks the application if it requested a kick.
    #[inline]
    pub fn complete(&mut self, to: u32) {
        self.hwcur = to;
        let tail = self.side.ring.prev(to);
        self.publish(tail);
    }

    /// Marks all slots before `to` as taken, gives the application the slots before `tail`, and kicks the application
    /// if it requested a kick.
    #[inline]
    pub fn take(&mut self, to: u32, tail: u32) {
        self.hwcur = to;
        self.publish(tail);
    }

    #[inline]
    fn publish(&self, tail: u32) {
        self.side.csb.publish_tail(self.hwcur, tail);
        let kick = wanted(self.side.csb.appl_need_kick());
        if kick {
            self.wake.ring();
        }
        self.kicks.count(kick);
    }

    /// Requests a kick when the application publishes its next `head`. If there are new slots already, requests no kick
    /// and returns true.
    pub fn arm(&self) -> bool {
        arm(self.side.csb.kern_need_kick());
        let news = self.has_news();
        if news {
            self.disarm();
        }
        news
    }

    /// Withdraws the request for a kick, while the host polls.
    pub fn disarm(&self) {
        disarm(self.side.csb.kern_need_kick());
    }
}

/// The host's end of an rx ring. Any number of workers deliver to it at the same time.
#[derive(Debug)]
pub struct HostRx {
    side: RingSide,
    leases: Leases,
    wake: Arc<Doorbell>,
    kicks: Arc<KickCounts>,
}

impl HostRx {
    /// Creates the host's end of a new ring. `wake` is the doorbell that wakes the application.
    pub fn new(side: RingSide, wake: impl Into<Arc<Doorbell>>) -> Self {
        Self::counted(side, wake, Default::default())
    }

    /// Like [`HostRx::new`], with the kick counts of an earlier ring.
    pub fn counted(side: RingSide, wake: impl Into<Arc<Doorbell>>, kicks: Arc<KickCounts>) -> Self {
        let leases = Leases::new(side.ring.num_slots());
        // The host reads the receiver's head whenever it needs room, and requests a kick only while it waits.
        disarm(side.csb.kern_need_kick());
        HostRx { side, leases, wake: wake.into(), kicks }
    }

    /// Takes over a ring that another process filled, at the `hwcur` and `hwtail` in the ring's CSB entry.
    pub fn continued(side: RingSide, wake: impl Into<Arc<Doorbell>>) -> Self {
        Self::new(side, wake).going_on()
    }

    /// Continues at the `hwcur` and `hwtail` in the ring's CSB entry, not at slot 0. No lease may have been reserved
    /// yet.
    #[must_use]
    pub fn going_on(self) -> Self {
        let ring = &self.side.ring;
        let csb = &self.side.csb;
        HostRx { leases: Leases::continued(ring.num_slots(), csb.hwcur(), csb.hwtail()), ..self }
    }

    /// The ring and its CSB.
    #[inline]
    pub fn side(&self) -> &RingSide {
        &self.side
    }

    /// Reserves `want` slots, or as many as `fit` returns if there is less room; `None` if `fit` returns 0. See
    /// [`Leases::reserve`].
    ///
    /// # Errors
    /// [`BadHead`] if the application's `head` is outside its slots.
    #[inline]
    pub fn reserve(&self, want: u32, fit: impl Fn(u32) -> u32) -> Result<Option<Lease>, BadHead> {
        self.leases.reserve(want, fit, || self.side.csb.head())
    }

    /// Gives back all slots of a lease but the first `used`, unless another lease follows; see [`Leases::give_back`].
    pub fn give_back(&self, lease: Lease, used: u32) -> Option<Lease> {
        self.leases.give_back(lease, used)
    }

    /// Completes a lease whose slots are filled. Publishes slots and kicks the application as needed.
    #[inline]
    pub fn complete(&self, lease: Lease) {
        self.leases.complete(lease, |hwcur, hwtail| self.publish_and_kick(hwcur, hwtail));
    }

    #[inline]
    fn publish_and_kick(&self, hwcur: u32, hwtail: u32) {
        self.side.csb.publish_tail(hwcur, hwtail);
        self.kick(wanted(self.side.csb.appl_need_kick()));
    }

    /// Kicks the application if `kick` is set. Counts the publication, with a kick or without. Only one publisher at a
    /// time calls this, so the counts have one writer.
    #[inline]
    fn kick(&self, kick: bool) {
        if kick {
            self.wake.ring();
        }
        self.kicks.count(kick);
    }

    /// First step of [`HostRx::complete`]: ends the lease. [`full_fence`](crate::notify::full_fence) must follow. A
    /// producer with leases in many rings takes each step for all rings, and needs the full fences between the steps
    /// only once.
    #[inline]
    pub fn end(&self, lease: Lease) {
        self.leases.end(lease);
    }

    /// Second step of [`HostRx::complete`]: publishes, unless another thread is publishing. Returns whether this call
    /// published; if it did, the caller must take the next steps. [`full_fence`](crate::notify::full_fence) must
    /// follow.
    #[inline]
    pub fn publish(&self) -> bool {
        let mine = self.leases.begin();
        if mine {
            self.leases.publish(|hwcur, hwtail| self.side.csb.publish_tail(hwcur, hwtail));
        }
        mine
    }

    /// Third step of [`HostRx::complete`]: kicks the application if requested, and lets other threads publish.
    /// [`full_fence`](crate::notify::full_fence) must follow.
    #[inline]
    pub fn kick_and_stop(&self) {
        self.kick(wanted_now(self.side.csb.appl_need_kick()));
        self.leases.stop();
    }

    /// Last step of [`HostRx::complete`]: publishes the slots of leases that other threads have ended meanwhile.
    #[inline]
    pub fn look_after(&self) {
        if self.leases.has_more() {
            self.leases.pass_on(&mut |hwcur, hwtail| self.publish_and_kick(hwcur, hwtail));
        }
    }

    /// Whether the application has requested a kick and has not withdrawn the request.
    pub fn is_armed(&self) -> bool {
        wanted_now(self.side.csb.appl_need_kick())
    }

    /// Requests a kick when the application releases slots. The caller must look for room once more before it sleeps,
    /// and must sleep with a time limit: if several workers request a kick, the first worker that withdraws its request
    /// clears the flag for all of them.
    pub fn ask_for_room(&self) {
        arm(self.side.csb.kern_need_kick());
    }

    /// Withdraws the request of [`HostRx::ask_for_room`].
    pub fn stop_asking(&self) {
        disarm(self.side.csb.kern_need_kick());
    }

    /// Number of delivered slots that the application has not released yet; `None` if its `head` is bad.
    pub fn unread(&self) -> Option<u64> {
        self.leases.see_head(|| self.side.csb.head()).ok()
    }

    /// First slot that is not yet visible to the application.
    pub fn hwtail(&self) -> u32 {
        self.leases.tail()
    }

    /// Counts of kicks to and from the application.
    pub fn kicks(&self) -> &KickCounts {
        &self.kicks
    }
}
