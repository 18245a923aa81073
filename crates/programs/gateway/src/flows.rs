//! The flow log: a line of JSON for each flow that is opened, refused or closed, with the flow's ends (addresses and
//! ports) and, if it is closed, the number of bytes that it carried.
//!
//! Lines that cannot be written yet wait in bounded memory ([`FlowLog`]). Further lines are dropped, and a separate
//! line reports their number. Only a limited number of refusals per second is recorded, since guests can cause any
//! number of refusals.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use rustix::event::{PollFd, PollFlags, Timespec};
use serde::Serialize;

use crate::guests::GuestId;
use crate::policy::FlowTransport;
use crate::ports::PortNames;

/// Maximum total length of the lines that wait to be written, in bytes.
const MAX_WAITING: usize = 1 << 20;
/// Maximum number of bytes per write. A pipe that reports room takes this many bytes without blocking (pipe(7),
/// `PIPE_BUF`).
const WRITE: usize = 4096;
/// Maximum number of refusals that are recorded per second.
const REFUSALS: u32 = 1000;

/// The words with which the flow log states why a flow was refused or could not be opened.
pub const REASONS: [&str; 13] = [
    "policy",
    "name",
    "host-address",
    "inside",
    "limit",
    "rate",
    "descriptors",
    "no-guest",
    "refused",
    "unreachable",
    "timeout",
    "host-policy",
    "failed",
];

/// The side that began a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FlowDirection {
    /// A guest began the flow.
    Out,
    /// A client at the host's side began the flow, through a published port or the dial socket.
    In,
}

/// The endpoints of a flow, by which the log identifies the flow.
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

/// A flow that is open, or has just ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenFlow {
    /// The endpoints.
    pub ends: FlowEnds,
    /// The DNS name that the guest resolved to the other end's address; `None` if the guest resolved no name to it.
    pub name: Option<Arc<str>>,
    /// The payload that the flow has carried so far.
    pub bytes: FlowBytes,
    /// Time at which the flow began.
    pub began: Instant,
    /// Total time for which the flow had to wait because of the guest's rate limit.
    pub waited: Duration,
    /// Number of the flow's datagrams that were dropped because of the guest's limits.
    pub dropped: u64,
}

impl OpenFlow {
    /// Returns the flow's fields as in the log, with the payload and the duration so far; the field `time` is the time
    /// at which the flow began.
    pub fn to_json(&self, ports: &PortNames, now: Instant) -> serde_json::Value {
        let line = FlowLine::of_open(self, ports, now);
        let began = wall_clock() - line.end.as_ref().map_or(0.0, |end| end.seconds);
        serde_json::json!(FlowLine { time: (began * 1000.0).round() / 1000.0, ..line })
    }
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
    name: Option<&'a str>,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    waited: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dropped: Option<u64>,
}

impl<'a> FlowLine<'a> {
    fn new(event: &'a str, ends: &FlowEnds, ports: &PortNames, name: Option<&'a str>) -> Self {
        FlowLine {
            time: 0.0,
            event,
            transport: ends.transport,
            direction: ends.direction,
            port: ports.word(ends.who),
            guest: ends.guest,
            remote: ends.remote,
            name,
            reason: None,
            end: None,
        }
    }

    fn of_open(flow: &'a OpenFlow, ports: &PortNames, now: Instant) -> Self {
        let seconds = now.saturating_duration_since(flow.began).as_secs_f64();
        let OpenFlow { bytes: FlowBytes { sent, received }, waited, dropped, .. } = *flow;
        let end = FlowTotals {
            sent,
            received,
            seconds,
            waited: Some(waited.as_secs_f64()).filter(|_| !waited.is_zero()),
            dropped: Some(dropped).filter(|dropped| *dropped > 0),
        };
        FlowLine { end: Some(end), ..FlowLine::new("open", &flow.ends, ports, flow.name.as_deref()) }
    }
}

/// The flow log: its file, if there is one, and the lines that wait to be written.
#[derive(Debug)]
pub struct FlowLog {
    out: Option<File>,
    waiting: Vec<u8>,
    /// Whether lines are also kept in `news`, for the clients of the control socket that follow the log.
    followed: bool,
    news: Vec<u8>,
    lost: u64,
    second: Option<Instant>,
    refusals: u32,
    counts: LoggedFlowCounts,
    reasons: BTreeMap<&'static str, u64>,
    /// The names of private ports.
    pub ports: PortNames,
}

