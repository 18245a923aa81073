//! `echo:[NAME]`: sends every frame back.

use super::SpecKind;

/// The kind `echo`: sends every frame back.
pub(super) const KIND: SpecKind = SpecKind {
    word: "echo",
    pattern: Some("^echo:"),
    example: "echo:back",
    help: &[("echo:[NAME]", "sends every frame back with its addresses swapped, for tests")],
    takes: &["slots"],
    adjusts: &[],
    page: "reference/port-names.md",
};
