//! Interrupt causes and the timing of interrupts: mask, delay timers of both directions, throttling (§3.2.7, §3.4.3,
//! §13.4.17–13.4.21, §13.4.30–13.4.31).
//!
//! The caller supplies the time, in nanoseconds. The interrupt line is asserted while an unmasked cause is set and
//! throttling allows it. Causes stay set until the driver reads ICR.

use serde::{Deserialize, Serialize};

use crate::direction::CardDirection;
use crate::regs::{ICR_ALL, ICR_RXT0, ICR_TXDW};

/// Nanoseconds per count of ITR.
const THROTTLE: u64 = 256;
/// Nanoseconds per count of a delay timer.
const DELAY: u64 = 1024;

/// Delay timers of one direction: the relative timer restarts with each event, the absolute timer runs from the first
/// event.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct InterruptDelay {
    /// Value of the relative delay register, in counts; no delay if it is zero.
    relative: u16,
    /// Value of the absolute delay register, in counts; the timer is off if it is zero.
    absolute: u16,
    /// Time at which a delayed cause is set at the latest; `None` while the absolute timer does not run.
    latest: Option<u64>,
    /// Time at which a delayed cause is set if no further event occurs; `None` while the relative timer does not run.
    next: Option<u64>,
}

impl InterruptDelay {
    /// Records an event that may be delayed. Returns whether its cause must be set immediately.
    fn event(&mut self, now: u64) -> bool {
        if self.relative == 0 {
            self.expire();
            return true;
        }
        self.next = Some(now + u64::from(self.relative) * DELAY);
        if self.absolute != 0 {
            self.latest.get_or_insert(now + u64::from(self.absolute) * DELAY);
        }
        false
    }

    fn expire(&mut self) {
        self.latest = None;
        self.next = None;
    }

    fn deadline(&self) -> Option<u64> {
        self.next.into_iter().chain(self.latest).min()
    }
}

/// Interrupt causes, their mask, and the timers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Causes {
    standing: u32,
    mask: u32,
    /// Value of ITR as written by the driver.
    interval: u16,
    /// Value that overrides ITR, if any.
    forced: Option<u16>,
    /// The earliest time at which the line may be asserted.
    not_before: u64,
    line: bool,
    transmit: InterruptDelay,
    receive: InterruptDelay,
}

impl Causes {
    /// Creates the state with no cause set. `forced` overrides the driver's ITR.
    pub fn new(forced: Option<u16>) -> Causes {
        Causes { forced, ..Causes::default() }
    }

    /// Resets to the state after power-up, except for throttling in progress.
    pub fn reset(&mut self) {
        *self = Causes { forced: self.forced, not_before: self.not_before, ..Causes::default() };
    }

    /// Whether this state, which may come from another process, is possible for a card with this forced ITR.
    pub(crate) fn are_possible(&self, forced: Option<u16>) -> bool {
        (self.standing | self.mask) & !ICR_ALL == 0 && self.forced == forced
    }

    /// Sets causes.
    pub fn set(&mut self, causes: u32) {
        self.standing |= causes & ICR_ALL;
    }

    /// Returns and clears the causes that are set. Delayed causes stay delayed.
    pub fn read(&mut self) -> u32 {
        std::mem::take(&mut self.standing)
    }

    /// Clears causes.
    pub fn clear(&mut self, causes: u32) {
        self.standing &= !causes;
    }

    /// Causes that are set.
    pub fn peek(&self) -> u32 {
        self.standing
    }

    /// The causes that are unmasked.
    pub fn mask(&self) -> u32 {
        self.mask
    }

    /// Unmasks causes (IMS).
    pub fn unmask(&mut self, causes: u32) {
        self.mask |= causes & ICR_ALL;
    }

    /// Masks causes (IMC).
    pub fn mask_out(&mut self, causes: u32) {
        self.mask &= !causes;
    }

    /// The value of ITR as read.
    pub fn interval(&self) -> u16 {
        self.forced.unwrap_or(self.interval)
    }

    /// Handles a write of ITR.
    pub fn set_interval(&mut self, counts: u16) {
        self.interval = counts;
    }

    fn delay(&mut self, direction: CardDirection) -> &mut InterruptDelay {
        match direction {
            CardDirection::Transmit => &mut self.transmit,
            CardDirection::Receive => &mut self.receive,
        }
    }

    /// Handles a write of TIDV or RDTR.
    pub fn set_relative(&mut self, direction: CardDirection, counts: u16) {
        self.delay(direction).relative = counts;
    }

    /// Handles a write of TADV or RADV.
    pub fn set_absolute(&mut self, direction: CardDirection, counts: u16) {
        self.delay(direction).absolute = counts;
    }

    /// Relative and absolute delay of a direction, in counts of 1.024 µs.
    pub fn delays(&self, direction: CardDirection) -> (u16, u16) {
        let delay = if direction == CardDirection::Transmit { &self.transmit } else { &self.receive };
        (delay.relative, delay.absolute)
    }

    /// Records an event that the direction's timers may delay.
    pub fn event(&mut self, direction: CardDirection, now: u64) {
        if self.delay(direction).event(now) {
            self.set(Self::cause(direction));
        }
    }

