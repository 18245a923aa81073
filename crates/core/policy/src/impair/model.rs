//! The model of an impaired link, which decides the fate of each frame: lost, or due at some time.

use rand_pcg::Pcg32;
use rand_pcg::rand_core::{Rng, SeedableRng};

use super::Spec;
use super::chance::{ChanceEvent, RandomSource};
use super::curve::{self, DeviationTable};
use super::link::LinkModel;
use super::loss::LossModel;
use super::spec;

/// The fate of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The frame does not arrive.
    Lost,
    /// The frame arrives.
    Sent {
        /// The frame's arrival time by the caller's clock, nanoseconds: never before the frame was sent, but possibly
        /// before the arrival of earlier frames.
        due_ns: u64,
        /// Whether the frame is duplicated. [`Model::copy`] decides the fate of the copy.
        again: bool,
        /// The bit that arrives inverted, if any. Bit 0 is the lowest bit of the first byte.
        flip: Option<u32>,
    },
}

/// The model of an impaired link with the settings of a [`Spec`].
#[derive(Clone, Debug)]
pub struct Model {
    /// The delay of each frame in nanoseconds, if a fixed delay is the only setting: such a model needs no random
    /// numbers.
    plain: Option<u64>,
    rng: Pcg32,
    duplicate: Option<ChanceEvent>,
    loss: Option<LossModel>,
    corrupt: Option<ChanceEvent>,
    reorder: Option<ReorderModel>,
    delay: DelayModel,
    /// Whether frames never overtake earlier frames.
    ordered: bool,
    link: Option<LinkModel>,
    /// The latest time so far at which a frame is due, nanoseconds.
    last: u64,
}

impl Model {
    /// Creates the model of `spec`. `seed` starts the random sequence unless `spec` has a seed. The same seed yields
    /// the same fates on any machine.
    ///
    /// The first model with a `distribution` computes its table, which takes about a millisecond.
    pub fn new(spec: &Spec, seed: u64) -> Self {
        let mut rng = Pcg32::seed_from_u64(spec.seed.unwrap_or(seed));
        let delay = spec.delay.unwrap_or_default();
        Self {
            plain: plain(spec),
            duplicate: spec.duplicate.map(|chance| ChanceEvent::new(chance, &mut rng)),
            loss: spec.loss.map(|loss| LossModel::new(loss, &mut rng)),
            corrupt: spec.corrupt.map(|chance| ChanceEvent::new(chance, &mut rng)),
            reorder: spec.reorder.map(|reorder| ReorderModel::new(reorder, &mut rng)),
            delay: DelayModel::new(delay, &mut rng),
            ordered: delay.ordered,
            link: spec.link.map(LinkModel::new),
            last: 0,
            rng,
        }
    }

    /// Decides the fate of a frame of `len` bytes that is sent at `now_ns`.
    ///
    /// The caller must call this once for each frame, in order, and only for frames that the limits of the [`Spec`]
    /// allow: each call occupies the link for the frame's transmission time. The clock may start at any value. If it
    /// moves backwards, frames keep their order if the link has a rate or the setting `ordered`.
    #[inline]
    pub fn decide(&mut self, now_ns: u64, len: u32) -> Fate {
        match self.plain {
            Some(delay) => Fate::Sent { due_ns: now_ns.saturating_add(delay), again: false, flip: None },
            None => self.chances(now_ns, len),
        }
    }

    /// Decides the fate of a frame's copy, after [`decide`](Self::decide) returned `again`.
    ///
    /// As in the kernel, a copy is a frame of its own: it may be lost or corrupted and takes its own transmission time,
    /// but is never duplicated.
    pub fn copy(&mut self, now_ns: u64, len: u32) -> Fate {
        if self.is_lost(len) { Fate::Lost } else { self.send(now_ns, len, false) }
    }

