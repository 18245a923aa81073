//! The flow log: a line of JSON for each flow that is opened, refused or closed, with the flow's ends (addresses and
//! ports) and, at its close, the bytes carried.
//!
//! Lines wait in bounded memory while they cannot be written ([`FlowLog`]). Lines beyond that are dropped, and a line
//! of its own reports their number. Recorded refusals are limited to a number per second, since guests can cause any
//! number of them.

use std::fs::File;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use rustix::event::{PollFd, PollFlags, Timespec};
use serde::Serialize;

use crate::guests::GuestId;
use crate::policy::FlowTransport;
use crate::ports::PortNames;

/// Maximum number of bytes of lines that wait to be written.
const MAX_WAITING: usize = 1 << 20;
/// Number of bytes of one write: as many as a pipe takes without blocking whenever it reports room (pipe(7),
/// `PIPE_BUF`).
const WRITE: usize = 4096;
/// Maximum number of refusals recorded per second.
const REFUSALS: u32 = 1000;

/// The side that began a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FlowDirection {
    /// A guest.
    Out,
    /// A client of a published port.
    In,
}

/// The endpoints of a flow, which identify it in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowEnds {
    /// The transport protocol.
    pub transport: FlowTransport,
    /// The side that began the flow.
    pub direction: FlowDirection,
    /// The guest.
    pub who: GuestId,
    /// The guest's address and port.
    pub guest: SocketAddr,
    /// The other end's address and port, as the guest sees them.
    pub remote: SocketAddr,
}

/// The payload that a flow has carried, in bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct FlowBytes {
    /// Number of bytes of payload from the guest.
    pub sent: u64,
    /// Number of bytes of payload to the guest.
    pub received: u64,
}

#[derive(Serialize)]
struct FlowLine<'a> {
    time: f64,
    event: &'a str,
    transport: FlowTransport,
    direction: FlowDirection,
    port: String,
    guest: SocketAddr,
    remote: SocketAddr,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    end: Option<FlowTotals>,
}

#[derive(Serialize)]
struct FlowTotals {
    sent: u64,
    received: u64,
    seconds: f64,
}

/// The flow log: its file, if there is one, and the lines that wait to be written.
#[derive(Debug)]
pub struct FlowLog {
    out: Option<File>,
    waiting: Vec<u8>,
    lost: u64,
    second: Option<Instant>,
    refusals: u32,
    /// The names of private ports.
    pub ports: PortNames,
}

impl FlowLog {
    /// Opens a log that appends to a file; `-` is standard output.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        let out = if path == Path::new("-") {
            File::from(io::stdout().as_fd().try_clone_to_owned()?)
        } else {
            File::options().create(true).append(true).open(path)?
        };
        Ok(FlowLog { out: Some(out), ..FlowLog::none() })
    }

    /// Creates a log that records nothing.
    pub fn none() -> Self {
        FlowLog { out: None, waiting: Vec::new(), lost: 0, second: None, refusals: 0, ports: PortNames::default() }
    }

    /// Records that a flow has begun.
    pub fn opened(&mut self, ends: &FlowEnds) {
        self.line("opened", ends, None, None);
    }

    /// Records that a flow was refused or could not be opened.
    pub fn refused(&mut self, ends: &FlowEnds, reason: &str, now: Instant) {
        let begins = self.second.is_none_or(|second| now.saturating_duration_since(second) >= Duration::from_secs(1));
        if begins {
            self.second = Some(now);
            self.refusals = 0;
        }
        self.refusals += 1;
        if self.refusals > REFUSALS {
            self.lost += u64::from(self.out.is_some());
        } else {
            self.line("refused", ends, Some(reason), None);
        }
    }

    /// Records that a flow has ended, with its byte counts and its duration.
    pub fn closed(&mut self, ends: &FlowEnds, reason: &str, counts: FlowBytes, lived: Duration) {
        let seconds = lived.as_secs_f64();
        let end = FlowTotals { sent: counts.sent, received: counts.received, seconds };
        self.line("closed", ends, Some(reason), Some(end));
    }

    fn line(&mut self, event: &str, ends: &FlowEnds, reason: Option<&str>, end: Option<FlowTotals>) {
        if self.out.is_none() {
            return;
        }
        if self.waiting.len() >= MAX_WAITING {
            self.lost += 1;
            return;
        }
        let line = FlowLine {
            time: now(),
            event,
            transport: ends.transport,
            direction: ends.direction,
            port: self.ports.word(ends.who),
            guest: ends.guest,
            remote: ends.remote,
            reason,
            end,
        };
        // Serializing a line into memory cannot fail.
        let _ = serde_json::to_writer(&mut self.waiting, &line);
        self.waiting.push(b'\n');
    }

    /// Writes the waiting lines, as far as possible without blocking.
    pub fn flush(&mut self) {
        if self.lost > 0 && self.waiting.len() < MAX_WAITING {
            let line = serde_json::json!({"time": now(), "event": "lost", "lines": self.lost});
            self.lost = 0;
            self.waiting.extend_from_slice(line.to_string().as_bytes());
            self.waiting.push(b'\n');
        }
        let Some(out) = &mut self.out else { return };
        let mut written = 0;
        while written < self.waiting.len() && takes(out) {
            let part = &self.waiting[written..self.waiting.len().min(written + WRITE)];
            match out.write(part) {
                Ok(0) => break,
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    tracing::warn!("cannot write the flow log: {error}; later flows are not recorded");
                    self.out = None;
                    break;
                }
            }
        }
        self.waiting.drain(..written);
    }
}

