//! Captures of ports' frames, for `netvale dump`, `extcap` and `mirror`, and for the page of `netvale web`.
//!
//! | module | what it is |
//! |---|---|
//! | [`source`] | the watched ports, and the counts of frames that the capture lost |
//! | [`filter`] | selection of frames |
//! | [`limits`] | when a capture ends, and when each of its files ends |
//! | [`sink`] | a file or pipe that receives whole blocks |
//! | [`files`] | a sequence of files, from which the oldest are removed |
//! | [`recorder`] | writes frames as blocks into these files |
//! | [`lines`] | prints frames as lines of text |

use std::time::{Duration, SystemTime};

pub mod files;
pub mod filter;
pub mod limits;
pub mod lines;
pub mod recorder;
pub mod sink;
pub mod source;

/// The program's name as recorded in capture files.
pub const APPLICATION: &str = concat!("netvale ", env!("CARGO_PKG_VERSION"));

/// Returns the time since 1970, for time stamps.
fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}
