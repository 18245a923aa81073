//! Capture files (pcap and pcapng) as ports of a switch, and for tools.
//!
//! | module | what it is |
//! |---|---|
//! | [`reader`] | reads frames from a file; `classic` and `ng` are its two formats, `source` its bounded input |
//! | [`writer`] | writes frames to a file |
//! | [`encoder`] | encodes frames of several interfaces, with directions and statistics |
//! | [`pace`] | the send time of each frame of a recording |
//! | [`replay`] | a file as an ingress: a thread reads ahead, the switch takes frames from its buffers |
//! | [`limit`] | limits of a capture |
//! | [`capture`] | a file as an egress: the switch copies frames, a thread writes them |
//! | `chunk` | buffers of several frames |
//! | `classic` | the pcap format |
//! | `ng` | the pcapng format |
//! | `source` | input that may end anywhere, with untrusted lengths |
//!
//! Only Ethernet frames are supported, because nothing else can cross a switch.
//!
//! ```
//! use netvale_pcapport::{PcapFormat, PcapReader, PcapWriter};
//! use std::time::Duration;
//!
//! let mut file = Vec::new();
//! let mut writer = PcapWriter::new(&mut file, PcapFormat::PcapNg)?;
//! writer.write(Duration::from_secs(1), b"a frame")?;
//! writer.finish()?;
//!
//! let mut reader = PcapReader::new(&file[..])?;
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
pub use encoder::{CaptureInterface, Encoder, Statistics};
pub use limit::{Allowance, CaptureLimit, ReachedLimit};
pub use pace::{Pacer, ReplayPace};
pub use reader::{PcapFrame, PcapReader, ReadError};
pub use replay::{PcapIngress, ReplayError, ReplayOptions, ReplayState, ReplayStatus};
pub use source::MAX_CAPTURED;
pub use writer::{PcapDirection, PcapFormat, PcapWriter, WriteError};