/// Numbers of flows, and the payload of closed flows in bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct LoggedFlowCounts {
    /// Number of flows that were opened.
    pub opened: u64,
    /// Number of flows that were refused or could not be opened.
    pub refused: u64,
    /// Number of flows that were closed.
    pub closed: u64,
    /// Number of bytes of payload from guests in closed flows.
    pub sent: u64,
    /// Number of bytes of payload to guests in closed flows.
    pub received: u64,
}

impl FlowLog {
    /// Opens a log that appends to the file at `path`; the path `-` means standard output.
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
        FlowLog {
            out: None,
            waiting: Vec::new(),
            followed: false,
            news: Vec::new(),
            lost: 0,
            second: None,
            refusals: 0,
            counts: LoggedFlowCounts::default(),
            reasons: BTreeMap::new(),
            ports: PortNames::default(),
        }
    }

    /// Records that a flow has begun. `name` is the DNS name that the guest resolved to the other end's address.
    pub fn opened(&mut self, ends: &FlowEnds, name: Option<&str>) {
        self.counts.opened += 1;
        self.line(FlowLine::new("opened", ends, &self.ports, name));
    }

    /// Records that a flow was refused or could not be opened. `reason` is one of [`REASONS`].
    pub fn refused(&mut self, ends: &FlowEnds, name: Option<&str>, reason: &'static str, now: Instant) {
        debug_assert!(REASONS.contains(&reason), "{reason}");
        self.counts.refused += 1;
        *self.reasons.entry(reason).or_default() += 1;
        let begins = self.second.is_none_or(|second| now.saturating_duration_since(second) >= Duration::from_secs(1));
        if begins {
            self.second = Some(now);
            self.refusals = 0;
        }
        self.refusals += 1;
        if self.refusals > REFUSALS {
            self.lost += u64::from(self.is_read());
        } else {
            self.line(FlowLine { reason: Some(reason), ..FlowLine::new("refused", ends, &self.ports, name) });
        }
    }

    /// Records that a flow has ended, with its byte counts and its duration.
    pub fn closed(&mut self, flow: &OpenFlow, reason: &str, now: Instant) {
        self.counts.closed += 1;
        self.counts.sent += flow.bytes.sent;
        self.counts.received += flow.bytes.received;
        self.line(FlowLine { event: "closed", reason: Some(reason), ..FlowLine::of_open(flow, &self.ports, now) });
    }

    /// Returns whether lines are written to a file or kept for clients that follow the log.
    fn is_read(&self) -> bool {
        self.out.is_some() || self.followed
    }

    fn line(&mut self, line: FlowLine<'_>) {
        if !self.is_read() {
            return;
        }
        let full = |lines: &[u8]| lines.len() >= MAX_WAITING;
        if full(&self.waiting) || full(&self.news) {
            self.lost += 1;
            return;
        }
        let line = FlowLine { time: wall_clock(), ..line };
        // Serializing a line cannot fail.
        let Ok(mut bytes) = serde_json::to_vec(&line) else { return };
        bytes.push(b'\n');
        if self.out.is_some() {
            self.waiting.extend_from_slice(&bytes);
        }
        if self.followed {
            self.news.extend_from_slice(&bytes);
        }
    }

    /// Sets whether lines are also kept for [`FlowLog::news`].
    pub fn follow(&mut self, followed: bool) {
        self.followed = followed;
        if !followed {
            self.news = Vec::new();
        }
    }

    /// Returns the lines since the last call; empty unless the log is followed.
    pub fn news(&mut self) -> Vec<u8> {
        self.report_lost();
        std::mem::take(&mut self.news)
    }

    /// Returns how many flows were opened, refused and closed, and the payload of closed flows.
    pub fn counts(&self) -> LoggedFlowCounts {
        self.counts
    }

    /// Returns how many flows were refused for each reason.
    pub fn reasons(&self) -> &BTreeMap<&'static str, u64> {
        &self.reasons
    }

    fn report_lost(&mut self) {
        if self.lost == 0 || self.waiting.len() >= MAX_WAITING {
            return;
        }
        let line = lost_line(self.lost);
        self.lost = 0;
        if self.out.is_some() {
            self.waiting.extend_from_slice(&line);
        }
        if self.followed {
            self.news.extend_from_slice(&line);
        }
    }

    /// Writes the waiting lines, as far as possible without blocking.
    pub fn flush(&mut self) {
        self.report_lost();
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

/// Returns the line that reports a number of lost lines.
pub fn lost_line(lines: u64) -> Vec<u8> {
    let line = serde_json::json!({"time": wall_clock(), "event": "lost", "lines": lines});
    format!("{line}\n").into_bytes()
}

/// Returns the seconds since 1970, with milliseconds as the fraction.
fn wall_clock() -> f64 {
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
        log.opened(&ends(), Some("example.com"));
        log.refused(&ends(), None, "policy", Instant::now());
        let began = Instant::now();
        let waited = Duration::from_millis(250);
        let flow =
            OpenFlow { ends: ends(), name: None, bytes: FlowBytes { sent: 1, received: 2 }, began, waited, dropped: 0 };
        log.closed(&flow, "end", began + Duration::from_millis(1500));
        log.flush();
        let lines = lines(&std::fs::read_to_string(&path).unwrap());
        let events: Vec<_> = lines.iter().map(|line| line["event"].as_str().unwrap()).collect();
        assert_eq!(events, ["opened", "refused", "closed"]);
        assert_eq!(lines[0]["port"], "02:00:00:00:00:09");
        assert_eq!((&lines[1]["reason"], &lines[1]["remote"]), (&"policy".into(), &"192.0.2.1:443".into()));
        assert_eq!((&lines[2]["received"], &lines[2]["seconds"]), (&2.into(), &1.5.into()));
        assert_eq!((&lines[2]["waited"], lines[2].get("dropped")), (&0.25.into(), None));
        assert!(lines[1].get("sent").is_none());
        assert_eq!((&lines[0]["name"], lines[1].get("name")), (&"example.com".into(), None));
        assert_eq!(log.reasons(), &BTreeMap::from([("policy", 1)]));
        assert_eq!(log.counts(), LoggedFlowCounts { opened: 1, refused: 1, closed: 1, sent: 1, received: 2 });
    }

    #[test]
    fn who_follows_gets_what_is_new_without_a_file() {
        let mut log = FlowLog::none();
        log.opened(&ends(), None);
        log.follow(true);
        assert!(log.news().is_empty());
        log.opened(&ends(), Some("example.com"));
        let news = lines(&String::from_utf8(log.news()).unwrap());
        assert_eq!((news.len(), &news[0]["name"]), (1, &"example.com".into()));
        assert!(log.news().is_empty() && log.waiting.is_empty());
        log.follow(false);
        log.opened(&ends(), None);
        assert!(log.news().is_empty());
    }

    #[test]
    fn an_open_flow_is_shown_with_what_it_has_carried() {
        let began = Instant::now();
        let bytes = FlowBytes { sent: 1, received: 2 };
        let waited = Duration::ZERO;
        let flow = OpenFlow { ends: ends(), name: Some("example.com".into()), bytes, began, waited, dropped: 3 };
        let shown = flow.to_json(&PortNames::default(), began + Duration::from_secs(3));
        assert_eq!((&shown["event"], &shown["name"]), (&"open".into(), &"example.com".into()));
        assert_eq!((&shown["received"], &shown["seconds"]), (&2.into(), &3.0.into()));
        assert_eq!((&shown["dropped"], shown.get("waited")), (&3.into(), None));
        assert!((wall_clock() - shown["time"].as_f64().unwrap() - 3.0).abs() < 1.0);
    }

    /// Objective: a reader that stops reading does not block the log, and a line reports how many lines were lost.
    #[test]
    fn a_reader_that_stops_stops_nothing() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let mut log = FlowLog { out: Some(File::from(std::os::fd::OwnedFd::from(writer))), ..FlowLog::none() };
        for _ in 0..10_000 {
            log.opened(&ends(), Some("example.com"));
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
        (0..REFUSALS + 5).for_each(|_| log.refused(&ends(), None, "policy", begin));
        assert_eq!(log.lost, 5);
        log.refused(&ends(), None, "policy", begin + Duration::from_secs(1));
        assert_eq!(log.lost, 5);
    }
}
