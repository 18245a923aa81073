//! A bad link: delay, loss, duplicates, reordering and damage, in the words of Linux's netem.
//!
//! A [`Spec`] holds the user's settings. A [`Model`] applies them: given each frame in turn and the time, it decides
//! the frame's [`Fate`]. The owner of the frames keeps them until they are due.
//!
//! | words | effect |
//! |---|---|
//! | `delay TIME [JITTER [CORRELATION]]` | delays each frame |
//! | `distribution uniform\|normal\|pareto\|paretonormal\|exponential` | spread of delays; `JITTER` is their standard
//! deviation (half of their range, if uniform) |
//! | `ordered` | frames wait for earlier ones with a later arrival |
//! | `loss [random] PERCENT [CORRELATION]` | loses frames at random |
//! | `loss state P13 [P31 [P32 [P23 [P14]]]]` | loses frames in bursts, by a Markov chain of four states |
//! | `loss gemodel P [R [1-H [1-K]]]` | the same, by the model of Gilbert and Elliott |
//! | `loss ber RATE` | bit errors, each of which loses its frame |
//! | `duplicate PERCENT [CORRELATION]` | duplicates frames |
//! | `corrupt PERCENT [CORRELATION]` | inverts a bit of frames |
//! | `reorder PERCENT [CORRELATION]`, `gap N` | frames skip the delay, and so overtake others |
//! | `rate RATE [OVERHEAD [CELLSIZE [CELLOVERHEAD]]]` | sends frames one after the other at a rate |
//! | `queue SIZE` | bytes that may wait for the rate; frames beyond are lost |
//! | `limit FRAMES`, `bytes SIZE` | frames and bytes in flight, limits enforced by the owner of the frames |
//! | `seed N` | repeats the same random sequence |
//!
//! `exponential`, `ordered`, `loss ber`, `queue` and `bytes` are netvale's own; the first four express netmap's
//! emulator [`tlem`]. netem's `slot` and `ecn` are refused.
//!
//! # As in the kernel
//!
//! The reference is `net/sched/sch_netem.c` of Linux 6.18, and `tc/q_netem.c` of iproute2 for the words. Random
//! decisions follow its order: duplicate, loss (a frame with both is sent once), damage, order, delay. Two differences:
//!
//! - The kernel picks a delay by the *remainder* of a random number, which loses the correlation that the number was
//!   drawn with. Here it is picked in proportion.
//! - A fraction of a nanosecond in a frame's time on the link is not cut off but carried to the next frame, which keeps
//!   the rate exact for short frames and fast links.
//!
//! As in the kernel, a correlated number is `correlation` of the last one and the rest of a new one. Such numbers keep
//! to the middle: delays spread less than configured, and shares below half are met less often. Use `gemodel` for
//! bursts of losses.
//!
//! ```
//! use netvale_policy::impair::{Fate, Model, Spec};
//!
//! let spec: Spec = "delay 70ms rate 10mbit".parse()?;
//! let mut model = Model::new(&spec, 1);
//! let fate = model.decide(0, 1500);
//! assert_eq!(fate, Fate::Sent { due_ns: 71_200_000, again: false, flip: None });
//! # Ok::<(), netvale_policy::impair::Error>(())
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
pub use parse::Error;
pub use spec::{DEFAULT_BYTES, DEFAULT_LIMIT, Spec};
