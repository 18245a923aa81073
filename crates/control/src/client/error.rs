//! Errors of the control client: the daemon could not be reached, or refused.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::RpcError;

/// Why a request has no result. Displayed as one line: what is wrong ([`ClientError::what`]), then what to do next
/// ([`ClientError::hint`]).
#[derive(Debug)]
pub enum ClientError {
    /// Nobody listens at the control socket.
    NotRunning {
        /// The run directory that was tried.
        run_dir: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The socket's mode or owner does not let this user in.
    Denied {
        /// The socket.
        socket: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The run directory under /tmp was made by somebody else, who may not be trustworthy.
    Foreign {
        /// The directory.
        run_dir: PathBuf,
    },
    /// The socket cannot be used at all, for example because its path is too long.
    Socket {
        /// The socket.
        socket: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// There was no answer in time.
    Timeout {
        /// The socket.
        socket: PathBuf,
        /// The time limit.
        limit: Duration,
    },
    /// The connection ended before the answer.
    Lost {
        /// The socket.
        socket: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The answer does not follow this protocol.
    Protocol {
        /// The socket.
        socket: PathBuf,
        /// What is wrong with the answer.
        detail: String,
    },
    /// The daemon refused the request.
    Refused(RpcError),
}

/// Kinds of [`ClientError`], for exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// No daemon answers.
    Unreachable,
    /// The daemon refused the request.
    Refused,
    /// Something answers, but not by this protocol.
    Protocol,
}

impl ClientError {
    pub(super) fn connecting(run_dir: &Path, socket: PathBuf, limit: Duration, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused | io::ErrorKind::NotADirectory => {
                ClientError::NotRunning { run_dir: run_dir.into(), source }
            }
            io::ErrorKind::PermissionDenied => ClientError::Denied { socket, source },
            io::ErrorKind::WouldBlock => ClientError::Timeout { socket, limit },
            _ => ClientError::Socket { socket, source },
        }
    }

    /// The kind of this error.
    pub fn failure(&self) -> Failure {
        match self {
            ClientError::Refused(_) => Failure::Refused,
            ClientError::Protocol { .. } => Failure::Protocol,
            _ => Failure::Unreachable,
        }
    }

    /// One line that says what is wrong.
    pub fn what(&self) -> String {
        match self {
            ClientError::NotRunning { run_dir, .. } => format!("no netvale daemon runs in {}", run_dir.display()),
            ClientError::Denied { socket, .. } => format!("this user may not connect to {}", socket.display()),
            ClientError::Foreign { run_dir } => format!("{} belongs to another user", run_dir.display()),
            ClientError::Socket { socket, source } => format!("cannot connect to {}: {source}", socket.display()),
            ClientError::Timeout { socket, limit } => {
                format!("the daemon at {} did not answer within {limit:?}", socket.display())
            }
            ClientError::Lost { socket, source } => {
                format!("the daemon at {} closed the connection before it answered: {source}", socket.display())
            }
            ClientError::Protocol { socket, detail } => {
                format!("what answers at {} does not speak netvale's control protocol: {detail}", socket.display())
            }
            ClientError::Refused(error) => error.message.clone(),
        }
    }

    /// One line that says what to do next; empty only when the daemon refused without a hint.
    pub fn hint(&self) -> String {
        match self {
            ClientError::NotRunning { run_dir, .. } => format!(
                "start one with 'netvale up --run-dir {}', or name the folder of one that runs with --run-dir",
                run_dir.display()
            ),
            ClientError::Denied { .. } => {
                "become a member of the socket's group, or start the daemon with another socket mode".into()
            }
            ClientError::Foreign { .. } => {
                "do not trust it: name the folder of your daemon with --run-dir or NETVALE_RUN_DIR".into()
            }
            ClientError::Socket { .. } => "check the run directory; a short path such as /run/netvale works".into(),
            ClientError::Timeout { .. } => "look at the daemon's log; if it hangs, end it and start it again".into(),
            ClientError::Lost { .. } => "look at the daemon's log for the reason, then try again".into(),
            ClientError::Protocol { .. } => "use client and daemon of one release, and check the run directory".into(),
            ClientError::Refused(error) => error.hint().into(),
        }
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what())?;
        match self.hint() {
            hint if hint.is_empty() => Ok(()),
            hint => write!(f, "; {hint}"),
        }
    }
}

impl std::error::Error for ClientError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ClientError::NotRunning { source, .. } | ClientError::Denied { source, .. } => Some(source),
            // The texts of the others contain their cause.
            _ => None,
        }
    }
}
