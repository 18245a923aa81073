//! Types and ranges of options' values.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::RangeInclusive;

use serde_json::{Value, json};

use crate::mac::Mac;

/// Type and range of an option, or of a key of the configuration file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OptionShape {
    /// True or false; on the command line, a flag without a value.
    Flag,
    /// A whole number in this range, both ends included.
    Number(u32, u32),
    /// One of these numbers; a flag without a value on the command line selects the last number.
    OneOf(&'static [u32]),
    /// A number, at least 0.
    Factor,
    /// Any text.
    Text,
    /// An Ethernet address.
    Address,
    /// Permission bits, octal.
    Mode,
    /// Permission bits of a socket, octal, that let its owner connect.
    OwnersMode,
    /// A list of texts in any syntax.
    Texts,
    /// A list of whole numbers in this range, both ends included; in the form of `taskset -c` on the command line.
    Numbers(u32, u32),
    /// `on` or `off` on the command line, true or false in JSON.
    Switch,
    /// Text of this syntax.
    Written(&'static Syntax),
    /// A list of texts of this syntax; the flag is repeated on the command line.
    List(&'static Syntax),
    /// Policies of ports, keyed by the names of switches.
    Policies,
}

/// Maximum number of entries of a list.
const MOST: usize = 64;

/// The syntax of an option's text.
pub struct Syntax {
    /// A description with an example, which follows "expected" in messages.
    pub what: &'static str,
    /// An example of such a text, for the JSON Schema.
    pub example: &'static str,
    /// Returns whether a text has this syntax.
    pub check: fn(&str) -> bool,
}

impl fmt::Debug for Syntax {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)
    }
}

impl PartialEq for Syntax {
    fn eq(&self, other: &Syntax) -> bool {
        self.what == other.what
    }
}

impl OptionShape {
    /// Returns whether a value has this shape.
    #[must_use]
    pub fn admits(self, value: &Value) -> bool {
        let number_of = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok());
        let number = number_of(value);
        match self {
            OptionShape::Flag | OptionShape::Switch => value.is_boolean(),
            OptionShape::Written(syntax) => value.as_str().is_some_and(syntax.check),
            OptionShape::List(syntax) => {
                let fits = |value: &Value| value.as_str().is_some_and(syntax.check);
                value.as_array().is_some_and(|list| (1..=MOST).contains(&list.len()) && list.iter().all(fits))
            }
            OptionShape::Number(least, most) => number.is_some_and(|number| (least..=most).contains(&number)),
            OptionShape::OneOf(choices) => number.is_some_and(|number| choices.contains(&number)),
            OptionShape::Factor => value.as_f64().is_some_and(|factor| factor.is_finite() && factor >= 0.0),
            OptionShape::Text => value.is_string(),
            OptionShape::Address => value.as_str().is_some_and(|text| text.parse::<Mac>().is_ok()),
            OptionShape::Mode => value.as_str().is_some_and(|text| mode(text).is_some()),
            OptionShape::OwnersMode => value.as_str().is_some_and(|text| owners_mode(text).is_some()),
            OptionShape::Texts => value.as_array().is_some_and(|list| list.iter().all(Value::is_string)),
            OptionShape::Numbers(least, most) => {
                let fits = |value: &Value| number_of(value).is_some_and(|number| (least..=most).contains(&number));
                value.as_array().is_some_and(|list| (1..=MOST).contains(&list.len()) && list.iter().all(fits))
            }
            OptionShape::Policies => value.as_object().is_some_and(|tables| tables.values().all(Value::is_object)),
        }
    }

    /// Like [`OptionShape::admits`], but accepts any text where a syntax is required; the option's type checks the
    /// syntax.
    pub(super) fn admits_unread(self, value: &Value) -> bool {
        match self {
            OptionShape::Written(_) => value.is_string(),
            OptionShape::List(_) => value.as_array().is_some_and(|list| (1..=MOST).contains(&list.len())),
            shape => shape.admits(value),
        }
    }

    /// Returns this shape as a JSON Schema.
    #[must_use]
    pub fn schema(self) -> Value {
        match self {
            OptionShape::Flag | OptionShape::Switch => json!({"type": "boolean"}),
            OptionShape::Written(syntax) => json!({"type": "string", "examples": [syntax.example]}),
            OptionShape::List(_) => {
                json!({"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": MOST})
            }
            OptionShape::Number(least, most) => json!({"type": "integer", "minimum": least, "maximum": most}),
            OptionShape::OneOf(choices) => json!({"enum": choices}),
            OptionShape::Factor => json!({"type": "number", "minimum": 0}),
            OptionShape::Text => json!({"type": "string"}),
            OptionShape::Address => json!({"type": "string", "pattern": "^[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}$"}),
            OptionShape::Mode => json!({"type": "string", "pattern": "^0?[0-7]{3}$"}),
            OptionShape::OwnersMode => json!({"type": "string", "pattern": "^0?[2367][0-7]{2}$"}),
            OptionShape::Texts => json!({"type": "array", "items": {"type": "string"}}),
            OptionShape::Numbers(least, most) => {
                let items = OptionShape::Number(least, most).schema();
                json!({"type": "array", "items": items, "minItems": 1, "maxItems": MOST})
            }
            OptionShape::Policies => json!({"type": "object", "additionalProperties": {"type": "object"}}),
        }
    }

    /// Reads the value from a word of a command line. Fails for [`OptionShape::Flag`] and [`OptionShape::Policies`],
    /// which have no such word.
    ///
    /// # Errors
    /// The expected form, if the word does not have this shape.
    pub fn parse(self, word: &str) -> Result<Value, String> {
        let value = match self {
            OptionShape::Text
            | OptionShape::Address
            | OptionShape::Mode
            | OptionShape::OwnersMode
            | OptionShape::Written(_) => word.into(),
            OptionShape::Switch => match word {
                "on" | "true" => true.into(),
                "off" | "false" => false.into(),
                _ => Value::Null,
            },
            OptionShape::Number(..) | OptionShape::OneOf(_) => word.parse::<u32>().map_or(Value::Null, Value::from),
            OptionShape::Factor => word.parse::<f64>().map_or(Value::Null, Value::from),
            OptionShape::List(_) | OptionShape::Texts => json!([word]),
            OptionShape::Numbers(least, most) => numbers(word, least..=most)?.into(),
            OptionShape::Flag | OptionShape::Policies => Value::Null,
        };
        if self.admits(&value) { Ok(value) } else { Err(format!("expected {self}")) }
    }
}

