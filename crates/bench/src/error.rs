//! The errors, whose messages say what to do next.

use std::io;
use std::path::PathBuf;
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
    /// A program could not be started.
    #[error("cannot start {program}: {source}; is it installed and in PATH?")]
    Spawn {
        /// The program.
        program: String,
        /// Why it failed.
        source: io::Error,
    },
    /// A program ended with an error.
    #[error("{program} failed ({status}): {output}")]
    Failed {
        /// The program and its arguments.
        program: String,
        /// Its exit status.
        status: String,
        /// The end of what it wrote.
        output: String,
    },
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
    /// A program's output could not be understood.
    #[error("cannot read {what} from the output of {program}: {output}")]
    Unreadable {
        /// The program.
        program: String,
        /// The text that was looked for.
        what: String,
        /// The output that was found instead.
        output: String,
    },
    /// A measurement moved nothing.
    #[error("{0} moved no frame: its set-up does not forward")]
    NoTraffic(String),
    /// Frames were lost or came from nowhere: the figure would be wrong.
    #[error(
        "{who} sent {sent} frames, but {received} arrived and {dropped} were counted as dropped; no more than \
         {in_flight} can be under way"
    )]
    Miscounted {
        /// The contender.
        who: String,
        /// Frames sent.
        sent: u64,
        /// Frames received.
        received: u64,
        /// Frames that drop counters know of.
        dropped: u64,
        /// Slots of all rings together.
        in_flight: u64,
    },
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
    /// A scenario's name is not known.
    #[error("no scenario {name:?}; there are: {known}")]
    UnknownScenario {
        /// The name given.
        name: String,
        /// The names there are.
        known: String,
    },
    /// A peer's name is not known.
    #[error("no peer {name:?}; there are: {known}, and `all`")]
    UnknownPeer {
        /// The name given.
        name: String,
        /// The names there are.
        known: String,
    },
    /// An option has a value that cannot be used.
    #[error("{0}")]
    Usage(String),
    /// A line of a result file is no result.
    #[error("{}:{line}: not a line of `netvale-bench --json`: {source}", file.display())]
    BadLine {
        /// The file.
        file: PathBuf,
        /// The line's number, from 1.
        line: usize,
        /// The error of the JSON reader.
        source: serde_json::Error,
    },
    /// A plot could not be drawn.
    #[error("cannot draw {}: {reason}", file.display())]
    Plot {
        /// The file.
        file: PathBuf,
        /// The error of the plotting library.
        reason: String,
    },
}

impl BenchError {
    /// Wraps an I/O error with what was tried.
    pub fn io<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source: source.into() }
    }
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
