//! Prints the demonstration.

use serde_json::Value;

use crate::{CliError, out};

/// A row of the closing table.
pub(super) struct Figure {
    pub(super) what: &'static str,
    pub(super) value: String,
    pub(super) json: Value,
}

/// The demonstration's text output; silent with `--json`.
pub(super) struct Guide {
    quiet: bool,
}

impl Guide {
    pub(super) fn new(quiet: bool) -> Guide {
        Guide { quiet }
    }

    pub(super) fn say(&self, text: &str) -> Result<(), CliError> {
        if self.quiet { Ok(()) } else { out::line(text) }
    }

    pub(super) fn station(&self, title: &str) -> Result<(), CliError> {
        self.say(&format!("\n== {title}"))
    }

    pub(super) fn command(&self, text: &str) -> Result<(), CliError> {
        self.say(&format!("   $ {text}"))
    }

    pub(super) fn output(&self, text: &str) -> Result<(), CliError> {
        text.lines().filter(|l| !l.trim().is_empty()).try_for_each(|l| self.say(&format!("   {l}")))
    }
}