/// Writes the expected form, which follows "expected" in messages.
impl fmt::Display for OptionShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OptionShape::Flag => f.write_str("true or false"),
            OptionShape::Switch => f.write_str("on (true) or off (false)"),
            OptionShape::Written(syntax) => f.write_str(syntax.what),
            OptionShape::List(syntax) => write!(f, "a list of at most {MOST}, each {}", syntax.what),
            OptionShape::Number(least, most) => write!(f, "a number from {least} to {most}"),
            OptionShape::OneOf(choices) => f.write_str(&super::listed(choices.iter(), "or")),
            OptionShape::Factor => f.write_str("a number from 0, such as 2.5"),
            OptionShape::Text => f.write_str("text"),
            OptionShape::Address => f.write_str("an Ethernet address such as 02:00:00:00:00:0a"),
            OptionShape::Mode => f.write_str("octal permission bits such as 0660"),
            OptionShape::OwnersMode => f.write_str("octal permission bits such as 0660, with w (2) for the owner"),
            OptionShape::Texts => f.write_str("a list of texts"),
            OptionShape::Numbers(least, most) => write!(f, "a list of at most {MOST} numbers from {least} to {most}"),
            OptionShape::Policies => f.write_str("tables of policies, keyed by the names of switches"),
        }
    }
}

/// Returns the permission bits of a text of three octal digits, optionally after a 0; `None` for any other text.
///
/// ```
/// use netvale_control::options::mode;
///
/// assert_eq!((mode("0660"), mode("600")), (Some(0o660), Some(0o600)));
/// assert_eq!((mode("4777"), mode("66"), mode("+66"), mode("")), (None, None, None, None));
/// ```
#[must_use]
pub fn mode(text: &str) -> Option<u32> {
    let digits = if text.len() == 4 { text.strip_prefix('0')? } else { text };
    let is_octal = digits.len() == 3 && digits.bytes().all(|digit| (b'0'..=b'7').contains(&digit));
    is_octal.then(|| u32::from_str_radix(digits, 8).ok())?
}

/// Returns the permission bits of a socket; `None` if the text is invalid, or lacks the write permission that the owner
/// needs to connect.
///
/// ```
/// use netvale_control::options::owners_mode;
///
/// assert_eq!((owners_mode("0660"), owners_mode("0222")), (Some(0o660), Some(0o222)));
/// assert_eq!((owners_mode("0066"), owners_mode("0466"), owners_mode("0o66")), (None, None, None));
/// ```
#[must_use]
pub fn owners_mode(text: &str) -> Option<u32> {
    mode(text).filter(|bits| bits & 0o200 != 0)
}

/// Reads numbers in the form of `taskset -c`: `0`, `0,2`, `0-3,8`. The result is sorted, without duplicates, and never
/// empty.
///
/// # Errors
/// The expected form and the text found.
///
/// ```
/// use netvale_control::options::numbers;
///
/// assert_eq!(numbers("3,0-1,1", 0..=1023), Ok(vec![0, 1, 3]));
/// assert!(numbers("3-1", 0..=1023).is_err_and(|why| why.contains("write it 1-3")));
/// for wrong in ["", ",", "a", "1-", "-1", "0,,1", "1024", "0-99999999999"] {
///     assert!(numbers(wrong, 0..=1023).is_err(), "{wrong}");
/// }
/// ```
pub fn numbers(text: &str, range: RangeInclusive<u32>) -> Result<Vec<u32>, String> {
    let number = |text: &str| match text.parse::<u32>() {
        Ok(number) if range.contains(&number) => Ok(number),
        _ => Err(format!("invalid number {text:?}: expected {} to {}, e.g. 0,2-3", range.start(), range.end())),
    };
    let mut all = BTreeSet::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first = number(first)?;
        let last = number(last)?;
        if first > last {
            return Err(format!("the range {part} is reversed; write it {last}-{first}"));
        }
        all.extend(first..=last);
    }
    Ok(all.into_iter().collect())
}
