//! The errors, whose messages say what to do next.

use std::fmt::Display;
use std::io;
use std::time::Duration;

/// An error of the harness or of a contender.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A system call or file operation failed.
    #[error("{what}: {source}")]
    Io {
        /// The step that failed.
        what: String,
        /// Why it failed.
        source: io::Error,
    },
    /// A program could not be started, failed, or wrote something that cannot be understood; a plot could not be drawn.
    #[error("{0}")]
    Program(String),
    /// A program did not say what it was expected to say in time.
    #[error("{program} did not print {wanted:?} within {limit:?}; its last words: {output}")]
    Silent {
        /// The program.
        program: String,
        /// The thing that was waited for.
        wanted: String,
        /// The length of the wait.
        limit: Duration,
        /// The end of what it wrote.
        output: String,
    },
    /// A measurement moved nothing.
    #[error("{0} moved no frame: its set-up does not forward")]
    NoTraffic(String),
    /// Frames were lost or came from nowhere: the figure would be wrong.
    #[error("{0}")]
    Miscounted(String),
    /// A frame arrived with other bytes than it was sent with.
    #[error("{who} delivered {frames} frames with wrong bytes")]
    WrongBytes {
        /// The contender.
        who: String,
        /// How many.
        frames: u64,
    },
    /// A contender cannot run on this machine.
    #[error("skipped: {0}")]
    Skipped(#[from] Skip),
    /// Ctrl-C or SIGTERM.
    #[error("interrupted; everything that was started has been taken down")]
    Interrupted,
    /// A name is not known: the name given, and those there are.
    #[error("no {0} {1:?}; there are: {2}")]
    Unknown(&'static str, String, String),
    /// An option has a value that cannot be used.
    #[error("{0}")]
    Usage(String),
    /// A line of a result file is no result: the file with the line's number, from 1, and the JSON reader's error.
    #[error("{0}: not a line of `netvale-bench --json`: {1}")]
    BadLine(String, serde_json::Error),
}

impl BenchError {
    /// Wraps an I/O error with what was tried.
    pub fn io<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source: source.into() }
    }

    /// A program that could not be started.
    pub fn spawn(program: &str) -> impl FnOnce(io::Error) -> Self {
        move |why| Self::Program(format!("cannot start {program}: {why}; is it installed and in PATH?"))
    }

    /// A program, with its arguments, that failed with that status; and the end of what it wrote.
    pub fn failed(program: impl Display, status: impl Display, output: &str) -> Self {
        Self::Program(format!("{program} failed ({status}): {}", tail(output)))
    }

    /// A program, of whose output something could not be understood; and the end of it.
    pub fn unreadable(program: impl Display, what: &str, output: &str) -> Self {
        Self::Program(format!("cannot read {what} from the output of {program}: {}", tail(output)))
    }
}

/// The length of a failed program's output that is shown.
const SHOWN: usize = 600;

/// The end of a text, for error messages.
pub fn tail(text: &str) -> &str {
    let mut start = text.len().saturating_sub(SHOWN);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    text.get(start..).unwrap_or_default().trim()
}

/// Why a contender cannot run here, and what would help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Skip {
    /// A program is missing.
    #[error("{program} is not installed (apt-get install --no-install-recommends {package})")]
    NotInstalled {
        /// The program.
        program: &'static str,
        /// Debian's package.
        package: &'static str,
    },
    /// Root is needed.
    #[error("needs root for {0} (run it with sudo)")]
    NeedsRoot(&'static str),
    /// There are too few CPUs to pin to.
    #[error("needs {needed} CPUs to pin threads to, {given} given")]
    TooFewCpus {
        /// CPUs needed.
        needed: usize,
        /// CPUs there are.
        given: usize,
    },
    /// There is not enough memory for hugepages.
    #[error("needs {needed} free 2 MiB hugepages, the kernel could provide {given}")]
    NoHugepages {
        /// Pages needed.
        needed: u64,
        /// Pages obtained.
        given: u64,
    },
    /// This side of the scenario is not part of this build.
    #[error("{0}")]
    NotBuilt(&'static str),
}

/// The result of everything here.
pub type Result<T> = std::result::Result<T, BenchError>;

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: the tail of a long text is short and cut at a character.
    #[test]
    fn tail_is_short() {
        assert_eq!(tail("short\n"), "short");
        assert!(tail(&"ä".repeat(1000)).len() <= SHOWN);
    }
}
