//! Errors of the bench.

use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::time::Duration;

/// An error of the bench or of a contender.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A system call or file operation failed.
    #[error("{what}: {source}")]
    Io {
        /// The step that failed.
        what: String,
        /// Why the step failed.
        source: io::Error,
    },
    /// A program could not be started, failed, lost or duplicated frames, or printed output that cannot be parsed; or a
    /// plot could not be drawn.
    #[error("{0}")]
    Program(String),
    /// A program did not print the expected text in time.
    #[error("{program} did not print {wanted:?} within {limit:?}; its last output: {output}")]
    Silent {
        /// The program.
        program: String,
        /// The expected text.
        wanted: String,
        /// The time limit.
        limit: Duration,
        /// The end of the program's output.
        output: String,
    },
    /// No frame moved during a measurement.
    #[error("no frame passed {0}: check that its setup forwards frames")]
    NoTraffic(String),
    /// Frames arrived whose bytes differ from those that were sent.
    #[error("{who} delivered {frames} frames with corrupt content")]
    WrongBytes {
        /// The contender.
        who: String,
        /// Number of frames with other bytes.
        frames: u64,
    },
    /// A contender cannot run on this machine.
    #[error("skipped: {0}")]
    Skipped(#[from] Skip),
    /// The process got SIGINT or SIGTERM.
    #[error("interrupted; all started processes have ended")]
    Interrupted,
    /// A name is unknown. The fields are the kind of name, the name, and the known names.
    #[error("unknown {0} {1:?}; known: {2}")]
    Unknown(&'static str, String, String),
    /// An option has an invalid value.
    #[error("{0}")]
    Usage(String),
    /// A line of a result file is not a result: the fields are the file with the line's number, counted from 1, and the
    /// JSON parser's error.
    #[error("{0}: not a line of `netvale-bench --json`: {1}")]
    BadLine(String, serde_json::Error),
}

impl BenchError {
    /// Returns a function that wraps an I/O error together with `what`, the step that failed.
    pub fn io<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source: source.into() }
    }

    /// Returns a function that creates the error for a program that could not be started.
    pub fn spawn(program: &str) -> impl FnOnce(io::Error) -> Self {
        move |why| Self::Program(format!("cannot start {program}: {why}; check that it is installed and in PATH"))
    }

    /// Creates the error for a program that failed, from the program's name, its status, and the end of its output.
    pub fn failed(program: impl Display, status: impl Display, output: &str) -> Self {
        Self::Program(format!("{program} failed ({status}): {}", tail(output)))
    }

    /// Creates the error for a program whose output cannot be parsed, from the program's name, the part in question,
    /// and the end of the output.
    pub fn unreadable(program: impl Display, what: &str, output: &str) -> Self {
        Self::Program(format!("cannot read {what} from the output of {program}: {}", tail(output)))
    }
}

/// Maximum number of bytes of output that an error shows.
const SHOWN: usize = 600;

/// Returns the end of a text, for error messages.
pub fn tail(text: &str) -> &str {
    let mut start = text.len().saturating_sub(SHOWN);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    text.get(start..).unwrap_or_default().trim()
}

/// The reason why a contender cannot run on this machine, with the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Skip {
    /// A program is missing.
    #[error("{program} is not installed (apt-get install --no-install-recommends {package})")]
    NotInstalled {
        /// The program.
        program: &'static str,
        /// Debian's package with the program.
        package: &'static str,
    },
    /// Root is needed, for the purpose in the text.
    #[error("needs root for {0} (run it with sudo)")]
    NeedsRoot(&'static str),
    /// There are too few CPUs.
    #[error("needs {needed} CPUs for pinned threads, found {given}")]
    TooFewCpus {
        /// Number of CPUs needed.
        needed: usize,
        /// Number of CPUs available.
        given: usize,
    },
    /// There is not enough memory for hugepages.
    #[error("needs {needed} free hugepages of 2 MiB, the kernel provided {given}")]
    NoHugepages {
        /// Number of pages needed.
        needed: u64,
        /// Number of pages obtained.
        given: u64,
    },
    /// Another requirement is not met; the text states which, and the remedy.
    #[error("{0}")]
    NotBuilt(&'static str),
}

/// The result type of the bench.
pub type Result<T> = std::result::Result<T, BenchError>;

/// Returns the result of a call that does not wait, or that has a time limit. `None` if there was nothing to read
/// within that time.
pub fn in_time<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
        other => other.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: the tail of a long text is short and cut at the boundary of a character.
    #[test]
    fn tail_is_short() {
        assert_eq!(tail("short\n"), "short");
        assert!(tail(&"ä".repeat(1000)).len() <= SHOWN);
    }
}
