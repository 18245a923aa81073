//! Policies of a container's port, from the options of the bridge and bandwidth plugins.

use netvale_control::types::Mac;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::error::{CniError, Code};
use crate::result::ContainerAddresses;

/// The policies in a configuration.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodPolicies {
    /// The VLAN of untagged frames; `None` or 0 if untagged frames have no VLAN.
    vlan: Option<u16>,
    /// The VLANs of tagged frames; if it is `None` or empty, the port is not a trunk.
    vlan_trunk: Option<Vec<Trunk>>,
    /// Whether containers of this network are isolated from each other.
    port_isolation: Option<bool>,
    /// Older name of `port_isolation`.
    isolateports: Option<bool>,
    /// Whether frames with a source MAC address other than the container's are dropped.
    macspoofchk: Option<bool>,
    /// The checks of frames' source addresses against the container's addresses, in the form of the attach option
    /// `guard`.
    guard: Option<String>,
    /// Rate limits, in the bandwidth plugin's form.
    bandwidth: Option<Bandwidth>,
    /// Policies that the runtime sets.
    runtime_config: RuntimePolicies,
    /// Further options of the daemon's `port.set`, passed on unchanged.
    #[serde(skip)]
    set: Map<String, Value>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct RuntimePolicies {
    bandwidth: Option<Bandwidth>,
}

/// A VLAN of a trunk, or a range of VLANs.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Trunk {
    id: Option<u16>,
    #[serde(rename = "minID")]
    min: Option<u16>,
    #[serde(rename = "maxID")]
    max: Option<u16>,
}

/// Rates in bits per second, and bursts in bits. "Ingress" means traffic to the container, "egress" traffic from it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Bandwidth {
    ingress_rate: u64,
    ingress_burst: u64,
    egress_rate: u64,
    egress_burst: u64,
}

impl Trunk {
    fn text(&self) -> Result<String, CniError> {
        match (self.id, self.min, self.max) {
            (Some(id), None, None) => Ok(id.to_string()),
            (None, Some(min), Some(max)) if min <= max => Ok(format!("{min}-{max}")),
            _ => {
                let text = "vlanTrunk: expected members with id, or with minID and maxID, minID not above maxID";
                Err(CniError::new(Code::Config, text))
            }
        }
    }
}

impl PodPolicies {
    /// Reads the policies from a configuration.
    ///
    /// # Errors
    /// [`Code::Config`] if a policy is malformed.
    pub fn read(input: &Value) -> Result<PodPolicies, CniError> {
        let bad = |e: serde_json::Error| CniError::new(Code::Config, format!("invalid configuration: {e}"));
        let policies = PodPolicies::deserialize(input).map_err(bad)?;
        policies.trunk()?;
        Ok(policies)
    }

    /// Creates policies from options of `port.set`. If `guard` is among the options, frames must have the container's
    /// addresses, unless the option `addresses` is set.
    pub fn of(mut set: Map<String, Value>) -> PodPolicies {
        let guard = set.remove("guard").and_then(|checks| checks.as_str().map(str::to_owned));
        PodPolicies { guard, set, ..PodPolicies::default() }
    }

    fn trunk(&self) -> Result<Option<String>, CniError> {
        let Some(list) = self.vlan_trunk.as_ref().filter(|list| !list.is_empty()) else { return Ok(None) };
        let parts: Vec<String> = list.iter().map(Trunk::text).collect::<Result<_, _>>()?;
        Ok(Some(parts.join(",")))
    }

    /// Returns the checks that `guard` and `macspoofchk` request; `None` if they request none.
    fn checks(&self) -> Option<String> {
        let guard = self.guard.as_deref().unwrap_or_default();
        let checks = || guard.split(',').filter(|check| !check.is_empty());
        let has_mac = checks().any(|check| matches!(check, "mac" | "all"));
        let mac = (self.macspoofchk.unwrap_or_default() && !has_mac).then_some("mac");
        Some(checks().chain(mac).collect::<Vec<_>>().join(",")).filter(|text| !text.is_empty())
    }

