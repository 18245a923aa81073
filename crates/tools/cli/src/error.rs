//! Errors of the command line: what failed, what to do next, and the exit code.

use std::io;

/// The exit codes and their meanings: the end of the help and of each manual page.
pub const EXIT_CODES: &str = "\
Exit codes:
  0  success
  1  failure
  2  invalid command line
  3  daemon unreachable
  4  request refused
";

/// The kind of failure; it decides the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The work failed.
    Failed,
    /// Options or values are invalid.
    Usage,
    /// No daemon answers.
    Unreachable,
    /// The daemon refused.
    Refused,
    /// The reader of standard output has closed: not a failure, no message.
    OutputClosed,
}

/// The error of a subcommand. Printed as two lines: its text, then [`CliError::next`].
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct CliError {
    kind: Kind,
    what: String,
    next: String,
}

impl CliError {
    fn new(kind: Kind, what: impl Into<String>, next: impl Into<String>) -> Self {
        Self { kind, what: what.into(), next: next.into() }
    }

    /// The work failed: exit code 1. `next` is advice for the user.
    pub fn failed<W: Into<String>, N: Into<String>>(what: W, next: N) -> Self {
        Self::new(Kind::Failed, what, next)
    }

    /// Invalid options or values: exit code 2.
    pub fn usage<W: Into<String>, N: Into<String>>(what: W, next: N) -> Self {
        Self::new(Kind::Usage, what, next)
    }

    /// No daemon answers: exit code 3.
    pub fn unreachable<W: Into<String>, N: Into<String>>(what: W, next: N) -> Self {
        Self::new(Kind::Unreachable, what, next)
    }

    /// The daemon refused: exit code 4.
    pub fn refused<W: Into<String>, N: Into<String>>(what: W, next: N) -> Self {
        Self::new(Kind::Refused, what, next)
    }

    /// Standard output could not be written. A reader that has closed is [`Kind::OutputClosed`].
    pub fn output(error: &io::Error) -> Self {
        let kind = if error.kind() == io::ErrorKind::BrokenPipe { Kind::OutputClosed } else { Kind::Failed };
        Self::new(
            kind,
            format!("cannot write to standard output: {error}"),
            "check where the output goes, and the room there",
        )
    }

    /// The kind of failure.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The advice: what to do next, in one line.
    pub fn next(&self) -> &str {
        &self.next
    }

    /// The exit code, as in [`EXIT_CODES`].
    pub fn code(&self) -> u8 {
        match self.kind {
            Kind::OutputClosed => 0,
            Kind::Failed => 1,
            Kind::Usage => 2,
            Kind::Unreachable => 3,
            Kind::Refused => 4,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: each kind has the exit code that [`EXIT_CODES`] promises, and a reader that has closed is no failure.
    #[test]
    fn codes() {
        assert_eq!(CliError::failed("", "").code(), 1);
        assert_eq!(CliError::usage("", "").code(), 2);
        assert_eq!(CliError::unreachable("", "").code(), 3);
        assert_eq!(CliError::refused("", "").code(), 4);
        assert_eq!(CliError::output(&io::ErrorKind::BrokenPipe.into()).code(), 0);
        assert_eq!(CliError::output(&io::ErrorKind::StorageFull.into()).code(), 1);
    }
}
