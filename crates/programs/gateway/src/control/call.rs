//! The client's end of a control socket, for commands ([`GatewayControl`]).

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::message::ControlRequest;

/// Maximum length of an answer in bytes.
const MAX_ANSWER: u64 = 64 << 20;

/// The reason why a request to a gateway failed.
#[derive(Debug, thiserror::Error)]
pub enum ControlCallError {
    /// No gateway listens.
    #[error("no gateway answers at {path}: {source}")]
    Unreachable {
        /// Path of the socket.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The gateway refused the request; the value is the gateway's reason.
    #[error("{0}")]
    Refused(String),
    /// The connection failed or ended without an answer, or the answer is invalid.
    #[error("the gateway at {path} has not answered: {why}")]
    Broken {
        /// Path of the socket.
        path: PathBuf,
        /// Description of the failure.
        why: String,
    },
}

/// A connection to a running gateway.
pub struct GatewayControl {
    path: PathBuf,
    stream: BufReader<UnixStream>,
}

impl GatewayControl {
    /// Connects to the gateway whose control socket has this path.
    ///
    /// # Errors
    /// [`ControlCallError::Unreachable`] if no gateway listens there, or this user may not connect.
    pub fn connect(path: &Path) -> Result<Self, ControlCallError> {
        let path = path.to_owned();
        match UnixStream::connect(&path) {
            Ok(stream) => Ok(GatewayControl { path, stream: BufReader::new(stream) }),
            Err(source) => Err(ControlCallError::Unreachable { path, source }),
        }
    }

    /// Sends a request, and waits for its answer.
    ///
    /// # Errors
    /// [`ControlCallError::Refused`] if the gateway refuses; [`ControlCallError::Broken`] if the connection ends, or
    /// the answer is invalid.
    pub fn ask(&mut self, request: &ControlRequest) -> Result<Value, ControlCallError> {
        let text = serde_json::to_string(request).map_err(|error| self.broken(&error))?;
        let sent = writeln!(self.stream.get_mut(), "{text}");
        // A gateway that refuses the client sends the refusal before it reads any request, and then closes the
        // connection, so the answer is read even if the send failed.
        let line = self.next_line()?.ok_or_else(|| match sent {
            Ok(()) => self.broken(&"it has closed the connection"),
            Err(error) => self.broken(&error),
        })?;
        let answer: Value = serde_json::from_str(&line).map_err(|error| self.broken(&error))?;
        match answer.get("error").and_then(Value::as_str) {
            Some(text) => Err(ControlCallError::Refused(text.to_owned())),
            None => Ok(answer.get("ok").cloned().unwrap_or_default()),
        }
    }

    /// Returns the next line, without its line feed; `None` at the end of the connection.
    ///
    /// # Errors
    /// [`ControlCallError::Broken`] if the connection fails.
    pub fn next_line(&mut self) -> Result<Option<String>, ControlCallError> {
        let mut line = String::new();
        let read = (&mut self.stream).take(MAX_ANSWER).read_line(&mut line);
        match read {
            Ok(_) if line.ends_with('\n') => Ok(Some(line.trim_end().to_owned())),
            Ok(_) => Ok(None),
            Err(error) => Err(self.broken(&error)),
        }
    }

    fn broken(&self, why: &dyn std::fmt::Display) -> ControlCallError {
        ControlCallError::Broken { path: self.path.clone(), why: why.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_refusal_is_read_even_if_the_connection_is_closed_already() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control");
        let listener = UnixListener::bind(&path).unwrap();
        let mut control = GatewayControl::connect(&path).unwrap();
        listener.accept().unwrap().0.write_all(b"{\"error\":\"not yours; ask\"}\n").unwrap();
        let refused = control.ask(&ControlRequest::Rules).unwrap_err();
        assert_eq!(refused.to_string(), "not yours; ask");
        assert!(matches!(control.ask(&ControlRequest::Rules), Err(ControlCallError::Broken { .. })));
        drop(listener);
        assert!(matches!(GatewayControl::connect(&path), Err(ControlCallError::Unreachable { .. })));
    }
}
