//! A bad link: delay, loss, duplicates, order and damage, in the words of Linux's netem.
//!
//! A [`Spec`] is what a user asks for. A [`Model`] carries it out: told of each frame in turn and of the time, it
//! says what becomes of the frame, its [`Fate`]. Who has the frames keeps them until they are due.
//!
//! | words | what they do |
//! |---|---|
//! | `delay TIME [JITTER [CORRELATION]]` | each frame is late |
//! | `distribution uniform\|normal\|pareto\|paretonormal\|exponential` | how delays spread, `JITTER` being their standard deviation (half of their range, if uniform) |
//! | `ordered` | frames wait for earlier ones that are later than they |
//! | `loss [random] PERCENT [CORRELATION]` | frames are lost, each by chance |
//! | `loss state P13 [P31 [P32 [P23 [P14]]]]` | a Markov chain of four states loses them in bursts |
//! | `loss gemodel P [R [1-H [1-K]]]` | the model of Gilbert and Elliott does |
//! | `loss ber RATE` | each bit may be wrong, which loses its frame |
//! | `duplicate PERCENT [CORRELATION]` | frames come twice |
//! | `corrupt PERCENT [CORRELATION]` | frames come with a wrong bit |
//! | `reorder PERCENT [CORRELATION]`, `gap N` | frames skip the delay, and so overtake others |
//! | `rate RATE [OVERHEAD [CELLSIZE [CELLOVERHEAD]]]` | frames take time to be sent, one after the other |
//! | `queue SIZE` | how many bytes may wait for the rate; frames beyond are lost |
//! | `limit FRAMES`, `bytes SIZE` | how much may be under way, which is for who keeps the frames to see to |
//! | `seed N` | the same chances each time |
//!
//! `exponential`, `ordered`, `loss ber`, `queue` and `bytes` are netvale's own; the first four say what netmap's
//! emulator [`tlem`] does. netem's `slot` and `ecn` are refused.
//!
//! # As in the kernel
//!
//! The reference is `net/sched/sch_netem.c` of Linux 6.18, and `tc/q_netem.c` of iproute2 for the words. Chances are
//! drawn in its order: duplicate, loss (a frame that is both is sent once), damage, order, delay. Two differences:
//!
//! - The kernel picks a delay by the *remainder* of a random number, which has nothing of the correlation that the
//!   number was drawn with. Here it is picked in proportion.
//! - What remains of a nanosecond is not cut off a frame's time on the link but carried to the next frame, so that the
//!   rate is right for short frames and fast links.
//!
//! As in the kernel, a correlated number is `correlation` of the last one and the rest of a new one. Such numbers keep
//! to the middle: delays spread less than is asked for, and shares below half are met less often. Bursts of losses are
//! better asked for with `gemodel`.
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
