//! Checks of a port's parameters that need no look at anything else.

use std::fmt;

use netvale_portspec::{AttachSpec, Base, Ident, ParseError, PortSpec, SwitchName};

use super::AttachParams;
use crate::options::{AttachOption, Kind, OPTIONS};

/// Why a port cannot be attached like this. The text names the key; [`Misfit::of_flags`] names the flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// Key of the wrong parameter: `switch`, `port` or an option's key.
    pub key: &'static str,
    why: Why,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Why {
    Text(ParseError),
    Kind { takers: String, port: String },
    Together { other: &'static str, why: &'static str },
    TwoPlaces,
    Policy(String),
}

impl AttachParams {
    /// Checks the grammar of all parameters, and that ports of this kind take each option.
    ///
    /// # Errors
    /// The first mistake, in the order port, options, name, switch.
    pub fn check(&self) -> Result<AttachSpec, Misfit> {
        let text = |key| move |error| Misfit { key, why: Why::Text(error) };
        let spec = AttachSpec::parse(&self.port).map_err(text("port"))?;
        let kind = Kind::of(&spec);
        OPTIONS.iter().try_for_each(|option| self.check_option(option, kind))?;
        self.options.check_policies()?;
        if let Some(name) = &self.options.name {
            Ident::parse(name).map_err(text("name"))?;
        }
        match &self.options.backend {
            None => SwitchName::parse(&self.switch).map(|_| ()).map_err(text("switch"))?,
            Some(_) if !self.switch.is_empty() => return Err(Misfit { key: "switch", why: Why::TwoPlaces }),
            Some(_) => {}
        }
        Ok(spec)
    }

    fn check_option(&self, option: &AttachOption, kind: Kind) -> Result<(), Misfit> {
        let misfit = |why| Err(Misfit { key: option.key, why });
        if option.given(&self.options).is_none() {
            return Ok(());
        }
        if !option.kinds.contains(&kind) {
            let port = self.port.chars().take(120).collect();
            return misfit(Why::Kind { takers: option.takers(), port });
        }
        // A backend that is a switch's port is attached as if to that switch.
        let named = self.options.backend.as_deref().map(PortSpec::parse);
        let on_switch = named.is_some_and(|spec| spec.is_ok_and(|spec| matches!(spec.name.base(), Base::Vale { .. })));
        if option.key == "backend" && on_switch {
            return Ok(());
        }
        let given = |key: &&&str| AttachOption::find(key).is_some_and(|other| other.given(&self.options).is_some());
        match option.excludes.iter().find(given) {
            Some(other) => misfit(Why::Together { other, why: option.why }),
            None => Ok(()),
        }
    }
}

impl Misfit {
    /// Policies that contradict each other: what is wrong with that option.
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
            Why::Policy(what) => (format!("{key}: {what}"), "see docs/guide/policies.md".into()),
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
