//! Errors of the control client: the daemon could not be reached, or refused.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::admission;
use crate::dirs;
use crate::error::RpcError;

/// Why a request has no result. Displayed as one line: the error ([`ClientError::what`]), then what to do next
/// ([`ClientError::hint`]).
#[derive(Debug)]
pub enum ClientError {
    /// The control socket has no listener.
    NotRunning {
        /// The tried socket in the run directory.
        socket: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The socket's mode or owner excludes this user.
    Denied {
        /// The socket.
        socket: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The run directory under /tmp was made by another user, who may not be trustworthy.
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
    /// The answer violates this protocol.
    Protocol {
        /// The socket.
        socket: PathBuf,
        /// The fault of the answer.
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
    /// The answer is not of this protocol.
    Protocol,
}

impl ClientError {
    /// The error of a failed connection to a socket, within `limit`.
    pub fn connecting(socket: PathBuf, limit: Duration, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused | io::ErrorKind::NotADirectory => {
                ClientError::NotRunning { socket, source }
            }
            io::ErrorKind::PermissionDenied => ClientError::Denied { socket, source },
            io::ErrorKind::WouldBlock => ClientError::Timeout { socket, limit },
            _ => ClientError::Socket { socket, source },
        }
    }

    /// The kernel's error number, if any.
    pub fn errno(&self) -> Option<i32> {
        match self {
            ClientError::NotRunning { source, .. }
            | ClientError::Denied { source, .. }
            | ClientError::Socket { source, .. }
            | ClientError::Lost { source, .. } => source.raw_os_error(),
            ClientError::Foreign { .. } => Some(rustix::io::Errno::PERM.raw_os_error()),
            _ => None,
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

    /// The error, in one line.
    pub fn what(&self) -> String {
        match self {
            ClientError::NotRunning { socket, source } => {
                let left = if source.kind() == io::ErrorKind::ConnectionRefused { " any more" } else { "" };
                format!("no netvale daemon runs in {}{left}", folder(socket).display())
            }
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

    /// What to do next, in one line; empty only if the daemon refused without a hint.
    pub fn hint(&self) -> String {
        match self {
            ClientError::NotRunning { socket, .. } => start(socket),
            ClientError::Denied { socket, .. } => admission::advice(socket),
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

fn folder(socket: &Path) -> &Path {
    socket.parent().unwrap_or(Path::new("."))
}

/// How to start a daemon at a socket without one.
fn start(socket: &Path) -> String {
    let folder = folder(socket);
    let name = socket.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if folder != dirs::default_run_dir() {
        let folder = folder.display();
        return format!("start one with 'netvale up --run-dir {folder}', or name the folder of one with --run-dir");
    }
    if dirs::is_kept_from_system(name) {
        let system = Path::new(dirs::SYSTEM_RUN_DIR);
        let advice = admission::advice(&system.join(name));
        return format!("the system's runs in {}, and {advice}; or start one with 'netvale up'", system.display());
    }
    "start one with 'netvale up', or name the folder of one that runs with --run-dir".into()
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
