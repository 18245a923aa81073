//! The reason why options do not fit a port.

use std::fmt;

use netvale_portspec::ParseError;

use super::AttachOption;

/// The reason why a port cannot be attached with these parameters. `Display` names options by their keys,
/// [`Misfit::of_flags`] by their flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// Key of the wrong parameter: `switch`, `port` or an option's key.
    pub key: &'static str,
    pub(crate) why: MisfitReason,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MisfitReason {
    Text(ParseError),
    Kind { takers: String, port: String },
    Together { other: &'static str, why: &'static str },
    TwoPlaces,
    PortForSwitch { switch: String, port: String },
    Policy(String),
}

impl Misfit {
    /// Creates the error for a policy that is invalid or contradicts another.
    pub(crate) fn policy(key: &'static str, what: impl Into<String>) -> Misfit {
        Misfit { key, why: MisfitReason::Policy(what.into()) }
    }

    /// Returns the error and its remedy for a command line, where options are named by their flags.
    #[must_use]
    pub fn of_flags(&self) -> (String, String) {
        self.texts(|key| AttachOption::find(key).map_or_else(|| key.into(), |option| format!("--{}", option.flag())))
    }

    fn texts(&self, name: impl Fn(&str) -> String) -> (String, String) {
        let key = name(self.key);
        match &self.why {
            MisfitReason::Text(error) => {
                (format!("invalid {key}: {error:#}"), "'netvale attach --help' shows how to write it".into())
            }
            MisfitReason::Kind { takers, port } => {
                (format!("{key} applies only to {takers}, not to {port}"), format!("omit {key}"))
            }
            MisfitReason::Together { other, why } => {
                (format!("{key} and {} exclude each other: {why}", name(other)), "omit one of them".into())
            }
            MisfitReason::Policy(what) => {
                (format!("{key}: {what}"), "'netvale port set --help' lists the policies".into())
            }
            MisfitReason::PortForSwitch { switch, port } => {
                let what = format!("expected a switch, found the port {switch}:{port}");
                (what, format!("use {switch} as the switch, and set {} to {port}", name("name")))
            }
            MisfitReason::TwoPlaces => {
                let what = format!("a port is attached to a switch or passed through by {}, not both", name("backend"));
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
