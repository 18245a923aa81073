//! `echo:[NAME]`: sends every frame back.

use super::SpecKind;

/// A port that sends every frame back.
pub(super) const KIND: SpecKind = SpecKind {
    word: "echo",
    pattern: Some("^echo:"),
    example: "echo:back",
    help: &[("echo:[NAME]", "sends every frame back with its addresses swapped, for tests")],
    takes: &["slots"],
    adjusts: &[],
    page: "reference/port-names.md",
};
