//! Errors of the command line: what failed, what to do, and the exit code.

use std::io;

/// The exit codes with their meanings, printed at the end of the help and of each manual page.
pub const EXIT_CODES: &str = "\
Exit codes:
  0  success
  1  failure
  2  invalid command line
  3  daemon unreachable
  4  request refused
";

/// The kind of failure, which decides the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The subcommand's work failed.
    Failed,
    /// Options or values are invalid.
    Usage,
    /// No daemon answers.
    Unreachable,
    /// The daemon refused the request.
    Refused,
    /// The reader of standard output has closed. This is not a failure, so no message is printed.
    OutputClosed,
}

/// The error of a subcommand. Printed as two lines: its text, then [`CliError::next`].
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct CliError {
    kind: FailureKind,
    what: String,
    next: String,
}

impl CliError {
    fn new(kind: FailureKind, what: impl Into<String>, next: impl Into<String>) -> Self {
        Self { kind, what: what.into(), next: next.into() }
    }

    /// Creates the error for failed work, with exit code 1. `next` tells the user what to do.
    pub fn failed<W: Into<String>, N: Into<String>>(what: W, next: N) -> Self {
        Self::new(FailureKind::Failed, what, next)
    }

    /// Creates the error for invalid options or values, with exit code 2.
    pub fn usage<W: Into<String>, N: Into<String>>(what: W, next: N) -> Self {
        Self::new(FailureKind::Usage, what, next)
    }

    /// Creates the error for a daemon that does not answer, with exit code 3.
    pub fn unreachable<W: Into<String>, N: Into<String>>(what: W, next: N) -> Self {
        Self::new(FailureKind::Unreachable, what, next)
    }

    /// Creates the error for a refused request, with exit code 4.
    pub fn refused<W: Into<String>, N: Into<String>>(what: W, next: N) -> Self {
        Self::new(FailureKind::Refused, what, next)
    }

    /// Creates the error for a failed write to standard output. Its kind is [`FailureKind::OutputClosed`] if the reader
    /// has closed the output.
    pub fn output(error: &io::Error) -> Self {
        let kind =
            if error.kind() == io::ErrorKind::BrokenPipe { FailureKind::OutputClosed } else { FailureKind::Failed };
        Self::new(
            kind,
            format!("cannot write to standard output: {error}"),
            "check the output's destination, and its free space",
        )
    }

    /// Returns the kind of failure.
    pub fn kind(&self) -> FailureKind {
        self.kind
    }

    /// Returns what the user can do, in one line.
    pub fn next(&self) -> &str {
        &self.next
    }

    /// Returns the exit code, as in [`EXIT_CODES`].
    pub fn code(&self) -> u8 {
        match self.kind {
            FailureKind::OutputClosed => 0,
            FailureKind::Failed => 1,
            FailureKind::Usage => 2,
            FailureKind::Unreachable => 3,
            FailureKind::Refused => 4,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: each kind has the exit code that [`EXIT_CODES`] promises, and it is no failure if the reader has
    /// closed the output.
    #[test]
    fn each_kind_has_the_promised_exit_code() {
        assert_eq!(CliError::failed("", "").code(), 1);
        assert_eq!(CliError::usage("", "").code(), 2);
        assert_eq!(CliError::unreachable("", "").code(), 3);
        assert_eq!(CliError::refused("", "").code(), 4);
        assert_eq!(CliError::output(&io::ErrorKind::BrokenPipe.into()).code(), 0);
        assert_eq!(CliError::output(&io::ErrorKind::StorageFull.into()).code(), 1);
    }
}