    /// Sets a direction's delayed cause, if any, immediately (RDTR.FPD).
    pub fn flush(&mut self, direction: CardDirection) {
        if self.delay(direction).deadline().is_some() {
            self.delay(direction).expire();
            self.set(Self::cause(direction));
        }
    }

    fn cause(direction: CardDirection) -> u32 {
        if direction == CardDirection::Transmit { ICR_TXDW } else { ICR_RXT0 }
    }

    /// Advances to time `now`: expires timers and updates the interrupt line. Returns whether the line was just
    /// asserted, in which case the caller must interrupt the guest.
    pub fn update(&mut self, now: u64) -> bool {
        for direction in [CardDirection::Transmit, CardDirection::Receive] {
            if self.delay(direction).deadline().is_some_and(|at| at <= now) {
                self.flush(direction);
            }
        }
        let wanted = self.standing & self.mask != 0;
        if !wanted {
            self.line = false;
        } else if !self.line && now >= self.not_before {
            self.line = true;
            self.not_before = now + u64::from(self.interval()) * THROTTLE;
            return true;
        }
        false
    }

    /// Whether the interrupt line is asserted.
    pub fn line(&self) -> bool {
        self.line
    }

    /// Time of the next [`Causes::update`], if no other event occurs; `None` if no timer runs.
    pub fn deadline(&self) -> Option<u64> {
        let throttled = (self.standing & self.mask != 0 && !self.line).then_some(self.not_before);
        throttled.into_iter().chain(self.transmit.deadline()).chain(self.receive.deadline()).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::regs::ICR_LSC;
    use CardDirection::{Receive, Transmit};

    /// Objective: a cause asserts the line once it is both set and unmasked, in either order; reading ICR and masking
    /// deassert the line; unmasking does not restore causes that were read.
    #[test]
    fn a_cause_interrupts_once_set_and_unmasked() {
        let mut c = Causes::new(None);
        c.set(ICR_LSC);
        assert!(!c.update(0) && !c.line());
        c.unmask(ICR_LSC);
        assert!(c.update(1) && c.line() && !c.update(2), "once");
        c.mask_out(ICR_LSC);
        assert!(!c.update(3) && !c.line());
        c.unmask(ICR_LSC);
        assert!(c.update(4));
        assert_eq!((c.read(), c.peek()), (ICR_LSC, 0));
        assert!(!c.update(5) && !c.line());
        c.set(!0);
        assert_eq!(c.read(), ICR_ALL);
    }

    /// Objective: throttling keeps interrupts at least the interval apart, and no interrupt is lost.
    #[test]
    fn throttling_keeps_interrupts_apart_and_loses_none() {
        for (mut c, interval) in [(Causes::new(None), 500), (Causes::new(Some(1000)), 1000)] {
            c.set_interval(500);
            c.unmask(!0);
            let mut now = 0;
            let mut last = None;
            let mut count = 0;
            while now < 10_000_000 {
                c.set(ICR_RXT0);
                if c.update(now) {
                    assert!(last.is_none_or(|last| now - last >= interval * THROTTLE), "at {now}");
                    last = Some(now);
                    count += 1;
                    c.read();
                    c.update(now);
                }
                now = if now % 3 == 0 { now + 997 } else { c.deadline().unwrap_or(now + 997).max(now + 1) };
            }
            let most = 10_000_000 / (interval * THROTTLE);
            assert!((most / 2..=most + 1).contains(&count), "{count} of {most}");
        }
    }

    /// Objective: the relative timer restarts with each frame, the absolute timer does not; without a relative timer
    /// there is no delay; the directions have separate timers.
    #[test]
    fn only_the_relative_timer_restarts_with_each_frame() {
        let mut c = Causes::new(None);
        c.unmask(!0);
        c.set_relative(Receive, 10);
        c.set_absolute(Receive, 25);
        let mut now = 0;
        for _ in 0..3 {
            c.event(Receive, now);
            assert!(!c.update(now));
            now += 9 * DELAY;
        }
        assert_eq!(c.deadline(), Some(25 * DELAY));
        assert!(!c.update(25 * DELAY - 1) && c.update(25 * DELAY));
        assert_eq!(c.read(), ICR_RXT0);
        c.update(now);
        assert_eq!(c.deadline(), None);
        // A single frame waits for the relative timer.
        c.event(Receive, now);
        assert_eq!(c.deadline(), Some(now + 10 * DELAY));
        c.event(Transmit, now);
        assert!(c.update(now) && c.read() == ICR_TXDW, "no delay");
        c.flush(Receive);
        c.update(now);
        assert_eq!((c.read(), c.deadline()), (ICR_RXT0, None));
        c.flush(Receive);
        assert_eq!(c.peek(), 0, "no cause was delayed");
    }

    /// Objective: a reset clears causes, mask and timers, but not the forced interval.
    #[test]
    fn a_reset_clears_causes_and_mask_and_timers() {
        let mut c = Causes::new(Some(7));
        c.unmask(!0);
        c.set_relative(Transmit, 1);
        c.event(Transmit, 0);
        c.set(ICR_LSC);
        c.reset();
        assert_eq!((c.peek(), c.mask(), c.interval(), c.deadline()), (0, 0, 7, None));
        assert_eq!(c.delays(Transmit), (0, 0));
    }
}
