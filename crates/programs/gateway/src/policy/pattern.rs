//! Names in rules: a single name, or all names below a name ([`NamePattern`]).

use std::fmt;
use std::str::FromStr;

use crate::net::MAX_LABEL;

/// Maximum length of a name in characters, without the last dot (RFC 1035 §2.3.4).
const MAX_NAME: usize = 253;

/// A single name, such as `example.com`, or all names below a name, such as `*.example.org`. Names are in lower case,
/// without the last dot.
///
/// A pattern `*.example.org` matches names with one or more labels before `example.org`, but not `example.org` itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamePattern {
    name: String,
    /// Whether the pattern matches the names below `name`, but not `name` itself.
    is_below: bool,
}

impl NamePattern {
    /// Returns whether a name matches; the name must be in lower case and without the last dot.
    pub fn matches(&self, name: &str) -> bool {
        if !self.is_below {
            return name == self.name;
        }
        name.strip_suffix(&self.name).and_then(|head| head.strip_suffix('.')).is_some_and(|head| !head.is_empty())
    }

    /// Returns whether the pattern is one name.
    pub fn is_one_name(&self) -> bool {
        !self.is_below
    }

    /// Returns the number of labels. Of two `*.` patterns, the pattern with more labels is more specific.
    pub fn labels(&self) -> u8 {
        // A name has at most 127 labels.
        self.name.split('.').count() as u8
    }
}

impl FromStr for NamePattern {
    type Err = ();

    /// Parses a pattern. A name of one label must end with a dot, because a word such as `all` is more likely a mistake
    /// for `any` than a name.
    fn from_str(text: &str) -> Result<Self, ()> {
        let below = text.strip_prefix("*.");
        let given = below.unwrap_or(text);
        let name = given.strip_suffix('.').unwrap_or(given).to_ascii_lowercase();
        let is_qualified = name.contains('.') || given.ends_with('.') || below.is_some();
        let is_label = |label: &str| {
            let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
            (1..=MAX_LABEL).contains(&label.len()) && label.bytes().all(is_letter)
        };
        let is_name = name.len() <= MAX_NAME && name.split('.').all(is_label) && !ends_in_number(&name);
        if is_name && is_qualified { Ok(NamePattern { name, is_below: below.is_some() }) } else { Err(()) }
    }
}

/// Returns whether the last label is a number. Such text is a mistyped IPv4 address, not a name.
fn ends_in_number(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default();
    let digits = last.strip_prefix("0x").unwrap_or(last);
    last.bytes().all(|byte| byte.is_ascii_digit())
        || (last.starts_with("0x") && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let below = if self.is_below { "*." } else { "" };
        let dot = if self.is_below || self.name.contains('.') { "" } else { "." };
        write!(f, "{below}{}{dot}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> NamePattern {
        text.parse().expect("a pattern")
    }

    #[test]
    fn a_name_matches_itself_in_any_spelling() {
        for text in ["example.com", "Example.COM", "example.com."] {
            assert!(pattern(text).matches("example.com"), "{text}");
            assert_eq!(pattern(text).to_string(), "example.com");
        }
        for other in ["www.example.com", "example.co", "xample.com", "com", ""] {
            assert!(!pattern("example.com").matches(other), "{other}");
        }
        assert_eq!(pattern("db.").to_string(), "db.");
    }

    #[test]
    fn a_star_stands_for_one_or_more_labels() {
        let below = pattern("*.Example.org.");
        assert!(below.matches("a.example.org") && below.matches("a.b.example.org"));
        for other in ["example.org", ".example.org", "badexample.org", "a.example.org.net", "example.orga"] {
            assert!(!below.matches(other), "{other}");
        }
        assert_eq!(below.to_string(), "*.example.org");
    }

    #[test]
    fn text_that_is_no_name_is_refused() {
        let long = format!("{}.com", "a".repeat(64));
        let longer = format!("{}com", "a.".repeat(126));
        for text in [
            "",
            ".",
            "*",
            "*.",
            "**.a.b",
            "a.*.b",
            "*a.b",
            "all",
            "a..b",
            ".a.b",
            "a.b..",
            "10.0.0",
            "1.2.3.4.5",
            "a.0x7f",
            "ex ample.com",
            "exämple.com",
            "a/b.c",
            &long,
            &longer,
        ] {
            assert!(text.parse::<NamePattern>().is_err(), "{text}");
        }
        for text in ["xn--exmple-cua.com", "_443._tcp.example.com", "r3---sn.example.net", "*.lan", "1.example"] {
            assert!(text.parse::<NamePattern>().is_ok(), "{text}");
        }
    }
}
