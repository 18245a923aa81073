//! Impaired links: delay, loss, duplication, reordering and corruption, in the syntax of Linux's netem.
//!
//! A [`Spec`] holds the user's settings. A [`Model`] applies them: it decides each frame's [`Fate`] from the time and
//! the frame's length. The caller stores the frames until they are due.
//!
//! | words | effect |
//! |---|---|
//! | `delay TIME [JITTER [CORRELATION]]` | delays each frame |
//! | `distribution uniform\|normal\|pareto\|paretonormal\|exponential` | distribution of the delays |
//! | `ordered` | frames never overtake earlier frames |
//! | `loss [random] PERCENT [CORRELATION]` | loses frames at random |
//! | `loss state P13 [P31 [P32 [P23 [P14]]]]` | loses frames in bursts, by a Markov chain of four states |
//! | `loss gemodel P [R [1-H [1-K]]]` | loses frames in bursts, by the model of Gilbert and Elliott |
//! | `loss ber RATE` | loses each frame with a bit error, at this rate of bit errors |
//! | `duplicate PERCENT [CORRELATION]` | duplicates frames |
//! | `corrupt PERCENT [CORRELATION]` | inverts one bit of a frame |
//! | `reorder PERCENT [CORRELATION]`, `gap N` | frames skip the delay, and thus overtake other frames |
//! | `rate RATE [OVERHEAD [CELLSIZE [CELLOVERHEAD]]]` | sends frames one after the other at a rate |
//! | `queue SIZE` | limits the bytes that wait for the rate; loses further frames |
//! | `limit FRAMES`, `bytes SIZE` | limits of frames and bytes in flight, which the caller enforces |
//! | `seed N` | repeats the same random sequence |
//!
//! `JITTER` is the standard deviation of the delays; of uniform delays it is half their range.
//!
//! `exponential`, `ordered`, `loss ber`, `queue` and `bytes` are netvale's own; the first four express the options of
//! netmap's emulator [`tlem`]. netem's `slot` and `ecn` are refused.
//!
//! # As in the kernel
//!
//! The reference is `net/sched/sch_netem.c` of Linux 6.18, and `tc/q_netem.c` of iproute2 for the syntax. Random
//! decisions have the kernel's order: duplication, loss (a frame that is both duplicated and lost is sent once),
//! corruption, reordering, delay. There are two differences:
//!
//! - The kernel selects a delay by the *remainder* of a random number, which loses the number's correlation. Here the
//!   delay is proportional to the random number.
//! - A fraction of a nanosecond in a frame's transmission time is carried over to the next frame instead of cut off,
//!   which keeps the rate exact for short frames and fast links.
//!
//! As in the kernel, a correlated number is the weighted mean of the last number (with weight `CORRELATION`) and a new
//! one. Such numbers are concentrated around the middle: delays vary less than configured, and events with a share
//! below one half happen less often. Use `gemodel` for bursts of losses.
//!
//! ```
//! use netvale_policy::impair::{Fate, Model, Spec};
//!
//! let spec: Spec = "delay 70ms rate 10mbit".parse()?;
//! let mut model = Model::new(&spec, 1);
//! let fate = model.decide(0, 1500);
//! assert_eq!(fate, Fate::Sent { due_ns: 71_200_000, again: false, flip: None });
//! # Ok::<(), netvale_policy::impair::NetemError>(())
//! ```

mod chance;
mod curve;
mod link;
mod loss;
mod model;
mod parse;
mod spec;
pub mod tlem;

pub use model::{Fate, Model};
pub use parse::NetemError;
pub use spec::{DEFAULT_BYTES, DEFAULT_LIMIT, Spec};
