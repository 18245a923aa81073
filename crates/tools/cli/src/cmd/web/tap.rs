//! Captures for the page, by monitors of ports, as in `netvale dump`.

use std::io;
use std::time::Duration;

use netvale_observe::http::answer::BodyParts;
use netvale_observe::web::capture::{CaptureDirection, CaptureTap, WebCapture};
use netvale_pcapport::{Encoder, PcapFormat};

use crate::capture::APPLICATION;
use crate::capture::filter::CaptureFilter;
use crate::capture::source::CapturePorts;
use crate::{CliContext, CliError};

/// Maximum time to wait for frames; after it, the client's connection is checked.
const LOOK: Duration = Duration::from_millis(100);

/// Opens monitors of ports, for captures on the page.
pub struct PortTap(pub CliContext);

impl CaptureTap for PortTap {
    fn open(&self, capture: &WebCapture) -> Result<Box<dyn BodyParts>, String> {
        let flags = match capture.way {
            CaptureDirection::Sent => "t",
            CaptureDirection::Got => "r",
            CaptureDirection::Both => "rt",
        };
        let said = |e: CliError| e.to_string();
        let sources = CapturePorts::open(&[format!("{}/{flags}", capture.port)], &self.0).map_err(said)?;
        let filter = CaptureFilter::new(None, capture.snaplen).map_err(said)?;
        // The file's header is sent immediately, so that the client sees progress.
        let encoder = Encoder::begin(PcapFormat::PcapNg, APPLICATION, &sources.interfaces(None, capture.snaplen));
        Ok(Box::new(WebMonitor { sources, filter, encoder, left: capture.frames }))
    }
}

/// A running capture.
struct WebMonitor {
    sources: CapturePorts,
    filter: CaptureFilter,
    encoder: Encoder,
    /// Number of frames that the capture may still send.
    left: u64,
}

impl BodyParts for WebMonitor {
    fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        if self.encoder.bytes().is_empty() {
            if self.left == 0 {
                return Ok(None);
            }
            self.take().map_err(io::Error::other)?;
        }
        let part = self.encoder.bytes().to_vec();
        self.encoder.clear();
        Ok(Some(part))
    }
}

impl WebMonitor {
    fn take(&mut self) -> Result<(), CliError> {
        self.sources.wait(LOOK, &[])?;
        let WebMonitor { sources, filter, encoder, left } = self;
        sources.drain(|seen| {
            if let Some(kept) = filter.kept(seen.frame) {
                encoder.frame(seen.port as u32, seen.time, kept, seen.frame.len() as u32, Some(seen.direction));
                *left -= 1;
            }
            Ok(*left > 0)
        })
    }
}
