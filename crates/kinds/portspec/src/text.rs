//! The words and numbers of the grammar, each a type that holds only valid values.

use std::fmt;

use netvale_abi::legacy::NETMAP_RING_MASK;
use netvale_abi::netif::IFNAMSIZ;
use netvale_abi::nmreq::{NETMAP_REQ_IFNAMSIZ, NM_BDG_NAME};

use crate::ParseError;
use crate::cursor::{Cursor, SpecResult, from_str};
use crate::kinds::is_kind;
use crate::printable::is_hidden;
use crate::word::{RingSuffix, Word, is_word, write_word};

/// Maximum length of a name in bytes: `nr_name` without its terminating NUL.
const MAX_NAME: usize = NETMAP_REQ_IFNAMSIZ - 1;
/// Maximum length of a socket path in bytes: `sun_path` without its terminating NUL.
const MAX_SOCKET_PATH: usize = 107;
/// Maximum length of a path in bytes: Linux's `PATH_MAX` without its terminating NUL.
const MAX_PATH: usize = 4095;

fn is_path(c: char) -> bool {
    !is_hidden(c)
}

/// Implements access to the text of a type around a `String`, and `FromStr`.
macro_rules! as_text {
    ($name:ident) => {
        impl $name {
            /// Returns the text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        from_str!($name);
    };
}

/// Defines a type around a `String`: the longest run of characters that `$keep` accepts, of 1 to `$max` bytes, for
/// which `$holds` returns true.
macro_rules! text_type {
    ($(#[$doc:meta])* $name:ident: $what:literal, max $max:expr, $keep:expr, $holds:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// Parses `text`; the error points at the first wrong character.
            pub fn parse(text: &str) -> Result<Self, ParseError> {
                Cursor::all(text, concat!("the end of ", $what), |c| Self::take(c, $what))
            }

            /// Takes a value off the cursor; `expected` describes it in the error.
            pub(crate) fn take(cursor: &mut Cursor<'_>, expected: &str) -> SpecResult<Self> {
                let start = cursor.pos();
                let text = cursor.take_while($keep);
                let holds: fn(&str) -> bool = $holds;
                if text.is_empty() || !holds(text) {
                    return Err(cursor.fail_at(start, expected));
                }
                if text.len() > $max {
                    let most = format!("at most {} bytes in {}", $max, $what);
                    return Err(cursor.fail_at(start + $max, most));
                }
                Ok(Self(text.to_owned()))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        as_text!($name);
    };
}

/// Defines a type around a `String`: a [`Word`] of 1 to `$max` bytes for which `$holds` returns true. In quotes, a word
/// may have all characters that `$quoted` accepts.
macro_rules! word_type {
    ($(#[$doc:meta])* $name:ident: $what:literal, max $max:expr, $quoted:expr, $holds:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// Parses `text`; the error points at the first wrong character.
            pub fn parse(text: &str) -> Result<Self, ParseError> {
                let end = concat!("the end of ", $what);
                let name = Cursor::all(text, end, |c| Self::take(c, RingSuffix::IsOfTheName, $what))?;
                // Names are compared as texts, so only one spelling is accepted.
                if name.to_string() == text { Ok(name) } else { Err(ParseError::new(text, 0, "a name without quotes")) }
            }

            /// Takes a value off the cursor; `expected` describes it in the error.
            pub(crate) fn take(cursor: &mut Cursor<'_>, ring: RingSuffix, expected: &str) -> SpecResult<Self> {
                let word = Word::take(cursor, ring)?;
                let quoted: fn(char) -> bool = $quoted;
                let holds: fn(&str) -> bool = $holds;
                if let Some(at) = word.text.find(|c| !quoted(c)) {
                    return Err(cursor.fail_at(word.start + at, $what));
                }
                if !word.is_name() || !holds(word.text) {
                    return Err(cursor.fail_at(word.start, expected));
                }
                if word.text.len() > $max {
                    let most = format!("at most {} bytes in {}", $max, $what);
                    return Err(cursor.fail_at(word.start + $max, most));
                }
                Ok(Self(word.text.to_owned()))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write_word(f, &self.0, false)
            }
        }

        as_text!($name);
    };
}

word_type! {
    /// A port's name on a switch, or a pipe's id: 1 to 63 letters, digits, `_`, `.` or `-`, not beginning with `-`.
    Ident: "a name of letters, digits, '_', '.' or '-', which does not begin with '-'", max MAX_NAME, is_word, |_| true
}

word_type! {
    /// A network interface's name: 1 to 63 letters, digits, `_`, `.` or `-`, not beginning with `-`; in quotes, also
    /// other characters that Linux accepts. It does not begin with `vale`, which netmap reserves for switch ports.
    IfName: "an interface's name, not 'vale...', in quotes if it is unusual",
    max MAX_NAME, |c| is_path(c) && !c.is_whitespace() && !matches!(c, '/' | ':'),
    |name| !name.starts_with(NM_BDG_NAME)
}

word_type! {
    /// A switch's name, with the characters of a port's name. It leaves room for a port name of one character, and is
    /// not a word that names a kind of port before a colon.
    SwitchName: "a switch's name: letters, digits, '_', '.' or '-', no kind of port such as 'tap'", max MAX_NAME - 2,
    is_word, |name| !is_kind(name)
}

impl SwitchName {
    /// Returns the switch in a port's full name; `None` for a port on no switch, such as `netmap:eth0`.
    pub fn of_port(full: &str) -> Option<&str> {
        let (switch, _) = full.split_once(':')?;
        Self::parse(switch).ok().map(|_| switch)
    }
}

text_type! {
    /// A TAP device's name: 1 to 15 bytes that Linux accepts in an interface's name, but no `%`, which the kernel would
    /// replace with a number.
    TapName: "a device name: no '/', ':', '%' or space, not '.' or '..'", max IFNAMSIZ - 1,
    |c| is_path(c) && !c.is_whitespace() && !matches!(c, '/' | ':' | '%'), |name| !matches!(name, "." | "..")
}

text_type! {
    /// A file's path, without commas (which separate values) or control characters.
    FilePath: "a file's path without ',' and control characters", max MAX_PATH, |c| is_path(c) && c != ',',
    |_| true
}

text_type! {
    /// The path of an `@extmem` file, without `,` and `@` (which separate values and options) or control characters.
    ExtmemFile: "a file's path without ',', '@' and control characters", max MAX_PATH,
    |c| is_path(c) && !matches!(c, ',' | '@'), |_| true
}

text_type! {
    /// A UNIX socket's path: absolute, at most 107 bytes, without control characters.
    SocketPath: "a socket's path that begins with '/'", max MAX_SOCKET_PATH, is_path, |path| path.starts_with('/')
}

impl Ident {
    /// Returns the name `port`, for a port whose name cannot be derived from anything else.
    pub(crate) fn default_port() -> Self {
        Self("port".to_owned())
    }
}

/// A number in `MIN..=MAX`.
///
/// ```
/// use netvale_portspec::RingIndex;
/// assert_eq!(RingIndex::new(4094).map(|ring| ring.get()), Some(4094));
/// assert_eq!(RingIndex::new(4095), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bounded<const MIN: u16, const MAX: u16>(u16);

/// Index of a ring, 0 to 4,094: the values that fit `nr_ringid`.
pub type RingIndex = Bounded<0, { NETMAP_RING_MASK - 1 }>;
/// Number of bits of a slot's `ptr` that hold an offset, 1 to 64.
pub type OffsetBits = Bounded<1, 64>;

impl<const MIN: u16, const MAX: u16> Bounded<MIN, MAX> {
    /// Returns `value` if it is within `MIN..=MAX`.
    pub fn new(value: u16) -> Option<Self> {
        (MIN..=MAX).contains(&value).then_some(Self(value))
    }

    /// Returns the number.
    pub fn get(self) -> u16 {
        self.0
    }

    /// Takes a decimal number off the cursor; `what` names it in the error.
    pub(crate) fn take(cursor: &mut Cursor<'_>, what: &str) -> SpecResult<Self> {
        let start = cursor.pos();
        let value = cursor.number(10, u64::from(MIN)..=u64::from(MAX), what)?;
        u16::try_from(value).map(Self).map_err(|_| cursor.fail_at(start, what))
    }
}

impl<const MIN: u16, const MAX: u16> fmt::Display for Bounded<MIN, MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
