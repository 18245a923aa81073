//! A parser's cursor: a text, and the position up to which it has been parsed.

use crate::{MAX_TEXT, ParseError};

pub(crate) type SpecResult<T> = Result<T, ParseError>;

/// Reads a text from left to right. The position is always on a character boundary.
pub(crate) struct Cursor<'a> {
    text: &'a str,
    pos: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(text: &'a str) -> SpecResult<Self> {
        if text.len() > MAX_TEXT {
            let shown = text.get(..text.floor_char_boundary(MAX_TEXT)).unwrap_or_default();
            return Err(ParseError::new(shown, MAX_TEXT, format!("at most {MAX_TEXT} bytes")));
        }
        Ok(Self { text, pos: 0 })
    }

    /// Parses all of `text` with `parser`; if text remains, fails with `end` as the expected text.
    pub(crate) fn all<T>(text: &'a str, end: &str, parser: impl FnOnce(&mut Self) -> SpecResult<T>) -> SpecResult<T> {
        let mut cursor = Self::new(text)?;
        let value = parser(&mut cursor)?;
        if cursor.peek().is_some() { Err(cursor.fail(end)) } else { Ok(value) }
    }

    pub(crate) fn pos(&self) -> usize {
        self.pos
    }

    /// Returns to a position that [`Self::pos`] returned.
    pub(crate) fn rewind(&mut self, pos: usize) {
        self.pos = pos;
    }

    pub(crate) fn rest(&self) -> &'a str {
        self.text.get(self.pos..).unwrap_or_default()
    }

    /// Returns the text from `start` to the position.
    pub(crate) fn since(&self, start: usize) -> &'a str {
        self.text.get(start..self.pos).unwrap_or_default()
    }

    pub(crate) fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Takes `word` if it comes next. Returns whether `word` was taken.
    pub(crate) fn eat(&mut self, word: &str) -> bool {
        let found = self.rest().starts_with(word);
        if found {
            self.pos += word.len();
        }
        found
    }

    /// Takes `word`, or fails with `expected` in the error if something else comes next.
    pub(crate) fn expect(&mut self, word: &str, expected: &str) -> SpecResult<()> {
        if self.eat(word) { Ok(()) } else { Err(self.fail(expected)) }
    }

    /// Takes the longest run of characters that `keep` accepts, possibly empty.
    pub(crate) fn take_while(&mut self, keep: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let len = rest.find(|c| !keep(c)).unwrap_or(rest.len());
        self.pos += len;
        rest.get(..len).unwrap_or_default()
    }

    /// Takes a number in `range`, decimal or (radix 16) hexadecimal; `what` names the number in the error.
    pub(crate) fn number(&mut self, radix: u32, range: std::ops::RangeInclusive<u64>, what: &str) -> SpecResult<u64> {
        let start = self.pos;
        let digits = self.take_while(|c| c.is_digit(radix));
        if digits.is_empty() {
            return Err(self.fail(what));
        }
        u64::from_str_radix(digits, radix).ok().filter(|n| range.contains(n)).ok_or_else(|| {
            let (low, high) = range.into_inner();
            let bounds = if radix == 16 { format!("{low:x} to {high:x}") } else { format!("{low} to {high}") };
            self.fail_at(start, format!("{what} from {bounds}"))
        })
    }

    /// Creates an error at the position.
    pub(crate) fn fail(&self, expected: impl Into<String>) -> ParseError {
        self.fail_at(self.pos, expected)
    }

    /// Creates an error at a position that [`Self::pos`] returned.
    pub(crate) fn fail_at(&self, pos: usize, expected: impl Into<String>) -> ParseError {
        ParseError::new(self.text, pos, expected)
    }
}

/// Implements `FromStr` through the type's own `parse`, for `"…".parse()` and argument parsers.
macro_rules! from_str {
    ($($name:ident),*) => {
        $(impl std::str::FromStr for $name {
            type Err = crate::ParseError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::parse(text)
            }
        })*
    };
}
pub(crate) use from_str;
