//! The result of one check.

use serde::Serialize;
use serde_json::{Map, Value};

/// Whether a check led to advice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckState {
    /// Nothing to improve.
    #[default]
    Ok,
    /// A change would make netvale faster.
    Advice,
    /// The check could not be performed.
    Unknown,
}

/// The result of one check.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CheckRow {
    pub check: &'static str,
    /// Whether the check led to advice.
    pub state: CheckState,
    /// The finding, with its figures.
    pub found: String,
    /// The reason why the finding matters; empty without advice.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// The recommended action; empty without advice.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub what_to_do: String,
    /// The figures by name, for scripts.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub figures: Map<String, Value>,
}

impl CheckRow {
    /// Creates a row without advice.
    pub fn ok(check: &'static str, found: impl Into<String>) -> CheckRow {
        CheckRow { check, found: found.into(), ..CheckRow::default() }
    }

    /// Creates a row for a check that could not be performed, with the reason.
    pub fn unknown(check: &'static str, reason: impl Into<String>) -> CheckRow {
        CheckRow { state: CheckState::Unknown, ..CheckRow::ok(check, reason) }
    }

    /// Turns the row into advice, with the reason and the recommended action.
    pub fn advise(self, why: impl Into<String>, what_to_do: impl Into<String>) -> CheckRow {
        CheckRow { state: CheckState::Advice, why: why.into(), what_to_do: what_to_do.into(), ..self }
    }

    /// As [`CheckRow::advise`] if `is_needed` is set; otherwise, the row stays without advice.
    pub fn advise_if(self, is_needed: bool, why: impl Into<String>, what_to_do: impl Into<String>) -> CheckRow {
        if is_needed { self.advise(why, what_to_do) } else { self }
    }

    pub fn figure(mut self, name: &str, value: impl Into<Value>) -> CheckRow {
        self.figures.insert(name.to_owned(), value.into());
        self
    }
}

/// Rounds a figure to three decimals: more would suggest a precision that the measurement lacks.
pub fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}
