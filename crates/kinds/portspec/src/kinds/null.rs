//! `null:[NAME]`: swallows every frame.

use super::Kind;

/// A sink that counts its frames.
pub(super) const KIND: Kind = Kind {
    word: "null",
    pattern: Some("^null:"),
    example: "null:",
    help: &[("null:[NAME]", "discards and counts every frame, for measuring")],
    takes: &[],
    adjusts: &[],
    page: "reference/port-names.md",
};
