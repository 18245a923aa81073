//! `null:[NAME]`: discards every frame.

use super::SpecKind;

/// The kind `null`: discards and counts every frame.
pub(super) const KIND: SpecKind = SpecKind {
    word: "null",
    pattern: Some("^null:"),
    example: "null:",
    help: &[("null:[NAME]", "discards and counts every frame, for measuring")],
    takes: &[],
    adjusts: &[],
    page: "reference/port-names.md",
};
