//! Rules of filters, as they travel: the action, the compiled program, and the expression that it was compiled from.
//!
//! ```
//! use netvale_control::options::Rule;
//!
//! let rule: Rule = "drop 1,6 0 0 1 # ip".parse()?;
//! assert!(rule.drops && rule.program.run(&[], 60) == Ok(1));
//! assert_eq!((rule.expression.as_deref(), rule.to_string().as_str()), (Some("ip"), "drop 1,6 0 0 1 # ip"));
//! # Ok::<(), netvale_control::options::BadRule>(())
//! ```

use std::fmt;
use std::str::FromStr;

use netvale_policy::bpf::{Program, Unparsed};

use super::written::{Notation, Written};

/// Maximum number of characters of an expression.
const MOST: usize = 1024;

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Whether matching frames are dropped.
    pub drops: bool,
    /// The program, verified.
    pub program: Program,
    /// Its source, for people.
    pub expression: Option<String>,
}

/// A rule as given.
#[derive(Clone, Debug)]
pub enum GivenRule {
    /// An expression yet to be compiled.
    Source {
        /// Whether matching frames are dropped.
        drops: bool,
        /// The expression that frames must match.
        expression: String,
    },
    /// The compiled rule.
    Compiled(Rule),
}

/// A filter's rules: their texts, and their values.
pub type GivenRules = Option<Vec<Written<GivenRule>>>;

impl Notation for GivenRule {
    fn read(text: &str) -> Option<GivenRule> {
        text.parse().ok()
    }
}

/// Replaces an uncompiled rule by its compiled form.
impl From<Rule> for Written<GivenRule> {
    fn from(rule: Rule) -> Self {
        Written::of(rule.to_string(), GivenRule::Compiled(rule))
    }
}

/// Why a text is not a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRule {
    /// It does not begin with an action.
    #[error("a rule begins with 'drop' or 'pass'")]
    Action,
    /// The action is followed by an expression.
    #[error(
        "the daemon takes compiled rules only: 'netvale filter', 'netvale attach' and 'netvale apply' compile what is in words"
    )]
    NotCompiled,
    /// The action is not followed by a program.
    #[error(transparent)]
    Program(#[from] Unparsed),
    /// The expression is too long, or has control characters.
    #[error("the expression behind # has more than {MOST} characters, or some that cannot be shown")]
    Expression,
}

impl Rule {
    /// The action and the expression of a rule yet to be compiled.
    #[must_use]
    pub fn source(text: &str) -> Option<(&str, &str)> {
        let (action, rest) = text.trim().split_once(char::is_whitespace)?;
        let is_program = rest.trim_start().split(',').next().is_some_and(|count| count.trim().parse::<u16>().is_ok());
        (matches!(action, "drop" | "pass") && !(is_program && rest.contains(','))).then(|| (action, rest.trim()))
    }
}

impl FromStr for GivenRule {
    type Err = BadRule;

    fn from_str(text: &str) -> Result<GivenRule, BadRule> {
        match Rule::source(text) {
            Some((action, expression)) => {
                Ok(GivenRule::Source { drops: action == "drop", expression: expression.to_owned() })
            }
            None => text.parse().map(GivenRule::Compiled),
        }
    }
}

impl GivenRule {
    /// The compiled rule.
    ///
    /// # Errors
    /// [`BadRule::NotCompiled`] if it is not compiled.
    pub fn compiled(&self) -> Result<&Rule, BadRule> {
        match self {
            GivenRule::Compiled(rule) => Ok(rule),
            GivenRule::Source { .. } => Err(BadRule::NotCompiled),
        }
    }
}

impl FromStr for Rule {
    type Err = BadRule;

    fn from_str(text: &str) -> Result<Rule, BadRule> {
        let (action, rest) = text.trim().split_once(char::is_whitespace).ok_or(BadRule::Action)?;
        let drops = match action {
            "drop" => true,
            "pass" => false,
            _ => return Err(BadRule::Action),
        };
        if Rule::source(text).is_some() {
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
        Ok(Rule { drops, program: Program::parse(program.trim())?, expression })
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", if self.drops { "drop" } else { "pass" }, self.program)?;
        self.expression.iter().try_for_each(|expression| write!(f, " # {expression}"))
    }
}
