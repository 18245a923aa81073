//! The settings of an impaired link, and their canonical text.

use core::fmt;

use crate::units::{Rate, Share, Size, Time};

/// Default limit of frames in flight. With netem's default of 1000 frames, a link with a delay of 50 ms would lose
/// frames at rates above 240 Mbit/s; here, the bytes in flight are limited, too.
pub const DEFAULT_LIMIT: u32 = 100_000;

/// Default limit of bytes in flight: enough for 50 ms at 10 Gbit/s.
pub const DEFAULT_BYTES: Size = Size::from_bytes(64 << 20);

/// The settings of an impaired link. By default, frames pass unimpaired.
///
/// Read from text such as `delay 70ms 10ms loss 1%` (see [the module](super)), and printed in the same form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    pub(super) delay: Option<DelaySpec>,
    pub(super) loss: Option<Loss>,
    pub(super) duplicate: Option<Chance>,
    pub(super) corrupt: Option<Chance>,
    pub(super) reorder: Option<Reorder>,
    pub(super) link: Option<LinkSpec>,
    pub(super) limit: u32,
    pub(super) bytes: Size,
    pub(super) seed: Option<u64>,
}

/// The settings `delay`, `distribution` and `ordered`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DelaySpec {
    pub mean: Time,
    pub jitter: Time,
    pub correlation: Share,
    pub shape: DelayShape,
    pub ordered: bool,
}

/// The distribution of delays around their mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum DelayShape {
    /// Uniform from mean - jitter to mean + jitter.
    #[default]
    Uniform,
    /// Normal, with the jitter as its standard deviation.
    Normal,
    /// Pareto, with a long tail.
    Pareto,
    /// The weighted mean of a quarter normal and three quarters Pareto.
    ParetoNormal,
    /// Exponential, from mean - jitter on. The jitter is the standard deviation.
    Exponential,
}

impl DelayShape {
    /// All distributions with their names.
    pub const NAMES: [(&'static str, Self); 5] = [
        ("uniform", Self::Uniform),
        ("normal", Self::Normal),
        ("pareto", Self::Pareto),
        ("paretonormal", Self::ParetoNormal),
        ("exponential", Self::Exponential),
    ];

    fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, shape)| *shape == self).map_or("", |(name, _)| name)
    }
}

/// The share of frames to which an event happens, and the correlation of consecutive decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Chance {
    pub share: Share,
    pub correlation: Share,
}

/// The setting `loss`: a loss model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    Random(Chance),
    State(FourStates),
    Elliott(Elliott),
    Bits(BitErrors),
}

/// Chances of the transitions between four states. 1: frames arrive; 2: frames arrive within a burst of losses; 3:
/// frames are lost in a burst; 4: a single frame is lost, then state 1 follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FourStates {
    pub p13: Share,
    pub p31: Share,
    pub p32: Share,
    pub p23: Share,
    pub p14: Share,
}

impl FourStates {
    /// Creates the model with tc's defaults, with which each frame has the same chance of loss.
    pub fn new(p13: Share) -> Self {
        Self { p13, p31: p13.rest(), p32: Share::NONE, p23: Share::ALL, p14: Share::NONE }
    }
}

/// Chances of the model of Gilbert and Elliott.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Elliott {
    /// Chance of the transition from the good to the bad state.
    pub p: Share,
    /// Chance of the transition from the bad to the good state.
    pub r: Share,
    /// Chance that a frame is lost in the bad state, 1-h in the paper.
    pub bad: Share,
    /// Chance that a frame is lost in the good state, 1-k in the paper.
    pub good: Share,
}

impl Elliott {
    /// Creates the model with tc's defaults, with which each frame has the same chance of loss.
    pub fn new(p: Share) -> Self {
        Self { p, r: p.rest(), bad: Share::ALL, good: Share::NONE }
    }
}

/// A rate of bit errors: the number of wrong bits in 10^18.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BitErrors(pub u64);

impl BitErrors {
    /// The rate at which all bits are wrong.
    pub const ALL: u64 = 1_000_000_000_000_000_000;
}

/// The settings `reorder` and `gap`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reorder {
    pub chance: Chance,
    /// At most one frame in `gap` overtakes other frames.
    pub gap: u32,
}

/// The settings `rate` and `queue`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LinkSpec {
    pub rate: Rate,
    /// Number of bytes added to each frame; subtracted if negative.
    pub overhead: i32,
    /// Size of the cells into which frames are cut, bytes; 0 for no cells.
    pub cell: u32,
    /// Number of bytes added to each cell; subtracted if negative.
    pub cell_overhead: i32,
    /// Limit of the bytes that wait to be sent at the rate, if any.
    pub queue: Option<Size>,
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            delay: None,
            loss: None,
            duplicate: None,
            corrupt: None,
            reorder: None,
            link: None,
            limit: DEFAULT_LIMIT,
            bytes: DEFAULT_BYTES,
            seed: None,
        }
    }
}