    /// Returns the options of `port.set` for a container with these addresses; empty if there are no policies.
    ///
    /// # Errors
    /// [`Code::Config`] if the trunk is malformed.
    pub fn options(&self, mac: Mac, addresses: &ContainerAddresses) -> Result<Map<String, Value>, CniError> {
        let mut set = Map::new();
        let vlan = self.vlan.filter(|vlan| *vlan != 0);
        match self.trunk()? {
            Some(trunk) => {
                set.insert("trunk".into(), json!(trunk));
                set.extend(vlan.map(|vlan| ("native".to_owned(), json!(vlan))));
            }
            None => set.extend(vlan.map(|vlan| ("access".to_owned(), json!(vlan)))),
        }
        if self.port_isolation.or(self.isolateports).unwrap_or_default() {
            set.insert("isolated".into(), json!(true));
        }
        if let Some(checks) = self.checks() {
            let own = std::iter::once(mac.to_string());
            let own = own.chain(addresses.ips.iter().map(|ip| ip.own.address.to_string()));
            set.insert("addresses".into(), json!(own.collect::<Vec<_>>().join(",")));
            set.insert("guard".into(), json!(checks));
        }
        let bandwidth = self.runtime_config.bandwidth.as_ref().or(self.bandwidth.as_ref());
        set.extend(bandwidth.map(Bandwidth::options).unwrap_or_default());
        set.extend(self.set.clone());
        Ok(set)
    }
}

impl Bandwidth {
    fn options(&self) -> Map<String, Value> {
        let ways = [("in", self.egress_rate, self.egress_burst), ("out", self.ingress_rate, self.ingress_burst)];
        let mut set = Map::new();
        for (way, rate, burst) in ways.into_iter().filter(|(_, rate, _)| *rate != 0) {
            set.insert(format!("rate_{way}"), json!(format!("{rate}bit")));
            if burst != 0 {
                set.insert(format!("burst_{way}"), json!(format!("{}b", burst.div_ceil(8))));
            }
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(input: Value) -> Result<Map<String, Value>, CniError> {
        let text = json!({"cniVersion": "1.0.0", "ips": [{"address": "10.1.0.5/24"}, {"address": "fd00::5/64"}]});
        let addresses = ContainerAddresses::read(&text).unwrap();
        PodPolicies::read(&input)?.options(Mac([2, 0, 0, 0, 0, 5]), &addresses)
    }

    /// Objective: each option of the bridge and bandwidth plugins becomes a policy of the port; without options, the
    /// port has no policies.
    #[test]
    fn each_option_of_other_plugins_becomes_a_policy() {
        for (input, expected) in [
            (json!({}), json!({})),
            (json!({"vlan": 0, "portIsolation": false, "macspoofchk": null, "vlanTrunk": []}), json!({})),
            (json!({"vlan": 10}), json!({"access": 10})),
            (json!({"vlanTrunk": [{"id": 5}, {"minID": 7, "maxID": 9}]}), json!({"trunk": "5,7-9"})),
            (json!({"vlan": 3, "vlanTrunk": [{"id": 5}]}), json!({"trunk": "5", "native": 3})),
            (json!({"isolateports": true}), json!({"isolated": true})),
            (json!({"macspoofchk": true}), json!({"guard": "mac", "addresses": "02:00:00:00:00:05,10.1.0.5,fd00::5"})),
            (
                json!({"guard": "ip,arp,nd", "macspoofchk": true}),
                json!({"guard": "ip,arp,nd,mac", "addresses": "02:00:00:00:00:05,10.1.0.5,fd00::5"}),
            ),
            (
                json!({
                    "bandwidth": {"ingressRate": 1000},
                    "runtimeConfig": {"bandwidth": {"egressRate": 8000, "egressBurst": 17}},
                }),
                json!({"rate_in": "8000bit", "burst_in": "3b"}),
            ),
            (json!({"bandwidth": {"ingressRate": 1000}}), json!({"rate_out": "1000bit"})),
        ] {
            assert_eq!(Value::Object(options(input.clone()).unwrap()), expected, "{input}");
        }
        for wrong in [
            json!({"vlanTrunk": [{"minID": 7}]}),
            json!({"vlanTrunk": [{"minID": 9, "maxID": 7}]}),
            json!({"vlanTrunk": [{"id": 1, "minID": 2, "maxID": 3}]}),
            json!({"vlan": "x"}),
            json!({"bandwidth": 7}),
        ] {
            assert!(options(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
