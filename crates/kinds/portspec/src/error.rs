//! Parse errors: the position of the first wrong character, and the expected text.

use std::fmt;

use crate::printable::printable;

/// The reason why a text is not a port specification.
///
/// `{}` writes two lines, to be printed from the first column:
///
/// ```text
/// vale0:a{x}
///          ^ expected the end of the pipe's name: ...
/// ```
///
/// `{:#}` writes one line, for logs and for messages with a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    text: String,
    offset: usize,
    expected: String,
}

impl ParseError {
    /// Creates an error at the character boundary at or before `offset` of `text`.
    pub(crate) fn new(text: &str, offset: usize, expected: impl Into<String>) -> Self {
        Self { text: text.to_owned(), offset: text.floor_char_boundary(offset), expected: expected.into() }
    }

    /// Returns the parsed text (only its start, if it was longer than [`crate::MAX_TEXT`]).
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the number of bytes before the wrong character; the text's length if the text ended too early.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Returns the wrong character; `None` if the text ended too early.
    pub fn found(&self) -> Option<char> {
        self.text.get(self.offset..).and_then(|rest| rest.chars().next())
    }

    /// Returns the expected text, as a phrase to follow "expected".
    pub fn expected(&self) -> &str {
        &self.expected
    }

    fn column(&self) -> usize {
        self.text.get(..self.offset).map_or(0, |before| before.chars().count())
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = printable(&self.text);
        let column = self.column();
        let expected = &self.expected;
        if !f.alternate() {
            return write!(f, "{text}\n{:column$}^ expected {expected}", "");
        }
        match self.found() {
            Some(found) => {
                write!(f, "'{text}', character {}: expected {expected}, found {found:?}", column + 1)
            }
            None => write!(f, "'{text}' ends too early: expected {expected}"),
        }
    }
}

impl std::error::Error for ParseError {}

#[cfg(test)]
mod tests {
    use super::*;

    /// The caret's column is counted in characters, even after control and multi-byte characters.
    #[test]
    fn caret_stands_under_the_character() {
        let error = ParseError::new("é\n!", 3, "nothing");
        assert_eq!(error.to_string(), "é\u{fffd}!\n  ^ expected nothing");
        assert_eq!(format!("{error:#}"), "'é\u{fffd}!', character 3: expected nothing, found '!'");
    }

    /// The caret of a text that ends too early is after its last character.
    #[test]
    fn caret_stands_after_a_text_that_ends_too_early() {
        let error = ParseError::new("ab", 2, "more");
        assert_eq!(error.to_string(), "ab\n  ^ expected more");
        assert_eq!(error.found(), None);
        assert_eq!(format!("{error:#}"), "'ab' ends too early: expected more");
    }
}
