//! *Captures* of a port's frames, which clients download while the captures are running. A *tap* ([`CaptureTap`]),
//! which another crate implements, captures the frames; this module enforces the limits.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::http::answer::{BodyParts, HttpAnswer, HttpStatus};
use crate::http::head::RequestHead;

/// Maximum number of simultaneous captures.
pub const MOST: usize = 4;
/// Maximum duration of a capture in seconds.
pub const MOST_SECONDS: u64 = 300;
/// Maximum number of frames in a capture.
pub const MOST_FRAMES: u64 = 1_000_000;
/// A capture ends once it has this many bytes; the last part may exceed the limit.
pub const MOST_BYTES: u64 = 64 << 20;

/// Content type of a pcapng file.
const PCAPNG: &str = "application/x-pcapng";

/// The direction of the frames to capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureDirection {
    /// Frames that the port sends into the switch.
    Sent,
    /// Frames that the port receives from the switch.
    Got,
    /// Both directions.
    Both,
}

/// Parameters of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebCapture {
    /// Full name of the port.
    pub port: String,
    /// Direction of the frames to capture.
    pub way: CaptureDirection,
    /// Maximum duration.
    pub time: Duration,
    /// Maximum number of frames.
    pub frames: u64,
    /// Maximum number of bytes that are kept of each frame; 0 for no limit.
    pub snaplen: u32,
}

/// The code that captures frames.
pub trait CaptureTap: Send + Sync {
    /// Begins a capture. Its parts form a pcapng file, which is valid even if it ends after any of the parts.
    ///
    /// # Errors
    /// The reason why the capture cannot begin.
    fn open(&self, capture: &WebCapture) -> Result<Box<dyn BodyParts>, String>;
}

/// The running captures.
pub struct WebCaptures {
    tap: Box<dyn CaptureTap>,
    open: Arc<AtomicUsize>,
}

impl WebCaptures {
    /// Creates an empty set of captures, for which `tap` will capture the frames.
    #[must_use]
    pub fn new(tap: Box<dyn CaptureTap>) -> WebCaptures {
        WebCaptures { tap, open: Arc::default() }
    }

    /// Begins a capture. Returns an answer whose parts are the parts of the capture.
    ///
    /// # Errors
    /// Too many captures run, or the port cannot be monitored.
    pub fn begin(&self, capture: &WebCapture) -> Result<HttpAnswer, (HttpStatus, String)> {
        let ticket = Ticket(Arc::clone(&self.open));
        if self.open.fetch_add(1, Ordering::AcqRel) >= MOST {
            return Err((HttpStatus::TooMany, format!("the maximum of {MOST} captures is running")));
        }
        let parts = self.tap.open(capture).map_err(|why| (HttpStatus::Unavailable, why))?;
        let end = Instant::now() + capture.time;
        Ok(HttpAnswer::in_parts(PCAPNG, Box::new(LimitedCapture { parts, end, left: MOST_BYTES, _ticket: ticket })))
    }
}

/// Counts as one running capture until it is dropped.
struct Ticket(Arc<AtomicUsize>);

impl Drop for Ticket {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The parts of a capture, up to its limits.
struct LimitedCapture {
    parts: Box<dyn BodyParts>,
    end: Instant,
    left: u64,
    _ticket: Ticket,
}

impl BodyParts for LimitedCapture {
    fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        if self.left == 0 || Instant::now() >= self.end {
            return Ok(None);
        }
        let next = self.parts.next()?;
        self.left = self.left.saturating_sub(next.as_ref().map_or(0, |bytes| bytes.len() as u64));
        Ok(next)
    }
}

