//! Capture files (pcap and pcapng) as ports of a switch, and for tools.
//!
//! | module | what it is |
//! |---|---|
//! | [`reader`] | frames from a file, one by one; `classic` and `ng` are its two formats, `source` its bounded input |
//! | [`writer`] | frames to a file |
//! | [`encoder`] | frames of several interfaces as bytes, with directions and statistics |
//! | [`pace`] | the send time of each frame of a recording |
//! | [`replay`] | a file as an ingress: a thread reads ahead, the switch takes frames from its buffers |
//! | [`limit`] | limits of a capture |
//! | [`capture`] | a file as an egress: the switch copies frames, a thread writes them |
//! | `chunk` | frames back to back in one buffer |
//! | `classic` | the format pcap |
//! | `ng` | the format pcapng |
//! | `source` | input that may end anywhere, with untrusted lengths |
//!
//! Ethernet only: nothing else can cross a switch.
//!
//! ```
//! use netvale_pcapport::{Format, Reader, Writer};
//! use std::time::Duration;
//!
//! let mut file = Vec::new();
//! let mut writer = Writer::new(&mut file, Format::PcapNg)?;
//! writer.write(Duration::from_secs(1), b"a frame")?;
//! writer.finish()?;
//!
//! let mut reader = Reader::new(&file[..])?;
//! while let Some(frame) = reader.next_frame()? {
//!     assert_eq!(frame.bytes, b"a frame");
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod chunk;
mod classic;
mod ng;
mod source;

pub mod capture;
pub mod encoder;
pub mod limit;
pub mod pace;
pub mod reader;
pub mod replay;
pub mod writer;

pub use capture::{CAPTURE_MEMORY, CaptureOptions, CaptureState, CaptureStatus, PcapEgress};
pub use encoder::{Encoder, Interface, Statistics};
pub use limit::{Allowance, Ended, Limit};
pub use pace::{Pace, Pacer};
pub use reader::{Frame, ReadError, Reader};
pub use replay::{PcapIngress, ReplayError, ReplayOptions, ReplayState, ReplayStatus};
pub use source::MAX_CAPTURED;
pub use writer::{Direction, Format, WriteError, Writer};
