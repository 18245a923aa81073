//! Captures for the page: monitors of ports, as opened by `netvale dump`.

use std::io;
use std::time::Duration;

use netvale_observe::http::answer::Parts;
use netvale_observe::web::capture::{Capture, Tap, Way};
use netvale_pcapport::{Encoder, Format};

use crate::capture::APPLICATION;
use crate::capture::filter::Filter;
use crate::capture::source::Sources;
use crate::{CliError, Ctx};

/// Maximum wait for frames: the client may have closed meanwhile.
const LOOK: Duration = Duration::from_millis(100);

/// Opens monitors of a daemon's ports.
pub struct PortTap(pub Ctx);

impl Tap for PortTap {
    fn open(&self, capture: &Capture) -> Result<Box<dyn Parts>, String> {
        let flags = match capture.way {
            Way::Sent => "t",
            Way::Got => "r",
            Way::Both => "rt",
        };
        let said = |e: CliError| e.to_string();
        let sources = Sources::open(&[format!("{}/{flags}", capture.port)], &self.0).map_err(said)?;
        let filter = Filter::new(None, capture.snaplen).map_err(said)?;
        // The file begins immediately, so that the client sees progress.
        let encoder = Encoder::begin(Format::PcapNg, APPLICATION, &sources.interfaces(None, capture.snaplen));
        Ok(Box::new(Monitor { sources, filter, encoder, left: capture.frames }))
    }
}

/// A running capture.
struct Monitor {
    sources: Sources,
    filter: Filter,
    encoder: Encoder,
    /// Frames still permitted.
    left: u64,
}

impl Parts for Monitor {
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

impl Monitor {
    fn take(&mut self) -> Result<(), CliError> {
        self.sources.wait(LOOK, &[])?;
        let Monitor { sources, filter, encoder, left } = self;
        sources.drain(|seen| {
            if let Some(kept) = filter.kept(seen.frame) {
                encoder.frame(seen.port as u32, seen.time, kept, seen.frame.len() as u32, Some(seen.direction));
                *left -= 1;
            }
            Ok(*left > 0)
        })
    }
}