impl WebCapture {
    /// Parses the parameters of a capture from a request.
    ///
    /// # Errors
    /// The text names the missing or invalid parameter.
    pub fn asked(head: &RequestHead) -> Result<WebCapture, &'static str> {
        let number = |name: &str, most: u64| match head.parameter(name).map(|text| text.parse()) {
            Some(Ok(number)) if number <= most => Some(number),
            _ => None,
        };
        let way = match head.parameter("way").as_deref() {
            Some("sent") => CaptureDirection::Sent,
            Some("got") => CaptureDirection::Got,
            Some("both") => CaptureDirection::Both,
            _ => return Err("way: expected sent, got or both"),
        };
        Ok(WebCapture {
            port: head.parameter("port").ok_or("port is missing")?,
            way,
            time: Duration::from_secs(number("seconds", MOST_SECONDS).ok_or("seconds: expected 0 to 300")?),
            frames: number("frames", MOST_FRAMES).ok_or("frames: expected 0 to 1000000")?,
            snaplen: number("snaplen", 65_535).ok_or("snaplen: expected 0 to 65535")? as u32,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An endless body whose parts have one mebibyte each.
    struct Much;

    impl BodyParts for Much {
        fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
            Ok(Some(vec![0; 1 << 20]))
        }
    }

    struct Taps;

    impl CaptureTap for Taps {
        fn open(&self, capture: &WebCapture) -> Result<Box<dyn BodyParts>, String> {
            if capture.port == "gone" { Err("it is gone".into()) } else { Ok(Box::new(Much)) }
        }
    }

    fn asked(query: &str) -> Result<WebCapture, &'static str> {
        let text = format!("GET /api/capture?{query} HTTP/1.1\r\n\r\n");
        WebCapture::asked(&RequestHead::parse(text.as_bytes()).expect("a request").expect("a whole one"))
    }

    fn parts(answer: HttpAnswer) -> Box<dyn BodyParts> {
        match answer.body {
            crate::http::answer::HttpBody::InParts(parts) => parts,
            crate::http::answer::HttpBody::Whole(text) => panic!("{text}"),
        }
    }

    /// Objective: requests are parsed, and values above their limits are refused.
    #[test]
    fn values_above_their_limits_are_refused() {
        let capture = asked("port=vale0%3Aa&way=both&seconds=10&frames=100&snaplen=0").expect("a capture");
        let wanted = WebCapture {
            port: "vale0:a".into(),
            way: CaptureDirection::Both,
            time: Duration::from_secs(10),
            frames: 100,
            snaplen: 0,
        };
        assert_eq!(capture, wanted);
        for wrong in [
            "way=both&seconds=10&frames=100&snaplen=0",
            "port=a&way=up&seconds=10&frames=100&snaplen=0",
            "port=a&way=both&seconds=301&frames=100&snaplen=0",
            "port=a&way=both&seconds=-1&frames=100&snaplen=0",
            "port=a&way=both&seconds=10&frames=1000001&snaplen=0",
            "port=a&way=both&seconds=10&frames=100&snaplen=x",
            "port=a&way=both&seconds=10&frames=100",
        ] {
            assert!(asked(wrong).is_err(), "{wrong}");
        }
    }

    /// Objective: captures end at their limits of size and time. The number of simultaneous captures is limited, and
    /// captures that have ended or failed do not count.
    #[test]
    fn captures_end_at_their_limits() {
        let captures = WebCaptures::new(Box::new(Taps));
        let mut capture = asked("port=a&way=sent&seconds=300&frames=1&snaplen=0").expect("a capture");
        let mut all: Vec<_> = (0..MOST).map(|_| parts(captures.begin(&capture).expect("begins"))).collect();
        assert_eq!(captures.begin(&capture).expect_err("too many").0, HttpStatus::TooMany);
        let mut first = all.pop().expect("a capture");
        let sent = std::iter::from_fn(|| first.next().expect("no failure")).map(|bytes| bytes.len() as u64);
        assert_eq!(sent.sum::<u64>(), MOST_BYTES);
        drop(first);
        capture.time = Duration::ZERO;
        assert_eq!(parts(captures.begin(&capture).expect("begins")).next().expect("no failure"), None);
        capture.port = "gone".into();
        for _ in 0..2 * MOST {
            assert_eq!(captures.begin(&capture).expect_err("gone"), (HttpStatus::Unavailable, "it is gone".to_owned()));
        }
    }
}
