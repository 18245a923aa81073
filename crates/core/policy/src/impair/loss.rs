//! Models of frame loss.
//!
//! The models of bursts are those of S. Salsano, F. Ludovici and A. Ordine, "Definition of a general and intuitive loss
//! model for packet networks and its implementation in the Netem module in the Linux kernel".

use rand_pcg::Pcg32;
use rand_pcg::rand_core::Rng;

use super::chance::{self, ChanceEvent};
use super::spec;

/// A loss model with its state.
#[derive(Clone, Debug)]
pub(super) enum LossModel {
    Random(ChanceEvent),
    State(FourStateModel),
    Elliott(ElliottModel),
    Bits(BitErrorModel),
}

impl LossModel {
    /// Creates the model of `spec`, in its first state.
    pub fn new(spec: spec::Loss, rng: &mut Pcg32) -> Self {
        match spec {
            spec::Loss::Random(chance) => Self::Random(ChanceEvent::new(chance, rng)),
            spec::Loss::State(chances) => Self::State(FourStateModel { chances, state: ChainState::Arriving }),
            spec::Loss::Elliott(chances) => Self::Elliott(ElliottModel { chances, bad: false }),
            spec::Loss::Bits(errors) => Self::Bits(BitErrorModel::new(errors, rng)),
        }
    }

    /// Decides whether the next frame, of `len` bytes, is lost.
    #[inline]
    pub fn takes(&mut self, len: u32, rng: &mut Pcg32) -> bool {
        match self {
            Self::Random(event) => event.happens(rng),
            Self::State(states) => states.takes(rng.next_u32()),
            Self::Elliott(elliott) => elliott.takes(rng),
            Self::Bits(errors) => errors.takes(len, rng),
        }
    }
}

/// A state of the Markov chain, named after the fate of its frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChainState {
    /// State 1: frames arrive.
    Arriving,
    /// State 2: frames arrive within a burst of losses.
    ArrivingInBurst,
    /// State 3: frames are lost in a burst.
    LostInBurst,
    /// State 4: a frame is lost alone.
    LostAlone,
}

/// A Markov chain of four states.
#[derive(Clone, Debug)]
pub(super) struct FourStateModel {
    chances: spec::FourStates,
    state: ChainState,
}

impl FourStateModel {
    /// Moves to the next state by the random number `drawn`. Returns whether frames are lost in that state.
    fn takes(&mut self, drawn: u32) -> bool {
        // If the chances of a state's two transitions add up to more than 1, the second chance is reduced.
        let below =
            |first: crate::units::Share, second: crate::units::Share| drawn < first.raw().saturating_add(second.raw());
        let none = crate::units::Share::NONE;
        let chances = &self.chances;
        self.state = match self.state {
            ChainState::Arriving if below(chances.p14, none) => ChainState::LostAlone,
            ChainState::Arriving if below(chances.p14, chances.p13) => ChainState::LostInBurst,
            ChainState::ArrivingInBurst if below(chances.p23, none) => ChainState::LostInBurst,
            ChainState::LostInBurst if below(chances.p32, none) => ChainState::ArrivingInBurst,
            ChainState::LostInBurst if below(chances.p32, chances.p31) => ChainState::Arriving,
            ChainState::LostAlone => ChainState::Arriving,
            same => same,
        };
        matches!(self.state, ChainState::LostInBurst | ChainState::LostAlone)
    }
}

/// The model of Gilbert and Elliott: a good and a bad state, each of which loses its own share of frames.
#[derive(Clone, Debug)]
pub(super) struct ElliottModel {
    chances: spec::Elliott,
    bad: bool,
}

impl ElliottModel {
    /// Moves to the next state. Returns whether the frame is lost, which depends on the state before the move, as in
    /// the kernel.
    fn takes(&mut self, rng: &mut Pcg32) -> bool {
        let chances = &self.chances;
        let (leave, lose) = if self.bad { (chances.r, chances.bad) } else { (chances.p, chances.good) };
        self.bad ^= chance::happens(leave.raw(), rng);
        chance::happens(lose.raw(), rng)
    }
}

/// Bit errors, each of which loses its frame.
///
/// The model draws the number of correct bits until the next error, so that a frame without errors costs a subtraction,
/// whatever its length.
#[derive(Clone, Debug)]
pub(super) struct BitErrorModel {
    /// Number of correct bits left before the next error.
    right: u64,
    /// 1 / ln(1 - share of wrong bits); `None` if there are no bit errors.
    scale: Option<f64>,
}

impl BitErrorModel {
    fn new(errors: spec::BitErrors, rng: &mut Pcg32) -> Self {
        let share = errors.0 as f64 / spec::BitErrors::ALL as f64;
        let mut new = Self { right: u64::MAX, scale: (errors.0 != 0).then(|| 1.0 / libm::log1p(-share)) };
        new.draw(rng);
        new
    }

    fn takes(&mut self, len: u32, rng: &mut Pcg32) -> bool {
        let bits = u64::from(len) * 8;
        let lost = self.scale.is_some() && self.right < bits;
        if lost {
            // Errors are independent, so the number is drawn again for the bits after the frame.
            self.draw(rng);
        } else {
            self.right = self.right.saturating_sub(bits);
        }
        lost
    }

    /// Draws the number of correct bits before the next error from the geometric distribution, by inversion.
    fn draw(&mut self, rng: &mut Pcg32) {
        if let Some(scale) = self.scale {
            // A number above 0 and at most 1, of 53 bits, which an `f64` holds exactly.
            let uniform = ((rng.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
            self.right = (libm::log(uniform) * scale) as u64;
        }
    }
}
