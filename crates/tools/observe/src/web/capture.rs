//! *Captures*, downloaded while they are taken. A *tap*, implemented elsewhere, takes them; this module enforces
//! limits.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::http::answer::{Answer, Parts, Status};
use crate::http::head::Head;

/// Maximum number of captures at a time.
pub const MOST: usize = 4;
/// Maximum duration of a capture in seconds.
pub const MOST_SECONDS: u64 = 300;
/// Maximum frames of a capture.
pub const MOST_FRAMES: u64 = 1_000_000;
/// Maximum bytes of a capture, apart from the part that exceeds it.
pub const MOST_BYTES: u64 = 64 << 20;

/// Type of a pcapng file.
const PCAPNG: &str = "application/x-pcapng";

/// Direction of captured frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Frames that the port sends.
    Sent,
    /// Frames that the port receives.
    Got,
    /// Both.
    Both,
}

/// Parameters of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture {
    /// Full name of the port.
    pub port: String,
    /// Direction of its frames.
    pub way: Way,
    /// Maximum duration.
    pub time: Duration,
    /// Maximum number of frames.
    pub frames: u64,
    /// Maximum bytes of each frame; 0: all.
    pub snaplen: u32,
}

/// Opens captures.
pub trait Tap: Send + Sync {
    /// Begins a capture; each part is a piece of a pcapng file after which the file may end.
    ///
    /// # Errors
    /// The reason for a failure.
    fn open(&self, capture: &Capture) -> Result<Box<dyn Parts>, String>;
}

/// The running captures.
pub struct Captures {
    tap: Box<dyn Tap>,
    open: Arc<AtomicUsize>,
}

impl Captures {
    /// An empty set; `tap` opens captures.
    #[must_use]
    pub fn new(tap: Box<dyn Tap>) -> Captures {
        Captures { tap, open: Arc::default() }
    }

    /// Begins a capture that is sent while it is taken.
    ///
    /// # Errors
    /// Too many captures run, or the port cannot be monitored.
    pub fn begin(&self, capture: &Capture) -> Result<Answer, (Status, String)> {
        let ticket = Ticket(Arc::clone(&self.open));
        if self.open.fetch_add(1, Ordering::AcqRel) >= MOST {
            return Err((Status::TooMany, format!("there are {MOST} captures already")));
        }
        let parts = self.tap.open(capture).map_err(|why| (Status::Unavailable, why))?;
        let end = Instant::now() + capture.time;
        Ok(Answer::in_parts(PCAPNG, Box::new(Limited { parts, end, left: MOST_BYTES, _ticket: ticket })))
    }
}

/// Counts one running capture until it ends.
struct Ticket(Arc<AtomicUsize>);

impl Drop for Ticket {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Parts of a capture, up to its limits.
struct Limited {
    parts: Box<dyn Parts>,
    end: Instant,
    left: u64,
    _ticket: Ticket,
}

impl Parts for Limited {
    fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        if self.left == 0 || Instant::now() >= self.end {
            return Ok(None);
        }
        let next = self.parts.next()?;
        self.left = self.left.saturating_sub(next.as_ref().map_or(0, |bytes| bytes.len() as u64));
        Ok(next)
    }
}

impl Capture {
    /// Parses the capture that a request describes.
    ///
    /// # Errors
    /// The invalid parameter.
    pub fn asked(head: &Head) -> Result<Capture, &'static str> {
        let number = |name: &str, most: u64| match head.parameter(name).map(|text| text.parse()) {
            Some(Ok(number)) if number <= most => Some(number),
            _ => None,
        };
        let way = match head.parameter("way").as_deref() {
            Some("sent") => Way::Sent,
            Some("got") => Way::Got,
            Some("both") => Way::Both,
            _ => return Err("way is sent, got or both"),
        };
        Ok(Capture {
            port: head.parameter("port").ok_or("port is missing")?,
            way,
            time: Duration::from_secs(number("seconds", MOST_SECONDS).ok_or("seconds are 0 to 300")?),
            frames: number("frames", MOST_FRAMES).ok_or("frames are 0 to 1000000")?,
            snaplen: number("snaplen", 65_535).ok_or("snaplen is 0 to 65535")? as u32,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An endless body with parts of a mebibyte.
    struct Much;

    impl Parts for Much {
        fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
            Ok(Some(vec![0; 1 << 20]))
        }
    }

    struct Taps;

    impl Tap for Taps {
        fn open(&self, capture: &Capture) -> Result<Box<dyn Parts>, String> {
            if capture.port == "gone" { Err("it is gone".into()) } else { Ok(Box::new(Much)) }
        }
    }

    fn asked(query: &str) -> Result<Capture, &'static str> {
        let text = format!("GET /api/capture?{query} HTTP/1.1\r\n\r\n");
        Capture::asked(&Head::parse(text.as_bytes()).expect("a request").expect("a whole one"))
    }

    fn parts(answer: Answer) -> Box<dyn Parts> {
        match answer.body {
            crate::http::answer::Body::InParts(parts) => parts,
            crate::http::answer::Body::Whole(text) => panic!("{text}"),
        }
    }

    /// Objective: requests are parsed, and values above their limits are refused.
    #[test]
    fn requests() {
        let capture = asked("port=vale0%3Aa&way=both&seconds=10&frames=100&snaplen=0").expect("a capture");
        let wanted =
            Capture { port: "vale0:a".into(), way: Way::Both, time: Duration::from_secs(10), frames: 100, snaplen: 0 };
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

    /// Objective: captures end at their size and time limits, and their number at a time is limited, however they
    /// ended.
    #[test]
    fn limits() {
        let captures = Captures::new(Box::new(Taps));
        let mut capture = asked("port=a&way=sent&seconds=300&frames=1&snaplen=0").expect("a capture");
        let mut all: Vec<_> = (0..MOST).map(|_| parts(captures.begin(&capture).expect("begins"))).collect();
        assert_eq!(captures.begin(&capture).expect_err("too many").0, Status::TooMany);
        let mut first = all.pop().expect("a capture");
        let sent = std::iter::from_fn(|| first.next().expect("no failure")).map(|bytes| bytes.len() as u64);
        assert_eq!(sent.sum::<u64>(), MOST_BYTES);
        drop(first);
        capture.time = Duration::ZERO;
        assert_eq!(parts(captures.begin(&capture).expect("begins")).next().expect("no failure"), None);
        capture.port = "gone".into();
        for _ in 0..2 * MOST {
            assert_eq!(captures.begin(&capture).expect_err("gone"), (Status::Unavailable, "it is gone".to_owned()));
        }
    }
}
