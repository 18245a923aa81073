//! The host's side of an application's rings: intake of sent frames, delivery of received ones.
//!
//! Private copies (`hwcur`, leases) decide; the application's `head` is a snapshot checked against them. An application
//! with a bad ring stops its own ring, which is counted, and affects nothing else.

use std::sync::Arc;

use crate::lease::{BadHead, Lease, Leases};
use crate::notify::{Doorbell, KickCounts, arm, disarm, wanted, wanted_now};
use crate::side::RingSide;

/// The host's end of a tx ring. One worker owns it.
#[derive(Debug)]
pub struct HostTx {
    side: RingSide,
    /// First slot not yet returned to the application.
    hwcur: u32,
    /// A `head` that does not count as news: a bad one already reported, or the one up to which an incomplete frame was
    /// seen.
    no_news: Option<u32>,
    wake: Arc<Doorbell>,
    kicks: Arc<KickCounts>,
}

impl HostTx {
    /// Takes over a new ring; `wake` is rung for the application.
    pub fn new(side: RingSide, wake: impl Into<Arc<Doorbell>>) -> Self {
        Self::counted(side, wake, Default::default())
    }

    /// Like [`HostTx::new`], with the counters of an earlier ring.
    pub fn counted(side: RingSide, wake: impl Into<Arc<Doorbell>>, kicks: Arc<KickCounts>) -> Self {
        HostTx { side, hwcur: 0, no_news: None, wake: wake.into(), kicks }
    }

    /// Continues at the index in the ring's status block, where another process stopped.
    pub fn continued(side: RingSide, wake: impl Into<Arc<Doorbell>>) -> Self {
        Self::new(side, wake).going_on()
    }

    /// Continues at the index in the ring's status block.
    #[must_use]
    pub fn going_on(self) -> Self {
        let hwcur = self.side.csb.hwcur();
        self.at(hwcur)
    }

    /// Continues where an earlier owner of the ring stopped.
    #[must_use]
    pub fn at(self, hwcur: u32) -> Self {
        HostTx { hwcur: hwcur.min(self.side.ring.num_slots() - 1), ..self }
    }

    /// The ring and its CSB.
    #[inline]
    pub fn side(&self) -> &RingSide {
        &self.side
    }

    /// First slot not yet returned to the application.
    #[inline]
    pub fn hwcur(&self) -> u32 {
        self.hwcur
    }

    /// Counts of kicks to the application.
    pub fn kicks(&self) -> Arc<KickCounts> {
        Arc::clone(&self.kicks)
    }

    /// Counts a kick that came from the application.
    pub fn count_kick(&self) {
        self.kicks.count_received();
    }

    /// Whether the application published new slots. Costs one load.
    #[inline]
    pub fn has_news(&self) -> bool {
        let head = self.side.csb.head();
        head != self.hwcur && self.no_news != Some(head)
    }

    /// The slot behind the last filled one. Every slot of the ring may be filled, so any index inside the ring is
    /// legal; moving backwards looks like nearly a whole ring of old slots, as in netmap.
    ///
    /// # Errors
    /// [`BadHead`] the first time that a particular bad value is seen; later that value counts as no news.
    #[inline]
    pub fn head(&mut self) -> Result<u32, BadHead> {
        let head = self.side.csb.head();
        if head < self.side.ring.num_slots() {
            self.no_news = None;
            return Ok(head);
        }
        if self.no_news.replace(head) == Some(head) { Ok(self.hwcur) } else { Err(BadHead(head)) }
    }

    /// The slots up to `head` end in the middle of a frame: there is news only when `head` moves.
    pub fn wait_beyond(&mut self, head: u32) {
        self.no_news = Some(head);
    }

    /// Returns all slots before `to` and kicks the application if it asked for it.
    #[inline]
    pub fn complete(&mut self, to: u32) {
        self.hwcur = to;
        let tail = self.side.ring.prev(to);
        self.publish(tail);
    }

    /// Takes all slots before `to`, returns those up to `tail` to the application, and kicks it if it asked for it.
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

    /// Asks for a kick with the next `head`. Returns whether there are new slots already; then no kick is asked for.
    pub fn arm(&self) -> bool {
        arm(self.side.csb.kern_need_kick());
        let news = self.has_news();
        if news {
            self.disarm();
        }
        news
    }

    /// Stops asking for kicks while the host polls.
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
    /// Takes over a new ring; `wake` is rung for the application.
    pub fn new(side: RingSide, wake: impl Into<Arc<Doorbell>>) -> Self {
        Self::counted(side, wake, Default::default())
    }

