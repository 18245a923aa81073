//! Names in a text: quoted, or the longest run of letters, digits, `_`, `.` and `-`.

use std::fmt;

use netvale_abi::legacy::NETMAP_RING_MASK;

use crate::cursor::{Cursor, SpecResult};

/// Returns whether a word may contain `c` without quotes.
pub(crate) fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-')
}

/// The part of a port's text to which a trailing `-` and number belong.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RingSuffix {
    /// The name, because no ring can follow it.
    IsOfTheName,
    /// The rings after the name, unless more of the name follows.
    MayFollow,
}

/// A name taken off a text, without its quotes.
pub(crate) struct Word<'a> {
    /// The name.
    pub text: &'a str,
    /// Position of the name in the text, after any quote.
    pub start: usize,
}

impl<'a> Word<'a> {
    /// Takes the next word, which may be empty.
    pub(crate) fn take(cursor: &mut Cursor<'a>, ring: RingSuffix) -> SpecResult<Self> {
        let before = cursor.pos();
        if cursor.eat("'") {
            let start = cursor.pos();
            let text = cursor.take_while(|c| c != '\'');
            let closed = cursor.eat("'");
            return if closed { Ok(Self { text, start }) } else { Err(cursor.fail_at(before, "a second quote (')")) };
        }
        let mut text = cursor.take_while(is_word);
        let is_last = !matches!(cursor.peek(), Some(':' | '{' | '}'));
        if let Some(name) = before_ring(text).filter(|_| is_last && ring == RingSuffix::MayFollow) {
            text = name;
            cursor.rewind(before + name.len());
        }
        Ok(Self { text, start: before })
    }

    /// Returns whether the word can be a name. A name that begins with `-` would look like a command's option.
    pub(crate) fn is_name(&self) -> bool {
        !self.text.is_empty() && !self.text.starts_with('-') && !matches!(self.text, "." | "..")
    }
}

/// Returns the part of `word` before a trailing `-` and ring number, or before a trailing `-` without a number; `None`
/// if `word` ends in neither.
pub(crate) fn before_ring(word: &str) -> Option<&str> {
    let (name, digits) = word.rsplit_once('-')?;
    let is_ring = digits.is_empty() || digits.parse().is_ok_and(|number: u16| number < NETMAP_RING_MASK);
    is_ring.then_some(name)
}

/// Writes a name, in quotes if requested or needed.
pub(crate) fn write_word(f: &mut fmt::Formatter<'_>, word: &str, in_quotes: bool) -> fmt::Result {
    if in_quotes || !word.chars().all(is_word) { write!(f, "'{word}'") } else { f.write_str(word) }
}