fn takes(out: &File) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(out.as_fd(), PollFlags::OUT)];
    let immediately = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut fds, Some(&immediately)).is_ok_and(|ready| ready > 0)
}

fn now() -> f64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    (now.as_secs_f64() * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guests::NetworkId;
    use netvale_wire::MacAddr;
    use serde_json::Value;
    use std::io::Read;

    fn ends() -> FlowEnds {
        FlowEnds {
            transport: FlowTransport::Tcp,
            direction: FlowDirection::Out,
            who: NetworkId::UNTAGGED.station(MacAddr([2, 0, 0, 0, 0, 9])),
            guest: "10.0.0.9:4000".parse().unwrap(),
            remote: "192.0.2.1:443".parse().unwrap(),
        }
    }

    fn lines(text: &str) -> Vec<Value> {
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    #[test]
    fn each_event_is_a_line_with_what_it_is_about() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("flows");
        let mut log = FlowLog::open(&path).unwrap();
        log.opened(&ends());
        log.refused(&ends(), "policy", Instant::now());
        log.closed(&ends(), "end", FlowBytes { sent: 1, received: 2 }, Duration::from_millis(1500));
        log.flush();
        let lines = lines(&std::fs::read_to_string(&path).unwrap());
        let events: Vec<_> = lines.iter().map(|line| line["event"].as_str().unwrap()).collect();
        assert_eq!(events, ["opened", "refused", "closed"]);
        assert_eq!(lines[0]["port"], "02:00:00:00:00:09");
        assert_eq!((&lines[1]["reason"], &lines[1]["remote"]), (&"policy".into(), &"192.0.2.1:443".into()));
        assert_eq!((&lines[2]["received"], &lines[2]["seconds"]), (&2.into(), &1.5.into()));
        assert!(lines[1].get("sent").is_none());
    }

    /// Objective: a reader that stops reading does not block the log, and a line reports how many lines were lost.
    #[test]
    fn a_reader_that_stops_stops_nothing() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let mut log = FlowLog { out: Some(File::from(std::os::fd::OwnedFd::from(writer))), ..FlowLog::none() };
        for _ in 0..10_000 {
            log.opened(&ends());
            log.flush();
        }
        assert!(log.waiting.len() <= MAX_WAITING + 1024);
        let reading = std::thread::spawn(move || {
            let mut text = String::new();
            reader.read_to_string(&mut text).map(|_| text)
        });
        while !log.waiting.is_empty() || log.lost > 0 {
            log.flush();
        }
        drop(log);
        let lines = lines(&reading.join().unwrap().unwrap());
        let opened = lines.iter().filter(|line| line["event"] == "opened").count() as u64;
        let lost: u64 = lines.iter().filter_map(|line| line["lines"].as_u64()).sum();
        assert_eq!(opened + lost, 10_000);
        assert!(lost > 0);
    }

    #[test]
    fn refusals_are_limited_and_counted() {
        let mut log = FlowLog { out: Some(File::options().write(true).open("/dev/null").unwrap()), ..FlowLog::none() };
        let begin = Instant::now();
        (0..REFUSALS + 5).for_each(|_| log.refused(&ends(), "policy", begin));
        assert_eq!(log.lost, 5);
        log.refused(&ends(), "policy", begin + Duration::from_secs(1));
        assert_eq!(log.lost, 5);
    }
}
