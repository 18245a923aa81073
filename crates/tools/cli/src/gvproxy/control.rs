//! A client of the gateway's control socket: one line of JSON for a request, one for its answer.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::time::Duration;

use netvale_gateway::dns::zones::DnsZone;
use serde::Deserialize;
use serde_json::{Value, json};

use super::stream::GvStream;

/// Time limit for each part of an answer.
const LIMIT: Duration = Duration::from_secs(10);
/// Maximum length of an answer in bytes.
const MAX_ANSWER: usize = 16 << 20;

/// The reason why a request has failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ControlFailure {
    /// The gateway has refused.
    #[error("{0}")]
    Refused(String),
    /// The gateway does not answer, or sends something else.
    #[error("the gateway does not answer: {0}")]
    Lost(String),
}

/// A lease of the gateway.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct GatewayLease {
    pub ip: String,
    pub mac: String,
}

#[derive(Deserialize)]
struct LeasesAnswer {
    leases: Vec<GatewayLease>,
}

/// The control socket.
#[derive(Clone, Debug)]
pub(super) struct GatewayControl {
    pub path: PathBuf,
}

impl GatewayControl {
    /// Publishes a port.
    pub(super) fn publish(&self, rule: &str) -> Result<(), ControlFailure> {
        self.ask(&json!({"do": "publish", "rule": rule})).map(drop)
    }

    /// Ends a published port.
    pub(super) fn unpublish(&self, rule: &str) -> Result<(), ControlFailure> {
        self.ask(&json!({"do": "unpublish", "rule": rule})).map(drop)
    }

    /// Returns the leases.
    pub(super) fn leases(&self) -> Result<Vec<GatewayLease>, ControlFailure> {
        let answer = self.ask(&json!({"do": "leases"}))?;
        let answer: LeasesAnswer =
            serde_json::from_value(answer).map_err(|why| ControlFailure::Lost(format!("{why} in its leases")))?;
        Ok(answer.leases)
    }

    /// Adds a zone of names, or replaces the one of the same name.
    pub(super) fn set_names(&self, zone: &DnsZone) -> Result<(), ControlFailure> {
        self.ask(&json!({"do": "set-names", "zone": zone})).map(drop)
    }

    fn ask(&self, request: &Value) -> Result<Value, ControlFailure> {
        let line = self.exchanged(&format!("{request}\n")).map_err(|why| ControlFailure::Lost(why.to_string()))?;
        let answer: Value = serde_json::from_slice(&line).map_err(|why| ControlFailure::Lost(why.to_string()))?;
        match (answer.get("ok"), answer.get("error").and_then(Value::as_str)) {
            (Some(ok), None) => Ok(ok.clone()),
            (_, Some(why)) => Err(ControlFailure::Refused(why.to_owned())),
            (None, None) => Err(ControlFailure::Lost("expected \"ok\" or \"error\"".to_owned())),
        }
    }

    fn exchanged(&self, line: &str) -> std::io::Result<Vec<u8>> {
        let stream = GvStream::connect(&self.path)?;
        stream.limit(Some(LIMIT))?;
        let mut stream = &stream;
        stream.write_all(line.as_bytes())?;
        let mut answer = Vec::new();
        let mut piece = [0; 4096];
        while !answer.ends_with(b"\n") {
            let len = stream.read(&mut piece)?;
            if len == 0 || answer.len() > MAX_ANSWER {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            answer.extend_from_slice(piece.get(..len).unwrap_or_default());
        }
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::unix::net::UnixListener;

    use super::*;

    /// Objective: requests and answers have the form of the control protocol; a refusal, an end and nonsense are
    /// errors.
    #[test]
    fn requests_and_answers_are_lines() {
        let dir = tempfile::tempdir().unwrap();
        let control = GatewayControl { path: dir.path().join("c.sock") };
        let listener = UnixListener::bind(&control.path).unwrap();
        let answers = [
            r#"{"ok":{}}"#,
            r#"{"error":"cannot publish: in use"}"#,
            r#"{"ok":{"leases":[{"ip":"10.0.0.2","mac":"02:00:00:00:00:01","name":null,"seconds":9}]}}"#,
            "nonsense",
            "{}",
        ];
        let server = std::thread::spawn(move || {
            answers.map(|answer| {
                let mut stream = listener.accept().unwrap().0;
                let mut line = String::new();
                BufReader::new(&stream).read_line(&mut line).unwrap();
                writeln!(stream, "{answer}").unwrap();
                line
            })
        });
        control.publish("80:10.0.0.2:80").unwrap();
        assert_eq!(control.unpublish("x").unwrap_err().to_string(), "cannot publish: in use");
        let lease = GatewayLease { ip: "10.0.0.2".into(), mac: "02:00:00:00:00:01".into() };
        assert_eq!(control.leases().unwrap(), [lease]);
        let zone = DnsZone { name: "a.".into(), default_ip: Some([10, 0, 0, 9].into()), records: Vec::new() };
        assert!(matches!(control.set_names(&zone), Err(ControlFailure::Lost(_))));
        assert!(matches!(control.leases(), Err(ControlFailure::Lost(_))));
        let lines = server.join().unwrap();
        assert_eq!(lines[0], "{\"do\":\"publish\",\"rule\":\"80:10.0.0.2:80\"}\n");
        let names = "{\"do\":\"set-names\",\"zone\":{\"default_ip\":\"10.0.0.9\",\"name\":\"a.\",\"records\":[]}}\n";
        assert_eq!(lines[3], names);
        assert!(matches!(control.leases(), Err(ControlFailure::Lost(_))), "nobody listens");
    }
}
