//! Policies that switches give to new ports.

use std::collections::BTreeMap;
use std::fmt;

use netvale_control::types::{AttachParams, Policies};
use serde::{Deserialize, Serialize};

use super::Config;

/// The name that stands for all switches.
const ALL: &str = "*";

/// Policies by switch name. The table of a switch overrides the table of `*`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(transparent)]
pub struct SwitchPolicies(BTreeMap<String, Policies>);

/// An error in the table of policies for a switch.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WrongDefault {
    /// Name of the switch; `*` for all switches.
    pub switch: String,
    /// The key at fault.
    pub key: &'static str,
    what: String,
}

impl fmt::Display for WrongDefault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl SwitchPolicies {
    /// Returns the policies that new ports on that switch get.
    #[must_use]
    pub fn of(&self, switch: &str) -> Policies {
        let all = self.0.get(ALL).cloned().unwrap_or_default();
        self.0.get(switch).map_or_else(|| all.clone(), |own| own.over(&all))
    }

    /// Whether any policies of switches contain the rate group of `policies` with another rate.
    #[must_use]
    pub fn has_other_rate(&self, policies: &Policies) -> bool {
        let Some(own) = policies.rate_group.as_deref() else { return false };
        let usual = self.0.values().filter_map(|policies| policies.rate_group.as_deref());
        usual.into_iter().any(|usual| usual.name == own.name && usual != own)
    }

    /// Sets the policies that the port leaves unset to the policies of its switch. A port on no switch remains
    /// unchanged.
    #[must_use]
    pub fn under(&self, mut port: AttachParams) -> AttachParams {
        if !port.switch.is_empty() {
            port.options.policies = port.options.policies.over(&self.of(&port.switch));
        }
        port
    }

    /// Returns the first error in the tables; `None` if there is none.
    pub(super) fn wrong(&self) -> Option<WrongDefault> {
        self.0.iter().find_map(|(switch, policies)| {
            let misfit = policies.check().and_then(|()| self.of(switch).check()).err()?;
            Some(WrongDefault { switch: switch.clone(), key: misfit.key, what: misfit.to_string() })
        })
    }
}

impl Config {
    /// Iterates over the policies of all configured ports and all switches.
    pub fn policies(&self) -> impl Iterator<Item = &Policies> {
        self.ports.iter().map(|port| &port.options.policies).chain(self.switch.policies.0.values())
    }

    /// Like [`Config::policies`], mutable.
    pub(super) fn policies_mut(&mut self) -> impl Iterator<Item = &mut Policies> {
        self.ports.iter_mut().map(|port| &mut port.options.policies).chain(self.switch.policies.0.values_mut())
    }
}

#[cfg(test)]
mod tests {
    use super::super::ConfigFile;
    use super::*;

    /// Objective: a switch's own policies override the policies for all switches; a port's own policies override both.
    #[test]
    fn own_policies_precede_general_ones() {
        let text = "[switch.policies.'*']\nisolated = true\nrate_in = '1gbit'\n\
            [switch.policies.vale1]\nisolated = false\n\
            [[port]]\nswitch = 'vale1'\nport = 'a'\nrate_in = '2gbit'\n[[port]]\nswitch = 'vale2'\nport = 'b'";
        let config = ConfigFile::parse(text).unwrap().into_config();
        let rate = |policies: &Policies| Some(policies.rate_in.as_ref()?.text().to_owned());
        let said = |policies: &Policies| (policies.isolated, rate(policies));
        let of = |switch: &str| said(&config.switch.policies.of(switch));
        assert_eq!(of("vale0"), (Some(true), Some("1gbit".into())));
        assert_eq!(of("vale1"), (Some(false), Some("1gbit".into())));
        assert_eq!(said(&config.ports[0].options.policies), (Some(false), Some("2gbit".into())));
        assert_eq!(said(&config.ports[1].options.policies), (Some(true), Some("1gbit".into())));
    }

    /// Objective: keys that are not policies, unknown keys and contradictions are reported with their line.
    #[test]
    fn mistakes_are_reported_with_their_line() {
        for (table, line, word) in [
            ("[switch.policies.vale0]\nmtu = 9000", 2, "mtu"),
            ("[switch.policies.vale0]\nisolatde = true", 2, "isolatde"),
            ("[switch.policies.vale0]\n\naccess = 4095", 3, "access"),
            ("[switch.policies.vale0]\naccess = 5\ntrunk = '7'", 2, "access"),
            ("[switch.policies.vale0]\nburst_in = '9kb'", 2, "burst_in"),
        ] {
            let error = ConfigFile::parse(table).unwrap_err().to_string();
            assert!(error.contains(&format!("line {line}")) && error.contains(word), "{table}: {error}");
        }
    }
}
