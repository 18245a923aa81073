//! The model of a bad link, which decides the fate of each frame: lost, or sent at a time.

use rand_pcg::Pcg32;
use rand_pcg::rand_core::{Rng, SeedableRng};

use super::Spec;
use super::chance::{Event, Source};
use super::curve::{self, Table};
use super::link::Link;
use super::loss::Loss;
use super::spec;

/// The fate of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It does not arrive.
    Lost,
    /// It arrives.
    Sent {
        /// Its arrival time, by the model's clock. Never before the frame entered, but possibly before earlier frames
        /// arrive.
        due_ns: u64,
        /// Whether it arrives twice: [`Model::copy`] decides the fate of the second one.
        again: bool,
        /// The bit that arrives inverted, if any. Bit 0 is the lowest one of the first byte.
        flip: Option<u32>,
    },
}

/// Decides about frames by a [`Spec`].
#[derive(Clone, Debug)]
pub struct Model {
    /// The delay of each frame, if that is the only setting: such a frame needs no random number.
    plain: Option<u64>,
    rng: Pcg32,
    duplicate: Option<Event>,
    loss: Option<Loss>,
    corrupt: Option<Event>,
    reorder: Option<Reorder>,
    delay: Delay,
    /// Whether frames wait for earlier ones.
    ordered: bool,
    link: Option<Link>,
    /// Arrival time of the last frame so far.
    last: u64,
}

impl Model {
    /// Creates the model of `spec`. `seed` starts the random sequence unless `spec` does: the same seed gives the same
    /// fates on any machine.
    ///
    /// The first model of a `distribution` makes its table, which takes about a millisecond.
    pub fn new(spec: &Spec, seed: u64) -> Self {
        let mut rng = Pcg32::seed_from_u64(spec.seed.unwrap_or(seed));
        let delay = spec.delay.unwrap_or_default();
        Self {
            plain: plain(spec),
            duplicate: spec.duplicate.map(|chance| Event::new(chance, &mut rng)),
            loss: spec.loss.map(|loss| Loss::new(loss, &mut rng)),
            corrupt: spec.corrupt.map(|chance| Event::new(chance, &mut rng)),
            reorder: spec.reorder.map(|reorder| Reorder::new(reorder, &mut rng)),
            delay: Delay::new(delay, &mut rng),
            ordered: delay.ordered,
            link: spec.link.map(Link::new),
            last: 0,
            rng,
        }
    }

    /// Decides the fate of a frame of `len` bytes that arrives at `now_ns`.
    ///
    /// Call it once for each frame, in order, and only for frames with room: each call takes the frame's time on the
    /// link. The clock may start anywhere. If it goes back, frames that follow others, on a link or in order, still do.
    #[inline]
    pub fn decide(&mut self, now_ns: u64, len: u32) -> Fate {
        match self.plain {
            Some(delay) => Fate::Sent { due_ns: now_ns.saturating_add(delay), again: false, flip: None },
            None => self.chances(now_ns, len),
        }
    }

    /// Decides the fate of a frame's copy, after [`decide`](Self::decide) returned `again`.
    ///
    /// As in the kernel, a copy is a frame of its own, which may be lost or damaged and takes its own time, but is
    /// never duplicated.
    pub fn copy(&mut self, now_ns: u64, len: u32) -> Fate {
        if self.is_lost(len) { Fate::Lost } else { self.send(now_ns, len, false) }
    }

    fn chances(&mut self, now: u64, len: u32) -> Fate {
        let again = self.duplicate.as_mut().is_some_and(|event| event.happens(&mut self.rng));
        // Of a frame that is both duplicated and lost, one is left.
        match (self.is_lost(len), again) {
            (true, false) => Fate::Lost,
            (true, true) => self.send(now, len, false),
            (false, again) => self.send(now, len, again),
        }
    }

    #[inline]
    fn is_lost(&mut self, len: u32) -> bool {
        self.loss.as_mut().is_some_and(|loss| loss.takes(len, &mut self.rng))
    }

    #[inline]
    fn send(&mut self, now: u64, len: u32, again: bool) -> Fate {
        let damaged = self.corrupt.as_mut().is_some_and(|event| event.happens(&mut self.rng));
        let flip = if damaged { self.bit(len) } else { None };
        if self.link.as_ref().is_some_and(|link| link.is_full(now)) {
            return Fate::Lost;
        }
        Fate::Sent { due_ns: self.due(now, len), again, flip }
    }

