//! Capture files (pcap and pcapng): read frame by frame, written as they come.

mod reader;
mod writer;

pub use reader::{Frame, ReadError, Reader};
pub use writer::{Format, WriteError, Writer};
