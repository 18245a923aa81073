//! Log output to systemd's journal (systemd.journal-fields(7)). Each line has the same text as on standard error, with
//! separate fields for journalctl: `journalctl PORT=vale0:a`, `SWITCH=vale0`.

use std::fmt::{Debug, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;

use netvale_portspec::SwitchName;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

const SOCKET: &str = "/run/systemd/journal/socket";
/// Maximum length of a value in bytes, so that all values of a line fit in a datagram.
const LONGEST: usize = 8 << 10;

/// A layer of the log's subscriber that writes events to the journal.
pub struct Journal(UnixDatagram);

impl Journal {
    /// Returns the journal if standard error is connected to the journal, which means that the log is meant for it;
    /// otherwise, `None`.
    pub fn behind_stderr() -> Option<Journal> {
        let stream = std::env::var("JOURNAL_STREAM").ok()?;
        if !leads_to(std::io::stderr(), &stream) {
            return None;
        }
        // The connection is made now, because the sandbox does not permit it later.
        let socket = UnixDatagram::unbound().ok()?;
        socket.connect(SOCKET).ok()?;
        Some(Journal(socket))
    }
}

/// Whether a descriptor is the stream that `stream` names in systemd's notation `DEVICE:INODE`.
fn leads_to(fd: impl AsFd, stream: &str) -> bool {
    rustix::fs::fstat(fd).is_ok_and(|file| stream == format!("{}:{}", file.st_dev, file.st_ino))
}

impl<S: Subscriber> Layer<S> for Journal {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut line = JournalLine::default();
        event.record(&mut line);
        // There is nowhere to report a failure.
        let _ = self.0.send(&line.entry(*event.metadata().level()));
    }
}

/// The parts of an event's journal entry.
#[derive(Default)]
struct JournalLine {
    message: String,
    /// The fields, formatted as on standard error, which follow the message.
    rest: String,
    fields: Vec<(String, String)>,
}

impl JournalLine {
    fn add(&mut self, name: &str, value: String) {
        if let ("port" | "at", Some(switch)) = (name, SwitchName::of_port(&value)) {
            self.fields.push(("SWITCH".to_owned(), switch.to_owned()));
            if name == "at" {
                self.fields.push(("PORT".into(), value.clone()));
            }
        }
        self.fields.push((name.to_uppercase(), value));
    }

    /// Returns the entry in the journal's native format: name, length of the value, value.
    fn entry(self, level: Level) -> Vec<u8> {
        let priority = match level {
            Level::ERROR => "3",
            Level::WARN => "4",
            Level::INFO => "6",
            Level::DEBUG | Level::TRACE => "7",
        };
        let message = self.message + &self.rest;
        let own = [("MESSAGE", message.as_str()), ("PRIORITY", priority), ("SYSLOG_IDENTIFIER", "netvale")];
        let fields = self.fields.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let mut entry = Vec::new();
        for (name, value) in own.into_iter().chain(fields) {
            let value = value.as_bytes().get(..LONGEST).unwrap_or(value.as_bytes());
            entry.extend_from_slice(name.as_bytes());
            entry.push(b'\n');
            entry.extend_from_slice(&(value.len() as u64).to_le_bytes());
            entry.extend_from_slice(value);
            entry.push(b'\n');
        }
        entry
    }
}

impl Visit for JournalLine {
    fn record_str(&mut self, field: &Field, value: &str) {
        // Writing to a string cannot fail.
        let _ = write!(self.rest, " {}={value:?}", field.name());
        self.add(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let value = format!("{value:?}");
        if field.name() == "message" {
            self.message = value;
            return;
        }
        let _ = write!(self.rest, " {}={value}", field.name());
        self.add(field.name(), value);
    }
}

#[cfg(test)]
mod tests {
    use std::os::linux::fs::MetadataExt;

    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    /// Parses the fields of an entry.
    fn parse(mut entry: &[u8]) -> Vec<(String, String)> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let mut fields = Vec::new();
        while !entry.is_empty() {
            let end = entry.iter().position(|b| *b == b'\n').unwrap();
            let name = text(&entry[..end]);
            let rest = &entry[end + 1..];
            let length = u64::from_le_bytes(rest[..8].try_into().unwrap()) as usize;
            fields.push((name, text(&rest[8..8 + length])));
            assert_eq!(rest[8 + length], b'\n');
            entry = &rest[9 + length..];
        }
        fields
    }

    fn written(write: impl FnOnce()) -> Vec<(String, String)> {
        let (journal, reader) = UnixDatagram::pair().unwrap();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(Journal(journal)), write);
        let mut bytes = [0; 64 << 10];
        let n = reader.recv(&mut bytes).unwrap();
        parse(&bytes[..n])
    }

    /// Objective: a line has the same text as on standard error, and separate fields, including the switch of a port.
    #[test]
    fn a_line_has_separate_fields() {
        let fields = written(|| tracing::info!(port = "vale0:a", uid = 7, "attached"));
        let expected = [
            ("MESSAGE", "attached port=\"vale0:a\" uid=7"),
            ("PRIORITY", "6"),
            ("SYSLOG_IDENTIFIER", "netvale"),
            ("SWITCH", "vale0"),
            ("PORT", "vale0:a"),
            ("UID", "7"),
        ];
        assert_eq!(fields, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    /// Objective: text that a peer has chosen stays one value, and is truncated if it is too long; a path does not
    /// count as a port.
    #[test]
    fn text_chosen_by_a_peer_stays_one_value() {
        let why = format!("a\nPRIORITY=0{}", "x".repeat(2 * LONGEST));
        let fields = written(|| tracing::warn!(at = "/run/guest", why, "gone"));
        let names: Vec<_> = fields.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["MESSAGE", "PRIORITY", "SYSLOG_IDENTIFIER", "AT", "WHY"]);
        assert_eq!((fields[1].1.as_str(), fields[4].1.len()), ("4", LONGEST));
        let fields = written(|| tracing::info!(at = "vale1:b", "connected"));
        assert!(fields.contains(&("PORT".into(), "vale1:b".into())));
    }

    /// Objective: the stream is recognised by device and inode.
    #[test]
    fn the_stream_is_recognised_by_device_and_inode() {
        let file = tempfile::tempfile().unwrap();
        let meta = file.metadata().unwrap();
        assert!(leads_to(&file, &format!("{}:{}", meta.st_dev(), meta.st_ino())));
        assert!(!leads_to(&file, &format!("{}:{}", meta.st_dev(), meta.st_ino() + 1)));
        assert!(!leads_to(&file, ""));
    }
}
