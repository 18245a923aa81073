//! Text that is safe in a log or on a terminal: one line, displayed in the order of its characters.

/// Returns whether a character is invisible, begins a line, or reorders the display: control characters, line and
/// paragraph separators, bidirectional formatting characters (Unicode Standard Annex 9).
#[must_use]
pub fn is_hidden(c: char) -> bool {
    let is_mark = matches!(c, '\u{061c}' | '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{2069}' | '\u{feff}');
    c.is_control() || is_mark || matches!(c, '\u{2028}'..='\u{202e}')
}

/// Replaces each hidden character of a text with one visible character.
#[must_use]
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if is_hidden(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: text in any script is unchanged; characters that hide, reorder or break a line are replaced.
    #[test]
    fn characters_that_hide_are_replaced() {
        for text in ["plain", "naïve ε שלום مرحبا 漢字 🦀", "a\u{a0}b"] {
            assert_eq!(printable(text), text);
        }
        for c in ['\0', '\n', '\u{1b}', '\u{85}', '\u{200e}', '\u{2028}', '\u{202e}', '\u{2066}', '\u{feff}'] {
            assert_eq!(printable(&format!("a{c}b")), "a\u{fffd}b");
        }
    }
}
