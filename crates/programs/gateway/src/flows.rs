//! The record of flows: a line of JSON, with a flow's ends and bytes, for each that is opened, refused or closed.
//!
//! A line that cannot be written now waits in bounded memory; beyond that it is counted, and the count is a line of its
//! own ([`FlowLog`]). Refusals are limited to a number a second, since guests cause as many as they like.

use std::fs::File;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use netvale_wire::MacAddr;
use rustix::event::{PollFd, PollFlags, Timespec};
use serde::Serialize;

use crate::policy::FlowTransport;

/// Bytes that wait for a reader at most.
const MAX_WAITING: usize = 1 << 20;
/// Bytes that a pipe takes without blocking whenever it reports room (pipe(7), `PIPE_BUF`).
const WRITE: usize = 4096;
/// Refusals recorded in a second.
const REFUSALS: u32 = 1000;

/// Who began a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FlowDirection {
    /// A guest.
    Out,
    /// A client of a published port.
    In,
}

/// The ends of a flow: a [`FlowEnds`] is what all lines about it have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowEnds {
    /// The transport.
    pub transport: FlowTransport,
    /// Who began it.
    pub direction: FlowDirection,
    /// The guest's station.
    pub mac: MacAddr,
    /// The guest's address and port.
    pub guest: SocketAddr,
    /// The other end, as the guest sees it.
    pub remote: SocketAddr,
}

/// What a flow has carried.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct FlowBytes {
    /// Bytes of payload from the guest.
    pub sent: u64,
    /// Bytes of payload to the guest.
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

/// Where the lines go.
#[derive(Debug)]
pub struct FlowLog {
    out: Option<File>,
    waiting: Vec<u8>,
    lost: u64,
    second: Option<Instant>,
    refusals: u32,
}

impl FlowLog {
    /// Appends to a file; `-` is standard output.
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

    /// Records nothing.
    pub fn none() -> Self {
        FlowLog { out: None, waiting: Vec::new(), lost: 0, second: None, refusals: 0 }
    }

    /// A flow has begun.
    pub fn opened(&mut self, ends: &FlowEnds) {
        self.line("opened", ends, None, None);
    }

    /// A flow was not allowed to begin, or could not.
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

    /// A flow has ended.
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
            port: ends.mac.to_string(),
            guest: ends.guest,
            remote: ends.remote,
            reason,
            end,
        };
        // Writing to memory fails for no line.
        let _ = serde_json::to_writer(&mut self.waiting, &line);
        self.waiting.push(b'\n');
    }

    /// Writes what waits, as far as it can be written without blocking.
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
                    tracing::warn!("flows are no longer recorded: {error}");
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
    use serde_json::Value;
    use std::io::Read;

    fn ends() -> FlowEnds {
        FlowEnds {
            transport: FlowTransport::Tcp,
            direction: FlowDirection::Out,
            mac: MacAddr([2, 0, 0, 0, 0, 9]),
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

    /// Objective: who does not read stops nothing, and what is lost is counted and said.
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
