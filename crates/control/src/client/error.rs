//! Errors of the control client: the daemon is unreachable, or it refused the request.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::admission;
use crate::dirs;
use crate::error::RpcError;

/// The reason why a request has no result. `Display` writes one line: the error ([`ClientError::what`]) and what to do
/// next ([`ClientError::hint`]).
#[derive(Debug)]
pub enum ClientError {
    /// The control socket has no listener.
    NotRunning {
        /// The control socket in the run directory.
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
    /// Another user created the run directory under /tmp; that user may not be trustworthy.
    Foreign {
        /// The directory.
        run_dir: PathBuf,
    },
    /// The socket is unusable, for example because its path is too long.
    Socket {
        /// The socket.
        socket: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// No answer arrived within the limit.
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
pub enum ClientErrorKind {
    /// No daemon answers.
    Unreachable,
    /// The daemon refused the request.
    Refused,
    /// The answer does not conform to this protocol.
    Protocol,
}

impl ClientError {
    /// Returns the error for an attempt to connect to `socket` that failed, or did not succeed within `limit`.
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

    /// Returns the kernel's error number, or `EPERM` for [`ClientError::Foreign`]; `None` for other errors.
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

    /// Returns the kind of this error.
    pub fn failure(&self) -> ClientErrorKind {
        match self {
            ClientError::Refused(_) => ClientErrorKind::Refused,
            ClientError::Protocol { .. } => ClientErrorKind::Protocol,
            _ => ClientErrorKind::Unreachable,
        }
    }

    /// Returns the error, in one line.
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
                format!("the answer from {} violates netvale's control protocol: {detail}", socket.display())
            }
            ClientError::Refused(error) => error.message.clone(),
        }
    }

    /// Returns what to do next, in one line; empty only if the daemon refused without a hint.
    pub fn hint(&self) -> String {
        match self {
            ClientError::NotRunning { socket, .. } => start(socket),
            ClientError::Denied { socket, .. } => admission::advice(socket),
            ClientError::Foreign { .. } => {
                "do not trust this folder: name the run directory of your daemon with --run-dir or NETVALE_RUN_DIR"
                    .into()
            }
            ClientError::Socket { .. } => "check the run directory; use a short path such as /run/netvale".into(),
            ClientError::Timeout { .. } => "see the daemon's log; if the daemon hangs, restart it".into(),
            ClientError::Lost { .. } => "see the daemon's log for the reason, then try again".into(),
            ClientError::Protocol { .. } => "use client and daemon of one release, and check the run directory".into(),
            ClientError::Refused(error) => error.hint().into(),
        }
    }
}

fn folder(socket: &Path) -> &Path {
    socket.parent().unwrap_or(Path::new("."))
}

/// Returns advice on how to start a daemon at a socket without a listener.
fn start(socket: &Path) -> String {
    let folder = folder(socket);
    let name = socket.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if folder != dirs::default_run_dir() {
        let folder = folder.display();
        return format!("start one with 'netvale up --run-dir {folder}', or name another run directory with --run-dir");
    }
    if dirs::is_kept_from_system(name) {
        let system = Path::new(dirs::SYSTEM_RUN_DIR);
        let advice = admission::advice(&system.join(name));
        return format!("the system's daemon runs in {}; {advice}; or start one with 'netvale up'", system.display());
    }
    "start one with 'netvale up', or name a running daemon's run directory with --run-dir".into()
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
            // The texts of the other variants contain their cause.
            _ => None,
        }
    }
}
