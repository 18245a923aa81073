//! Copies of ports' frames: where they come from, when to stop, and where they go. For `netvale dump`, `extcap` and
//! `mirror`, and for the page of `netvale web`.
//!
//! | module | what it is |
//! |---|---|
//! | [`source`] | the ports that are watched, and how many frames the watching lost |
//! | [`filter`] | which frames are wanted |
//! | [`limits`] | when a capture ends, and when it goes on in another file |
//! | [`sink`] | a file or pipe that gets whole blocks |
//! | [`files`] | one file after the other, the oldest removed |
//! | [`recorder`] | frames as blocks, into these |
//! | [`lines`] | frames as lines of text |

use std::time::{Duration, SystemTime};

pub mod files;
pub mod filter;
pub mod limits;
pub mod lines;
pub mod recorder;
pub mod sink;
pub mod source;

/// The name of the program in captures.
pub const APPLICATION: &str = concat!("netvale ", env!("CARGO_PKG_VERSION"));

/// The time that captures are told in: since 1970.
fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}
