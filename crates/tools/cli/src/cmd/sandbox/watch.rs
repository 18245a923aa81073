//! `--watch`: a line on standard error for each flow, from the gateway's record.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use serde_json::Value;

use crate::CliError;

/// Maximum length of a line of the record, in bytes.
const MAX_LINE: usize = 1 << 16;

/// Reads the gateway's record of flows from a pipe, prints the flows, and copies the record to the file of `--flows`.
pub(super) struct FlowWatch {
    /// The pipe with the gateway's record.
    pub from: File,
    copy: Option<File>,
    line: Vec<u8>,
    /// Whether the gateway has closed the pipe.
    pub is_at_end: bool,
}

impl FlowWatch {
    /// Begins to read a pipe with the record. The record is appended to the file `copy`, if `copy` is given.
    pub fn open(from: File, copy: Option<&Path>) -> Result<FlowWatch, CliError> {
        let failed = |what: String| move |why: std::io::Error| CliError::failed(format!("{what}: {why}"), NEXT);
        let open = |path: &Path| {
            let path = if path == Path::new("-") { Path::new("/dev/stdout") } else { path };
            let opened = File::options().create(true).append(true).open(path);
            opened.map_err(failed(format!("cannot open {}", path.display())))
        };
        let copy = copy.map(open).transpose()?;
        rustix::io::ioctl_fionbio(&from, true).map_err(|why| failed("cannot read the record".into())(why.into()))?;
        Ok(FlowWatch { from, copy, line: Vec::new(), is_at_end: false })
    }

    /// Prints the flows in the pipe, without waiting for more.
    pub fn read(&mut self) {
        let mut bytes = [0; 4096];
        loop {
            match self.from.read(&mut bytes) {
                Ok(0) => break self.is_at_end = true,
                Ok(len) => self.take(&bytes[..len]),
                Err(why) if why.kind() == std::io::ErrorKind::Interrupted => {}
                Err(why) => break self.is_at_end |= why.kind() != std::io::ErrorKind::WouldBlock,
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        if let Some(Err(why)) = self.copy.as_mut().map(|copy| copy.write_all(bytes)) {
            netvale_control::note!("netvale: cannot write the record of flows: {why}; later flows are not recorded");
            self.copy = None;
        }
        for byte in bytes {
            match byte {
                b'\n' => {
                    if let Some(text) = serde_json::from_slice(&self.line).ok().and_then(|line| text(&line)) {
                        netvale_control::note!("netvale: {text}");
                    }
                    self.line.clear();
                }
                // The gateway parses hostile packets, so this process does not rely on the lines of its output being
                // short.
                byte if self.line.len() < MAX_LINE => self.line.push(*byte),
                _ => {}
            }
        }
    }
}

const NEXT: &str = "choose another file with --flows";

/// Returns the text to print for an event of the record; `None` for events that are not printed, such as the end of a
/// flow, and for lines of another form.
fn text(line: &Value) -> Option<String> {
    // Names come from outside, and must not control the terminal.
    let word = |name: &str| Some(line.get(name)?.as_str()?.replace(char::is_control, "?"));
    let event = word("event")?;
    if event == "lost" {
        return Some(format!("{} flows are not shown", line.get("lines")?.as_u64()?));
    }
    let verdict = match event.as_str() {
        "opened" => "allowed",
        "refused" => "refused",
        _ => return None,
    };
    let from = if word("direction")? == "in" { "from " } else { "" };
    let name = word("name").map(|name| format!(" ({name})")).unwrap_or_default();
    let reason = word("reason").map(|reason| format!(": {reason}")).unwrap_or_default();
    Some(format!("{verdict} {:<4} {from}{}{name}{reason}", word("transport")?, word("remote")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(line: &str) -> Option<String> {
        text(&serde_json::from_str(line).unwrap())
    }

    #[test]
    fn flows_are_lines_with_names_and_reasons() {
        let opened =
            r#"{"event":"opened","transport":"tcp","direction":"out","remote":"192.0.2.1:443","name":"a.test"}"#;
        assert_eq!(shown(opened).unwrap(), "allowed tcp  192.0.2.1:443 (a.test)");
        let refused =
            r#"{"event":"refused","transport":"icmp","direction":"out","remote":"192.0.2.1:0","reason":"policy"}"#;
        assert_eq!(shown(refused).unwrap(), "refused icmp 192.0.2.1:0: policy");
        let inward = r#"{"event":"opened","transport":"udp","direction":"in","remote":"192.0.2.1:5"}"#;
        assert_eq!(shown(inward).unwrap(), "allowed udp  from 192.0.2.1:5");
        assert_eq!(shown(r#"{"event":"lost","lines":7}"#).unwrap(), "7 flows are not shown");
        assert_eq!(shown(r#"{"event":"closed","transport":"tcp"}"#), None);
        assert_eq!(shown("[]"), None);
    }

    #[test]
    fn a_name_cannot_control_the_terminal() {
        let line = r#"{"event":"opened","transport":"tcp","direction":"out","remote":"a\u001b[2J","name":"\u0007b"}"#;
        assert_eq!(shown(line).unwrap(), "allowed tcp  a?[2J (?b)");
    }

    /// Objective: lines that arrive in pieces are copied completely, and an endless line takes a limited amount of
    /// memory.
    #[test]
    fn lines_are_copied_and_their_length_is_limited() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("flows");
        let mut watch = FlowWatch::open(File::from(std::os::fd::OwnedFd::from(reader)), Some(&copy)).unwrap();
        writer.write_all(b"{\"event\":").unwrap();
        watch.read();
        writer.write_all(b"\"closed\"}\nrest").unwrap();
        watch.read();
        assert_eq!((watch.line.as_slice(), watch.is_at_end), (&b"rest"[..], false));
        for _ in 0..100 {
            writer.write_all(&[b'x'; 4096]).unwrap();
            watch.read();
        }
        assert_eq!(watch.line.len(), MAX_LINE);
        drop(writer);
        watch.read();
        assert!(watch.is_at_end);
        assert!(std::fs::read_to_string(copy).unwrap().starts_with("{\"event\":\"closed\"}\nrestxxx"));
    }
}
