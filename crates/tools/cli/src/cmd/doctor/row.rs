//! The result of one check.

use serde::Serialize;
use serde_json::{Map, Value};

/// How it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Fine as it is.
    Ok,
    /// Something would make netvale faster.
    Advice,
    /// It could not be found out.
    Unknown,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The check's name.
    pub check: &'static str,
    /// How it is.
    pub state: State,
    /// What was found, with the figures measured.
    pub found: String,
    /// Why it matters.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub what_to_do: String,
    /// The figures by name, for scripts.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub figures: Map<String, Value>,
}

impl Row {
    /// It is fine.
    pub fn ok(check: &'static str, found: impl Into<String>) -> Row {
        let (why, what_to_do, figures) = (String::new(), String::new(), Map::new());
        Row { check, state: State::Ok, found: found.into(), why, what_to_do, figures }
    }

    /// It could not be found out, for this reason.
    pub fn unknown(check: &'static str, reason: impl Into<String>) -> Row {
        Row { state: State::Unknown, ..Row::ok(check, reason) }
    }

    /// Makes it advice: why, and what to do.
    pub fn advise(self, why: impl Into<String>, what_to_do: impl Into<String>) -> Row {
        Row { state: State::Advice, why: why.into(), what_to_do: what_to_do.into(), ..self }
    }

    /// Adds a figure.
    pub fn figure(mut self, name: &str, value: impl Into<Value>) -> Row {
        self.figures.insert(name.to_owned(), value.into());
        self
    }
}

/// Rounds a figure to three decimals: more would pretend to a precision that it does not have.
pub fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}