    /// A random bit of a frame of `len` bytes.
    fn bit(&mut self, len: u32) -> Option<u32> {
        let bits = len.saturating_mul(8);
        let drawn = (u64::from(self.rng.next_u32()) * u64::from(bits)) >> 32;
        (bits > 0).then_some(drawn as u32)
    }

    /// The frame's arrival time.
    #[inline]
    fn due(&mut self, now: u64, len: u32) -> u64 {
        if self.reorder.as_mut().is_some_and(|reorder| reorder.overtakes(&mut self.rng)) {
            return now;
        }
        let delay = self.delay.draw(&mut self.rng);
        let due = match &mut self.link {
            Some(link) => {
                let (time, sent) = link.send(now, len);
                if self.ordered { in_order(sent, delay, time, self.last) } else { behind(now, delay, time, self.last) }
            }
            None if self.ordered => in_order(now, delay, 0, self.last),
            None => now.saturating_add_signed(delay.max(0)),
        };
        self.last = self.last.max(due);
        due
    }
}

/// The delay of each frame, if `spec` has no other setting.
fn plain(spec: &Spec) -> Option<u64> {
    let delay = spec.delay.unwrap_or_default();
    let chances = spec.loss.is_some() || spec.duplicate.is_some() || spec.corrupt.is_some() || spec.reorder.is_some();
    let same = delay.jitter.nanos() == 0 && !delay.ordered;
    (same && !chances && spec.link.is_none()).then_some(delay.mean.nanos())
}

/// Arrival time of a frame with transmission time `time`, as in netem: the delay runs while the frames before it, the
/// last of which is due at `last`, are sent.
#[inline]
fn behind(now: u64, delay: i64, time: u64, last: u64) -> u64 {
    let start = now.saturating_add_signed(delay);
    // With frames before it, a frame whose delay is over waits for the last of them. The delay may be below 0; only
    // without frames before it does that offset the transmission time.
    let start = if last > now { start.max(last) } else { start };
    start.saturating_add(time).max(now)
}

/// Arrival time of a frame `sent` after `time`, as in tlem: the delay runs from then on, and the frame keeps its
/// distance from the one before.
#[inline]
fn in_order(sent: u64, delay: i64, time: u64, last: u64) -> u64 {
    sent.saturating_add_signed(delay.max(0)).max(last.saturating_add(time))
}

/// Draws delays.
#[derive(Clone, Debug)]
struct Delay {
    mean: i64,
    jitter: i64,
    table: Option<&'static Table>,
    source: Source,
}

impl Delay {
    fn new(spec: spec::Delay, rng: &mut Pcg32) -> Self {
        // Far beyond any clock, and twice the jitter still fits.
        let nanos = |time: crate::units::Time| i64::try_from(time.nanos()).unwrap_or(i64::MAX).min(i64::MAX / 2);
        Self {
            mean: nanos(spec.mean),
            jitter: nanos(spec.jitter),
            table: spec.shape.table(),
            source: Source::new(spec.correlation, rng),
        }
    }

    /// The next delay, in nanoseconds. Below 0 if the jitter exceeds the mean.
    #[inline]
    fn draw(&mut self, rng: &mut Pcg32) -> i64 {
        if self.jitter == 0 {
            return self.mean;
        }
        let drawn = self.source.draw(rng);
        let Some(table) = self.table else {
            let range = u128::from(drawn) * (self.jitter as u128 * 2);
            return self.mean - self.jitter + (range >> 32) as i64;
        };
        // In two parts, as the product may overflow.
        let entry = curve::pick(table, drawn);
        let high = (self.jitter / curve::SCALE).saturating_mul(entry);
        let low = (self.jitter % curve::SCALE * entry + curve::SCALE / 2).div_euclid(curve::SCALE);
        self.mean.saturating_add(high).saturating_add(low)
    }
}

/// Picks frames that overtake others.
#[derive(Clone, Debug)]
struct Reorder {
    event: Event,
    gap: u32,
    /// Frames since the last overtaking.
    behind: u32,
}

impl Reorder {
    fn new(spec: spec::Reorder, rng: &mut Pcg32) -> Self {
        Self { event: Event::new(spec.chance, rng), gap: spec.gap, behind: 0 }
    }

    /// Whether the next frame skips the delay. At least `gap` - 1 frames before it did not.
    #[inline]
    fn overtakes(&mut self, rng: &mut Pcg32) -> bool {
        let overtakes = self.behind >= self.gap.saturating_sub(1) && self.event.happens(rng);
        self.behind = if overtakes { 0 } else { self.behind.saturating_add(1) };
        overtakes
    }
}