impl Spec {
    /// Limit of frames in flight, which the caller of [`Model`](super::Model) must enforce.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Limit of bytes in flight, which the caller of [`Model`](super::Model) must enforce.
    pub fn bytes(&self) -> Size {
        self.bytes
    }

    /// The user's seed; `None` if the caller of [`Model`](super::Model) may choose one.
    pub fn seed(&self) -> Option<u64> {
        self.seed
    }
}

impl fmt::Display for Spec {
    /// Prints the canonical text, which reads back as this value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = WordWriter { f, started: false };
        if self.limit != DEFAULT_LIMIT {
            words.part(format_args!("limit {}", self.limit))?;
        }
        if self.bytes != DEFAULT_BYTES {
            words.part(format_args!("bytes {}", self.bytes))?;
        }
        words.named("", self.delay.as_ref())?;
        words.named("loss ", self.loss.as_ref())?;
        words.named("duplicate ", self.duplicate.as_ref())?;
        words.named("corrupt ", self.corrupt.as_ref())?;
        words.named("reorder ", self.reorder.as_ref())?;
        words.named("rate ", self.link.as_ref())?;
        words.named("seed ", self.seed.as_ref())
    }
}

/// A writer that separates parts by spaces.
struct WordWriter<'a, 'f> {
    f: &'a mut fmt::Formatter<'f>,
    started: bool,
}

impl WordWriter<'_, '_> {
    fn part(&mut self, part: fmt::Arguments<'_>) -> fmt::Result {
        if self.started {
            self.f.write_str(" ")?;
        }
        self.started = true;
        self.f.write_fmt(part)
    }

    fn named<T: fmt::Display>(&mut self, name: &str, part: Option<&T>) -> fmt::Result {
        part.map_or(Ok(()), |part| self.part(format_args!("{name}{part}")))
    }
}

impl fmt::Display for DelaySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "delay {}", self.mean)?;
        if self.correlation != Share::NONE {
            write!(f, " {} {}", self.jitter, self.correlation)?;
        } else if self.jitter != Time::default() {
            write!(f, " {}", self.jitter)?;
        }
        if self.shape != DelayShape::Uniform {
            write!(f, " distribution {}", self.shape.name())?;
        }
        if self.ordered { f.write_str(" ordered") } else { Ok(()) }
    }
}

impl fmt::Display for Chance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.share)?;
        if self.correlation == Share::NONE { Ok(()) } else { write!(f, " {}", self.correlation) }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Random(chance) => chance.fmt(f),
            Self::State(s) => {
                let default = FourStates::new(s.p13);
                write!(f, "state {}", s.p13)?;
                let further = [(s.p31, default.p31), (s.p32, default.p32), (s.p23, default.p23), (s.p14, default.p14)];
                further_shares(f, &further)
            }
            Self::Elliott(e) => {
                let default = Elliott::new(e.p);
                write!(f, "gemodel {}", e.p)?;
                further_shares(f, &[(e.r, default.r), (e.bad, default.bad), (e.good, default.good)])
            }
            Self::Bits(errors) => write!(f, "ber {errors}"),
        }
    }
}

/// Prints the shares up to the last share that differs from its default. Each entry is a share and its default.
fn further_shares(f: &mut fmt::Formatter<'_>, shares: &[(Share, Share)]) -> fmt::Result {
    let shown = shares.iter().rposition(|(share, default)| share != default).map_or(0, |last| last + 1);
    shares[..shown].iter().try_for_each(|(share, _)| write!(f, " {share}"))
}

impl fmt::Display for BitErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut digits = self.0;
        let mut places = 18;
        while places > 0 && digits.is_multiple_of(10) {
            digits /= 10;
            places -= 1;
        }
        if places == 0 { write!(f, "{digits}") } else { write!(f, "{digits}e-{places}") }
    }
}

impl fmt::Display for Reorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.chance.fmt(f)?;
        if self.gap == 1 { Ok(()) } else { write!(f, " gap {}", self.gap) }
    }
}

impl fmt::Display for LinkSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.rate)?;
        match (self.overhead, self.cell, self.cell_overhead) {
            (0, 0, 0) => {}
            (overhead, 0, 0) => write!(f, " {overhead}")?,
            (overhead, cell, 0) => write!(f, " {overhead} {cell}")?,
            (overhead, cell, cell_overhead) => write!(f, " {overhead} {cell} {cell_overhead}")?,
        }
        self.queue.map_or(Ok(()), |queue| write!(f, " queue {queue}"))
    }
}
