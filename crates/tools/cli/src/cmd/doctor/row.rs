//! The result of one check.

use serde::Serialize;
use serde_json::{Map, Value};

/// The outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Fine.
    Ok,
    /// A change would make netvale faster.
    Advice,
    /// Unknown.
    Unknown,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The check's name.
    pub check: &'static str,
    /// The outcome.
    pub state: State,
    /// The finding, with the figures measured.
    pub found: String,
    /// The reason why it matters.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// The recommended action.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub what_to_do: String,
    /// The figures by name, for scripts.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub figures: Map<String, Value>,
}

impl Row {
    /// A fine row.
    pub fn ok(check: &'static str, found: impl Into<String>) -> Row {
        let why = String::new();
        let what_to_do = String::new();
        let figures = Map::new();
        Row { check, state: State::Ok, found: found.into(), why, what_to_do, figures }
    }

    /// An unknown row, with the reason.
    pub fn unknown(check: &'static str, reason: impl Into<String>) -> Row {
        Row { state: State::Unknown, ..Row::ok(check, reason) }
    }

    /// Turns the row into advice, with its reason and action.
    pub fn advise(self, why: impl Into<String>, what_to_do: impl Into<String>) -> Row {
        Row { state: State::Advice, why: why.into(), what_to_do: what_to_do.into(), ..self }
    }

    /// Adds a figure.
    pub fn figure(mut self, name: &str, value: impl Into<Value>) -> Row {
        self.figures.insert(name.to_owned(), value.into());
        self
    }
}

/// Rounds a figure to three decimals: more would suggest a precision that it does not have.
pub fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}