    fn chances(&mut self, now: u64, len: u32) -> Fate {
        let again = self.duplicate.as_mut().is_some_and(|event| event.happens(&mut self.rng));
        // Of a frame that is both duplicated and lost, one copy remains.
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

    /// Draws the index of a bit in a frame of `len` bytes; `None` if the frame is empty.
    fn bit(&mut self, len: u32) -> Option<u32> {
        let bits = len.saturating_mul(8);
        let drawn = (u64::from(self.rng.next_u32()) * u64::from(bits)) >> 32;
        (bits > 0).then_some(drawn as u32)
    }

    /// Draws the arrival time of a frame that is sent at `now`.
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

/// Returns the delay of each frame in nanoseconds if a fixed delay is the only setting of `spec`; otherwise `None`.
fn plain(spec: &Spec) -> Option<u64> {
    let delay = spec.delay.unwrap_or_default();
    let chances = spec.loss.is_some() || spec.duplicate.is_some() || spec.corrupt.is_some() || spec.reorder.is_some();
    let same = delay.jitter.nanos() == 0 && !delay.ordered;
    (same && !chances && spec.link.is_none()).then_some(delay.mean.nanos())
}

/// Returns the arrival time of a frame with transmission time `time`, as in netem: the frame's delay passes while
/// earlier frames are sent; the last of these is due at `last`.
#[inline]
fn behind(now: u64, delay: i64, time: u64, last: u64) -> u64 {
    let start = now.saturating_add_signed(delay);
    // A frame whose delay has elapsed waits until the frames before it are due. A negative delay reduces the
    // transmission time only if the link is idle.
    let start = if last > now { start.max(last) } else { start };
    start.saturating_add(time).max(now)
}

/// Returns the arrival time of a frame with transmission time `time` that has been sent at `sent`, as in tlem: the
/// delay begins at `sent`, and the frame arrives at least `time` after the frame before it.
#[inline]
fn in_order(sent: u64, delay: i64, time: u64, last: u64) -> u64 {
    sent.saturating_add_signed(delay.max(0)).max(last.saturating_add(time))
}

/// The random delays of frames, in nanoseconds.
#[derive(Clone, Debug)]
struct DelayModel {
    mean: i64,
    jitter: i64,
    table: Option<&'static DeviationTable>,
    source: RandomSource,
}

impl DelayModel {
    fn new(spec: spec::DelaySpec, rng: &mut Pcg32) -> Self {
        // The limit exceeds any delay in practice, and twice the jitter still fits into an `i64`.
        let nanos = |time: crate::units::Time| i64::try_from(time.nanos()).unwrap_or(i64::MAX).min(i64::MAX / 2);
        Self {
            mean: nanos(spec.mean),
            jitter: nanos(spec.jitter),
            table: spec.shape.table(),
            source: RandomSource::new(spec.correlation, rng),
        }
    }

    /// Draws the next delay in nanoseconds. It may be negative if the jitter exceeds the mean.
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
        // The product is computed in two parts, as it may overflow.
        let entry = curve::pick(table, drawn);
        let high = (self.jitter / curve::SCALE).saturating_mul(entry);
        let low = (self.jitter % curve::SCALE * entry + curve::SCALE / 2).div_euclid(curve::SCALE);
        self.mean.saturating_add(high).saturating_add(low)
    }
}

/// The random choice of frames that overtake other frames.
#[derive(Clone, Debug)]
struct ReorderModel {
    event: ChanceEvent,
    gap: u32,
    /// Number of frames since the last frame that overtook other frames.
    behind: u32,
}

impl ReorderModel {
    fn new(spec: spec::Reorder, rng: &mut Pcg32) -> Self {
        Self { event: ChanceEvent::new(spec.chance, rng), gap: spec.gap, behind: 0 }
    }

    /// Draws whether the next frame skips the delay. Between two frames that skip the delay, at least `gap` - 1 frames
    /// do not skip it.
    #[inline]
    fn overtakes(&mut self, rng: &mut Pcg32) -> bool {
        let overtakes = self.behind >= self.gap.saturating_sub(1) && self.event.happens(rng);
        self.behind = if overtakes { 0 } else { self.behind.saturating_add(1) };
        overtakes
    }
}
