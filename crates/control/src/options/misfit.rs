//! Why a port cannot have its options.

use std::fmt;

use netvale_portspec::ParseError;

use super::AttachOption;

/// Why a port cannot be attached with these parameters. The text names the key; [`Misfit::of_flags`] names the flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// Key of the wrong parameter: `switch`, `port` or an option's key.
    pub key: &'static str,
    pub(crate) why: Why,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    Text(ParseError),
    Kind { takers: String, port: String },
    Together { other: &'static str, why: &'static str },
    TwoPlaces,
    PortForSwitch { switch: String, port: String },
    Policy(String),
}

impl Misfit {
    /// The error of contradicting policies, for one of the options.
    pub(crate) fn policy(key: &'static str, what: impl Into<String>) -> Misfit {
        Misfit { key, why: Why::Policy(what.into()) }
    }

    /// The mistake and its remedy, for a command line: options are named by their flags.
    #[must_use]
    pub fn of_flags(&self) -> (String, String) {
        self.texts(|key| AttachOption::find(key).map_or_else(|| key.into(), |option| format!("--{}", option.flag())))
    }

    fn texts(&self, name: impl Fn(&str) -> String) -> (String, String) {
        let key = name(self.key);
        match &self.why {
            Why::Text(error) => {
                (format!("bad {key}: {error:#}"), "'netvale attach --help' shows how to write it".into())
            }
            Why::Kind { takers, port } => {
                (format!("{key} applies to {takers} only; {port} is not one of them"), format!("omit {key}"))
            }
            Why::Together { other, why } => {
                (format!("{key} and {} exclude each other: {why}", name(other)), "omit one of them".into())
            }
            Why::Policy(what) => (format!("{key}: {what}"), "'netvale port set --help' lists the policies".into()),
            Why::PortForSwitch { switch, port } => {
                let what = format!("a switch is expected, and {switch}:{port} is a port of one");
                (what, format!("write {switch}, and {} {port} for the port's name", name("name")))
            }
            Why::TwoPlaces => {
                let what = format!("a port is attached to a switch, or passed through by {}", name("backend"));
                (what, "omit the switch or the backend".into())
            }
        }
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, next) = self.texts(str::to_owned);
        write!(f, "{what}; {next}")
    }
}

impl std::error::Error for Misfit {}
