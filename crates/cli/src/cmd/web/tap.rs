//! Captures for the page: monitors of ports, as `netvale dump` opens them.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use netvale::{Interest, Options, Port};
use netvale_observe::http::answer::Parts;
use netvale_observe::web::capture::{Capture, Tap, Way};
use netvale_pcapport::{Format, WriteError, Writer};

/// Longest wait for frames: the client may have gone meanwhile.
const LOOK: Duration = Duration::from_millis(100);

/// Opens monitors of a daemon's ports.
pub struct PortTap {
    /// The daemon's run directory.
    pub run_dir: Option<PathBuf>,
}

impl Tap for PortTap {
    fn open(&self, capture: &Capture) -> Result<Box<dyn Parts>, String> {
        let flags = match capture.way {
            Way::Sent => "t",
            Way::Got => "r",
            Way::Both => "rt",
        };
        let options = Options { run_dir: self.run_dir.clone(), ..Options::default() };
        let port = Port::open_with(&format!("{}/{flags}", capture.port), &options).map_err(|e| e.to_string())?;
        let written = Written::default();
        let to: Box<dyn Write> = Box::new(written.clone());
        let mut writer = Writer::new(to, Format::PcapNg).map_err(|e| e.to_string())?;
        // The file begins immediately, so that the client sees that something comes.
        writer.flush().map_err(|e| e.to_string())?;
        let (left, snaplen) = (capture.frames, capture.snaplen);
        Ok(Box::new(Monitor { port, writer, written, left, snaplen, frame: vec![0; 65_550] }))
    }
}

/// A capture under way.
struct Monitor {
    port: Port,
    writer: Writer<Box<dyn Write>>,
    written: Written,
    /// Frames that may still come.
    left: u64,
    snaplen: u32,
    frame: Vec<u8>,
}

impl Parts for Monitor {
    fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        let begun = self.written.take();
        if !begun.is_empty() {
            return Ok(Some(begun));
        }
        if self.left == 0 {
            return Ok(None);
        }
        self.port.wait(Interest::Rx, Some(LOOK)).map_err(io::Error::other)?;
        self.drain().map_err(io::Error::other)?;
        Ok(Some(self.written.take()))
    }
}

impl Monitor {
    fn drain(&mut self) -> Result<(), WriteError> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        for ring in self.port.rx() {
            while self.left > 0
                && let Some(len) = ring.recv(&mut self.frame)
            {
                let keep = if self.snaplen == 0 { len } else { len.min(self.snaplen as usize) };
                self.writer.write_cut(now, &self.frame[..keep], len as u32)?;
                self.left -= 1;
            }
            let _ = ring.sync();
        }
        self.writer.flush()
    }
}

/// What the writer has written, until it is sent.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Written {
    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
