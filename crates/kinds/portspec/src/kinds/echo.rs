//! `echo:[NAME]`: sends every frame back.

use super::Kind;

/// A port that sends every frame back.
pub(super) const KIND: Kind = Kind {
    word: "echo",
    pattern: Some("^echo:"),
    example: "echo:back",
    help: &[("echo:[NAME]", "sends every frame back with its addresses swapped, for tests")],
    takes: &["slots"],
    adjusts: &[],
    page: "reference/port-names.md",
};