    /// Like [`HostRx::new`], with the counters of an earlier ring.
    pub fn counted(side: RingSide, wake: impl Into<Arc<Doorbell>>, kicks: Arc<KickCounts>) -> Self {
        let leases = Leases::new(side.ring.num_slots());
        // The host reads the receiver's head whenever it needs room, and asks for a kick only while it waits.
        disarm(side.csb.kern_need_kick());
        HostRx { side, leases, wake: wake.into(), kicks }
    }

    /// Continues at the indices in the ring's status block, where another process stopped.
    pub fn continued(side: RingSide, wake: impl Into<Arc<Doorbell>>) -> Self {
        Self::new(side, wake).going_on()
    }

    /// Continues at the indices in the ring's status block. The ring must not be in use yet.
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

    /// Reserves `want` slots, or the part of the remaining room that `fit` returns; see [`Leases::reserve`].
    ///
    /// # Errors
    /// [`BadHead`] if the application's `head` is outside its slots.
    #[inline]
    pub fn reserve(&self, want: u32, fit: impl Fn(u32) -> u32) -> Result<Option<Lease>, BadHead> {
        self.leases.reserve(want, fit, || self.side.csb.head())
    }

    /// Gives back the slots of a lease behind the first `used`, if still possible; see [`Leases::give_back`].
    pub fn give_back(&self, lease: Lease, used: u32) -> Option<Lease> {
        self.leases.give_back(lease, used)
    }

    /// Completes a lease whose slots are filled; publishes and kicks as needed.
    #[inline]
    pub fn complete(&self, lease: Lease) {
        self.leases.complete(lease, |hwcur, hwtail| self.publish_and_kick(hwcur, hwtail));
    }

    #[inline]
    fn publish_and_kick(&self, hwcur: u32, hwtail: u32) {
        self.side.csb.publish_tail(hwcur, hwtail);
        self.kick(wanted(self.side.csb.appl_need_kick()));
    }

    /// Called by one publisher at a time, so it is the only writer of the counts.
    #[inline]
    fn kick(&self, kick: bool) {
        if kick {
            self.wake.ring();
        }
        self.kicks.count(kick);
    }

    /// First step of [`HostRx::complete`], for a producer with leases in many rings: it takes each step for all rings,
    /// and so pays for the full fences between the steps once. Ends the lease;
    /// [`full_fence`](crate::notify::full_fence) must follow.
    #[inline]
    pub fn end(&self, lease: Lease) {
        self.leases.end(lease);
    }

    /// Second step: publishes, unless another thread does. Returns whether this call did, and must take the next steps.
    /// [`full_fence`](crate::notify::full_fence) must follow.
    #[inline]
    pub fn publish(&self) -> bool {
        let mine = self.leases.begin();
        if mine {
            self.leases.publish(|hwcur, hwtail| self.side.csb.publish_tail(hwcur, hwtail));
        }
        mine
    }

    /// Third step: kicks if the application asked for it, and lets other threads publish.
    /// [`full_fence`](crate::notify::full_fence) must follow.
    #[inline]
    pub fn kick_and_stop(&self) {
        self.kick(wanted_now(self.side.csb.appl_need_kick()));
        self.leases.stop();
    }

    /// Last step: publishes slots that others ended in between.
    #[inline]
    pub fn look_after(&self) {
        if self.leases.has_more() {
            self.leases.pass_on(&mut |hwcur, hwtail| self.publish_and_kick(hwcur, hwtail));
        }
    }

    /// Whether the application has asked for a kick and not run since.
    pub fn is_armed(&self) -> bool {
        wanted_now(self.side.csb.appl_need_kick())
    }

    /// Asks the application for a kick when it releases slots. Look for room once more before sleeping. If several
    /// workers ask, the first to finish clears the flag of the others: sleep with a time limit.
    pub fn ask_for_room(&self) {
        arm(self.side.csb.kern_need_kick());
    }

    /// Withdraws the request.
    pub fn stop_asking(&self) {
        disarm(self.side.csb.kern_need_kick());
    }

    /// Number of delivered slots that the application has not released yet; `None` if its `head` is bad.
    pub fn unread(&self) -> Option<u64> {
        self.leases.see_head(|| self.side.csb.head()).ok()
    }

    /// First slot not yet visible to the application.
    pub fn hwtail(&self) -> u32 {
        self.leases.tail()
    }

    /// Counts of kicks to the application.
    pub fn kicks(&self) -> &KickCounts {
        &self.kicks
    }
}
