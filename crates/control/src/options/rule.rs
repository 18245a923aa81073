//! Rules of filters in text form: the action, the compiled program, and the expression from which the program was
//! compiled.
//!
//! ```
//! use netvale_control::options::CompiledRule;
//!
//! let rule: CompiledRule = "drop 1,6 0 0 1 # ip".parse()?;
//! assert!(rule.drops && rule.program.run(&[], 60) == Ok(1));
//! assert_eq!((rule.expression.as_deref(), rule.to_string().as_str()), (Some("ip"), "drop 1,6 0 0 1 # ip"));
//! # Ok::<(), netvale_control::options::BadRule>(())
//! ```

use std::fmt;
use std::str::FromStr;

use netvale_policy::bpf::{BpfTextError, FilterProgram};

use super::written::{Notation, WrittenValue};

/// Maximum length of an expression in characters.
const MOST: usize = 1024;

/// A filter rule with its compiled program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompiledRule {
    /// Whether matching frames are dropped.
    pub drops: bool,
    /// The verified program.
    pub program: FilterProgram,
    /// The expression from which the program was compiled, for people; `None` if unknown.
    pub expression: Option<String>,
}

/// A rule in a configuration, compiled or not.
#[derive(Clone, Debug)]
pub enum ConfiguredRule {
    /// An action with an expression that is not compiled.
    Source {
        /// Whether matching frames are dropped.
        drops: bool,
        /// The expression that frames must match.
        expression: String,
    },
    /// The compiled rule.
    Compiled(CompiledRule),
}

/// A filter's rules, each with its text; `None` if the filter is not set.
pub type ConfiguredRules = Option<Vec<WrittenValue<ConfiguredRule>>>;

impl Notation for ConfiguredRule {
    fn read(text: &str) -> Option<ConfiguredRule> {
        text.parse().ok()
    }
}

/// The value's text is the text form of the compiled rule.
impl From<CompiledRule> for WrittenValue<ConfiguredRule> {
    fn from(rule: CompiledRule) -> Self {
        WrittenValue::of(rule.to_string(), ConfiguredRule::Compiled(rule))
    }
}

/// The reason why a text is not a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRule {
    /// The text does not begin with an action.
    #[error("expected a rule that begins with 'drop' or 'pass'")]
    Action,
    /// The rule is not compiled: an expression follows the action.
    #[error(
        "expected a compiled rule: 'netvale filter', 'netvale attach' and 'netvale apply' compile expressions \
         of pcap-filter(7)"
    )]
    NotCompiled,
    /// The text after the action is not a valid program.
    #[error(transparent)]
    Program(#[from] BpfTextError),
    /// The expression is too long or has control characters.
    #[error("invalid expression after #: expected at most {MOST} characters, and no control characters")]
    Expression,
}

impl CompiledRule {
    /// Returns the action and the expression of a rule that is not compiled; `None` if the text does not begin with an
    /// action, or contains a program.
    #[must_use]
    pub fn source(text: &str) -> Option<(&str, &str)> {
        let (action, rest) = text.trim().split_once(char::is_whitespace)?;
        let is_program = rest.trim_start().split(',').next().is_some_and(|count| count.trim().parse::<u16>().is_ok());
        (matches!(action, "drop" | "pass") && !(is_program && rest.contains(','))).then(|| (action, rest.trim()))
    }
}

impl FromStr for ConfiguredRule {
    type Err = BadRule;

    fn from_str(text: &str) -> Result<ConfiguredRule, BadRule> {
        match CompiledRule::source(text) {
            Some((action, expression)) => {
                Ok(ConfiguredRule::Source { drops: action == "drop", expression: expression.to_owned() })
            }
            None => text.parse().map(ConfiguredRule::Compiled),
        }
    }
}

impl ConfiguredRule {
    /// Returns the compiled rule.
    ///
    /// # Errors
    /// [`BadRule::NotCompiled`] if the rule is not compiled.
    pub fn compiled(&self) -> Result<&CompiledRule, BadRule> {
        match self {
            ConfiguredRule::Compiled(rule) => Ok(rule),
            ConfiguredRule::Source { .. } => Err(BadRule::NotCompiled),
        }
    }
}

impl FromStr for CompiledRule {
    type Err = BadRule;

    fn from_str(text: &str) -> Result<CompiledRule, BadRule> {
        let (action, rest) = text.trim().split_once(char::is_whitespace).ok_or(BadRule::Action)?;
        let drops = match action {
            "drop" => true,
            "pass" => false,
            _ => return Err(BadRule::Action),
        };
        if CompiledRule::source(text).is_some() {
            return Err(BadRule::NotCompiled);
        }
        let (program, expression) = match rest.split_once('#') {
            Some((program, expression)) => (program, Some(expression.trim().to_owned())),
            None => (rest, None),
        };
        let is_bad = |text: &String| text.chars().count() > MOST || text.chars().any(netvale_portspec::is_hidden);
        if expression.as_ref().is_some_and(is_bad) {
            return Err(BadRule::Expression);
        }
        Ok(CompiledRule { drops, program: FilterProgram::parse(program.trim())?, expression })
    }
}

impl fmt::Display for CompiledRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", if self.drops { "drop" } else { "pass" }, self.program)?;
        self.expression.iter().try_for_each(|expression| write!(f, " # {expression}"))
    }
}
