//! What a value may be.

use std::fmt;

use serde_json::{Value, json};

use crate::mac::Mac;

/// Type and range of an option, or of a key of the configuration file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// True or false; a flag of its own on the command line.
    Flag,
    /// A whole number between these, both included.
    Number(u32, u32),
    /// One of these; on the command line the last one, if none is said.
    OneOf(&'static [u32]),
    /// A number from 0.
    Factor,
    /// Text.
    Text,
    /// An Ethernet address.
    Address,
    /// Permission bits, octal.
    Mode,
    /// A list of texts.
    Texts,
    /// A list of whole numbers from 0.
    Numbers,
    /// On or off: true or false.
    Switch,
    /// Text of that syntax.
    Written(&'static Syntax),
    /// A list of such texts; on the command line, each time one.
    List(&'static Syntax),
    /// Policies of ports by the names of switches.
    Policies,
}

/// Entries of a list.
const MOST: usize = 64;

/// How a text is written.
pub struct Syntax {
    /// What it is, with an example, to stand behind "it is".
    pub what: &'static str,
    /// An example.
    pub example: &'static str,
    /// Whether a text is written so.
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

impl Shape {
    /// Whether a value has this shape.
    #[must_use]
    pub fn admits(self, value: &Value) -> bool {
        let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
        match self {
            Shape::Flag | Shape::Switch => value.is_boolean(),
            Shape::Written(syntax) => value.as_str().is_some_and(syntax.check),
            Shape::List(syntax) => {
                let fits = |value: &Value| value.as_str().is_some_and(syntax.check);
                value.as_array().is_some_and(|list| !list.is_empty() && list.len() <= MOST && list.iter().all(fits))
            }
            Shape::Number(least, most) => number.is_some_and(|number| (least..=most).contains(&number)),
            Shape::OneOf(choices) => number.is_some_and(|number| choices.contains(&number)),
            Shape::Factor => value.as_f64().is_some_and(|factor| factor.is_finite() && factor >= 0.0),
            Shape::Text => value.is_string(),
            Shape::Address => value.as_str().is_some_and(|text| text.parse::<Mac>().is_ok()),
            Shape::Mode => value.as_str().is_some_and(|text| mode(text).is_some()),
            Shape::Texts => value.as_array().is_some_and(|list| list.iter().all(Value::is_string)),
            Shape::Numbers => value.as_array().is_some_and(|list| list.iter().all(Value::is_u64)),
            Shape::Policies => value.as_object().is_some_and(|tables| tables.values().all(Value::is_object)),
        }
    }

    /// The same as a JSON Schema.
    #[must_use]
    pub fn schema(self) -> Value {
        match self {
            Shape::Flag | Shape::Switch => json!({"type": "boolean"}),
            Shape::Written(syntax) => json!({"type": "string", "examples": [syntax.example]}),
            Shape::List(_) => json!({"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": MOST}),
            Shape::Number(least, most) => json!({"type": "integer", "minimum": least, "maximum": most}),
            Shape::OneOf(choices) => json!({"enum": choices}),
            Shape::Factor => json!({"type": "number", "minimum": 0}),
            Shape::Text => json!({"type": "string"}),
            Shape::Address => json!({"type": "string", "pattern": "^[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}$"}),
            Shape::Mode => json!({"type": "string", "pattern": "^0?[0-7]{3}$"}),
            Shape::Texts => json!({"type": "array", "items": {"type": "string"}}),
            Shape::Numbers => json!({"type": "array", "items": {"type": "integer", "minimum": 0}}),
            Shape::Policies => json!({"type": "object", "additionalProperties": {"type": "object"}}),
        }
    }

    /// The value that a word of a command line stands for. A flag has no word.
    ///
    /// # Errors
    /// What is expected, if it has not this shape.
    pub fn parse(self, word: &str) -> Result<Value, String> {
        let value = match self {
            Shape::Text | Shape::Address | Shape::Mode | Shape::Written(_) => word.into(),
            Shape::Switch => match word {
                "on" | "true" => true.into(),
                "off" | "false" => false.into(),
                _ => Value::Null,
            },
            Shape::Number(..) | Shape::OneOf(_) => word.parse::<u32>().map_or(Value::Null, Value::from),
            Shape::Factor => word.parse::<f64>().map_or(Value::Null, Value::from),
            Shape::List(_) => json!([word]),
            Shape::Flag | Shape::Texts | Shape::Numbers | Shape::Policies => Value::Null,
        };
        if self.admits(&value) { Ok(value) } else { Err(format!("{self} is expected")) }
    }
}

/// What is expected, to stand behind "it is".
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Shape::Flag => f.write_str("true or false"),
            Shape::Switch => f.write_str("on (true) or off (false)"),
            Shape::Written(syntax) => f.write_str(syntax.what),
            Shape::List(syntax) => write!(f, "a list of at most {MOST}, each {}", syntax.what),
            Shape::Number(least, most) => write!(f, "a number from {least} to {most}"),
            Shape::OneOf(choices) => f.write_str(&super::listed(choices.iter(), "or")),
            Shape::Factor => f.write_str("a number from 0, such as 2.5"),
            Shape::Text => f.write_str("text"),
            Shape::Address => f.write_str("an Ethernet address such as 02:00:00:00:00:0a"),
            Shape::Mode => f.write_str("octal permission bits such as 0660"),
            Shape::Texts => f.write_str("a list of texts"),
            Shape::Numbers => f.write_str("a list of numbers from 0"),
            Shape::Policies => f.write_str("tables of policies by the names of switches"),
        }
    }
}

/// The permission bits that a text of three octal digits, perhaps behind a 0, stands for.
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
