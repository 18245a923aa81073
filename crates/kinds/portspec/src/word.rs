//! Names in a text: in quotes, or the longest run of letters, digits, `_`, `.` and `-`.

use std::fmt;

use netvale_abi::legacy::NETMAP_RING_MASK;

use crate::cursor::{Cursor, Parsed};

/// Whether a word may have `c` without quotes.
pub(crate) fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-')
}

/// The owner of `-` and a ring number at a word's end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ring {
    /// The name: no ring can follow.
    IsOfTheName,
    /// The rings after the name, unless more of the name follows.
    MayFollow,
}

/// A name taken off a text.
pub(crate) struct Word<'a> {
    /// The name, without quotes.
    pub text: &'a str,
    /// Its position in the text, after any quote.
    pub start: usize,
}

impl<'a> Word<'a> {
    /// Takes the next word, which may be empty.
    pub(crate) fn take(cursor: &mut Cursor<'a>, ring: Ring) -> Parsed<Self> {
        let before = cursor.pos();
        if cursor.eat("'") {
            let start = cursor.pos();
            let text = cursor.take_while(|c| c != '\'');
            let closed = cursor.eat("'");
            return if closed { Ok(Self { text, start }) } else { Err(cursor.fail_at(before, "a second quote (')")) };
        }
        let mut text = cursor.take_while(is_word);
        let is_last = !matches!(cursor.peek(), Some(':' | '{' | '}'));
        if let Some(name) = before_ring(text).filter(|_| is_last && ring == Ring::MayFollow) {
            text = name;
            cursor.rewind(before + name.len());
        }
        Ok(Self { text, start: before })
    }

    /// Whether it can be a name. A name that begins with `-` would look like a command's option.
    pub(crate) fn is_name(&self) -> bool {
        !self.text.is_empty() && !self.text.starts_with('-') && !matches!(self.text, "." | "..")
    }
}

/// The word before a trailing `-` and ring number, or before a trailing `-` that lacks its number.
pub(crate) fn before_ring(word: &str) -> Option<&str> {
    let (name, digits) = word.rsplit_once('-')?;
    let is_ring = digits.is_empty() || digits.parse().is_ok_and(|number: u16| number < NETMAP_RING_MASK);
    is_ring.then_some(name)
}

/// Writes a name, in quotes if asked for or needed.
pub(crate) fn write_word(f: &mut fmt::Formatter<'_>, word: &str, in_quotes: bool) -> fmt::Result {
    if in_quotes || !word.chars().all(is_word) { write!(f, "'{word}'") } else { f.write_str(word) }
}
