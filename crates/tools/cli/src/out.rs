//! Standard output, whose reader may close (`netvale list | head -1`).
//!
//! Subcommands print through this module and not by `println!`, which panics once the reader has closed.

use std::fmt;
use std::io::{self, IsTerminal, Write};

use serde::Serialize;

use crate::CliError;

/// Writes `text` unchanged and flushes the output, so that a script that reads line by line gets it immediately.
///
/// # Errors
/// [`CliError::output`]. The caller must pass it on with `?`, so that the program ends without a message if the reader
/// has closed the output.
pub fn text(text: impl fmt::Display) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    write!(out, "{text}").and_then(|()| out.flush()).map_err(|error| CliError::output(&error))
}

/// Returns the width of the terminal in columns. Returns `None` if the output is not a terminal; lines may then have
/// any length.
#[must_use]
pub fn width() -> Option<usize> {
    let size = io::stdout().is_terminal().then(ratatui::crossterm::terminal::size)?.ok();
    size.map(|(columns, _)| usize::from(columns)).filter(|columns| *columns > 0)
}

/// Writes `line` and a line feed.
///
/// # Errors
/// As [`text`].
pub fn line(line: impl fmt::Display) -> Result<(), CliError> {
    text(format_args!("{line}\n"))
}

/// Writes `value` as one JSON object on one line.
///
/// # Errors
/// As [`text`], and if the value cannot be serialized.
pub fn json(value: &impl Serialize) -> Result<(), CliError> {
    let text = serde_json::to_string(value)
        .map_err(|error| CliError::failed(format!("cannot write the result as JSON: {error}"), "omit --json"))?;
    line(text)
}
