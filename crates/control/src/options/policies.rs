//! The policies of a port, read out of its options.

use netvale_policy::guard::{Addresses, BadAddresses, BadChecks, Guard};
use netvale_policy::impair::{self, Spec};
use netvale_policy::snoop::{BadRouter, Multicast, Router};
use netvale_policy::units::{Rate, Size};
use netvale_policy::vlan::{BadVlans, Vlans};
use serde_json::{Map, Value};

use super::burst::usual_burst;
use super::group::RateGroup;
use super::misfit::Misfit;
use super::rule::{BadRule, Rule};
use super::{AttachOption, OPTIONS, PortOptions};
use crate::mac::Mac;

/// The part of a second of whose bytes wait for a rate if nothing is said, and bounds of that.
const QUEUE_PART: u64 = 20;
const LEAST_QUEUE: u64 = 256 << 10;
const MOST_QUEUE: u64 = 64 << 20;
/// Bytes and frames that a link may have under way.
const MOST_UNDER_WAY: u64 = 1 << 30;
const MOST_FRAMES: u32 = 1 << 24;

/// Policies of a port.
#[derive(Clone, Debug)]
pub struct PortPolicies {
    /// VLANs, if something is said of them.
    pub vlans: Option<Vlans>,
    /// Addresses that are behind it and nowhere else.
    pub addresses: Vec<Mac>,
    /// Checks of what it sends.
    pub guard: Option<Guard>,
    /// Rules for what it sends, and for what it gets.
    pub filters: [Vec<Rule>; 2],
    /// How many may be learned behind it.
    pub max_addresses: Option<u32>,
    /// Whether addresses are learned.
    pub learning: bool,
    /// Whether they stay.
    pub sticky: bool,
    /// Whether only known ones may send.
    pub locked: bool,
    /// Whether it reaches only ports that are not isolated.
    pub isolated: bool,
    /// Whether it gets frames for unknown addresses, for groups, and for all.
    pub flood: [bool; 3],
    /// How many of these it may send in a second.
    pub storm: [Option<u32>; 3],
    /// Whether loops block it.
    pub loop_guard: bool,
    /// What is said of multicast groups.
    pub multicast: Multicast,
    /// Bits a second that it may send, and bytes together.
    pub rate_in: Option<(Rate, Size)>,
    /// Frames a second that it may send.
    pub pps_in: Option<u32>,
    /// A group with which it shares a rate.
    pub group: Option<RateGroup>,
    /// Bits a second that it may get, and bytes together.
    pub rate_out: Option<(Rate, Size)>,
    /// Frames a second that it may get.
    pub pps_out: Option<u32>,
    /// Bytes that wait for these rates.
    pub queue_out: Size,
    /// What the links do on which it sends and gets.
    pub links: [Option<Spec>; 2],
}

impl PortOptions {
    /// Its policies; `None` if there are none.
    ///
    /// # Errors
    /// [`Misfit`] names options that contradict each other.
    pub fn policies(&self) -> Result<Option<PortPolicies>, Misfit> {
        let policies = self.read_policies()?;
        Ok(self.has_policies().then_some(policies))
    }

    /// Checks what it has, as far as that goes before rules are compiled.
    ///
    /// # Errors
    /// As [`PortOptions::policies`].
    pub fn check_policies(&self) -> Result<(), Misfit> {
        let is_compiled = |rule: &String| Rule::source(rule).is_none();
        let compiled = |rules: &Option<Vec<String>>| {
            rules.as_ref().map(|rules| rules.iter().filter(|rule| is_compiled(rule)).cloned().collect())
        };
        let [filter_in, filter_out] = [&self.filter_in, &self.filter_out].map(compiled);
        PortOptions { filter_in, filter_out, ..self.clone() }.read_policies().map(drop)
    }

    /// The rules that are still to be compiled.
    pub fn sources(&self) -> impl Iterator<Item = &String> {
        let rules = [&self.filter_in, &self.filter_out].into_iter().flatten().flatten();
        rules.filter(|rule| Rule::source(rule).is_some())
    }

    /// Puts rules that are compiled in place of those that are not, as far as `program` has them.
    pub fn compile_rules(&mut self, program: impl Fn(&str) -> Option<String>) {
        for rule in [&mut self.filter_in, &mut self.filter_out].into_iter().flatten().flatten() {
            if let Some(compiled) = Rule::source(rule).and_then(|_| program(rule)) {
                *rule = compiled;
            }
        }
    }

    /// Whether it has some that decide what becomes of frames.
    #[must_use]
    pub fn has_policies(&self) -> bool {
        OPTIONS.iter().any(|option| option.is_for_frames() && option.given(self).is_some())
    }

    /// The options that are policies, as they were given.
    #[must_use]
    pub fn policy_values(&self) -> Map<String, Value> {
        let policies = OPTIONS.iter().filter(|option| option.is_policy());
        policies.filter_map(|option| Some((option.key.to_owned(), option.given(self)?))).collect()
    }

    /// The same options with other policies: null is the default. What is not named stays.
    ///
    /// # Errors
    /// A sentence that names what is no policy, or has no such value.
    pub fn with_policies(&self, set: &Map<String, Value>) -> Result<PortOptions, String> {
        let mut values = self.policy_values();
        for (key, value) in set {
            match AttachOption::find(key).filter(|option| option.is_policy()) {
                None => return Err(format!("{key} cannot be set while frames pass; {}", known())),
                Some(_) if value.is_null() => drop(values.remove(key)),
                Some(_) => drop(values.insert(key.clone(), value.clone())),
            }
        }
        self.with_only(&values)
    }

    /// The same options with these policies and no others.
    ///
    /// # Errors
    /// As [`PortOptions::with_policies`].
    pub fn with_only(&self, values: &Map<String, Value>) -> Result<PortOptions, String> {
        let mut new = self.clone();
        for option in OPTIONS.iter().filter(|option| option.is_policy()) {
            option.clear(&mut new);
            if let Some(value) = values.get(option.key) {
                option.put(&mut new, value.clone())?;
            }
        }
        Ok(new)
    }

    fn queue(&self) -> Result<Size, Misfit> {
        let bad = |bad: netvale_policy::units::Error| Misfit::policy("queue_out", bad.to_string());
        let rate = self.rate_out.as_deref().and_then(|rate| rate.parse::<Rate>().ok()).map_or(0, Rate::bits);
        let usual = (rate / 8 / QUEUE_PART).clamp(LEAST_QUEUE, MOST_QUEUE);
        let asked = self.queue_out.as_deref().map(str::parse::<Size>).transpose().map_err(bad)?;
        match asked {
            Some(_) if self.rate_out.is_none() && self.pps_out.is_none() => {
                Err(Misfit::policy("queue_out", "nothing waits without a rate: say rate_out or pps_out, too"))
            }
            Some(size) if size.bytes() > MOST_QUEUE => {
                Err(Misfit::policy("queue_out", format!("more than {}", Size::from_bytes(MOST_QUEUE))))
            }
            asked => Ok(asked.unwrap_or(Size::from_bytes(usual))),
        }
    }

    fn multicast(&self) -> Result<Multicast, Misfit> {
        let bad = |bad: BadRouter| Misfit::policy("mcast_router", bad.to_string());
        let router: Option<Router> = self.mcast_router.map(|word| word.to_string().parse()).transpose().map_err(bad)?;
        let on = |option: Option<bool>| option.unwrap_or(false);
        Ok(Multicast {
            snooping: on(self.mcast_snooping),
            querier: on(self.mcast_querier),
            router: router.unwrap_or_default(),
            fast_leave: on(self.mcast_fast_leave),
        })
    }

    /// Whether policies stand beside others that exclude them.
    fn exclude(&self) -> Result<(), Misfit> {
        for option in OPTIONS.iter().filter(|option| option.is_policy() && option.given(self).is_some()) {
            let given = |key: &&&str| AttachOption::find(key).is_some_and(|other| other.given(self).is_some());
            if let Some(other) = option.excludes.iter().find(given) {
                return Err(Misfit::policy(option.key, format!("not beside {other}: {}", option.why)));
            }
        }
        Ok(())
    }

    pub(super) fn read_policies(&self) -> Result<PortPolicies, Misfit> {
        self.exclude()?;
        let on = |option: Option<bool>, default| option.unwrap_or(default);
        let trunk = self.trunk.as_deref();
        let vlans = Vlans::of_words(self.access, trunk, self.native, self.vlan_protocol.as_deref());
        let bad = |bad: BadAddresses| Misfit::policy("addresses", bad.to_string());
        let addresses: Addresses =
            self.addresses.as_deref().map(str::parse).transpose().map_err(bad)?.unwrap_or_default();
        let policies = PortPolicies {
            vlans: vlans.map_err(|bad| Misfit::policy(vlan_key(&bad), bad.to_string()))?,
            addresses: addresses.macs().iter().map(|mac| Mac(mac.0)).collect(),
            guard: guard(self.guard.as_deref(), addresses)?,
            filters: [rules("filter_in", self.filter_in.as_ref())?, rules("filter_out", self.filter_out.as_ref())?],
            max_addresses: self.max_addresses,
            learning: on(self.learning, true),
            sticky: on(self.sticky, false),
            locked: on(self.locked, false),
            isolated: on(self.isolated, false),
            flood: [self.flood, self.mcast_flood, self.bcast_flood].map(|flood| on(flood, true)),
            storm: [self.storm_unknown, self.storm_mcast, self.storm_bcast],
            loop_guard: on(self.loop_guard, false),
            multicast: self.multicast()?,
            rate_in: rate("rate_in", self.rate_in.as_deref(), "burst_in", self.burst_in.as_deref())?,
            pps_in: self.pps_in,
            group: self.rate_group.as_deref().and_then(|text| text.parse().ok()),
            rate_out: rate("rate_out", self.rate_out.as_deref(), "burst_out", self.burst_out.as_deref())?,
            pps_out: self.pps_out,
            queue_out: self.queue()?,
            links: [spec("link_in", self.link_in.as_deref())?, spec("link_out", self.link_out.as_deref())?],
        };
        policies.agree()
    }
}

/// What can be set.
fn known() -> String {
    let keys: Vec<_> = OPTIONS.iter().filter(|option| option.is_policy()).map(|option| option.key).collect();
    format!("these can: {}", keys.join(", "))
}

impl PortPolicies {
    fn agree(self) -> Result<PortPolicies, Misfit> {
        if !self.learning && self.sticky {
            return Err(Misfit::policy("sticky", "addresses that are learned stay, but learning is off"));
        }
        if !self.learning && self.max_addresses.is_some() {
            return Err(Misfit::policy("max_addresses", "a limit of learned addresses, but learning is off"));
        }
        if self.max_addresses == Some(0) {
            let what = "no address could be behind the port: 'learning off' and 'locked on' say that";
            return Err(Misfit::policy("max_addresses", what));
        }
        Ok(self)
    }
}

fn vlan_key(bad: &BadVlans) -> &'static str {
    match bad {
        BadVlans::AccessAndTrunk | BadVlans::Number(_) => "access",
        BadVlans::Range(_) => "trunk",
        BadVlans::NativeAlone => "native",
        BadVlans::Protocol(_) | BadVlans::ProtocolAlone => "vlan_protocol",
    }
}

fn guard(checks: Option<&str>, addresses: Addresses) -> Result<Option<Guard>, Misfit> {
    let Some(checks) = checks else { return Ok(None) };
    let checks = checks.parse().map_err(|bad: BadChecks| Misfit::policy("guard", bad.to_string()))?;
    Guard::new(checks, addresses).map(Some).map_err(|bad| Misfit::policy("guard", bad.to_string()))
}

fn spec(key: &'static str, words: Option<&str>) -> Result<Option<Spec>, Misfit> {
    let bad = |bad: impair::Error| Misfit::policy(key, bad.to_string());
    let spec: Option<Spec> = words.map(str::parse).transpose().map_err(bad)?;
    match spec {
        Some(spec) if spec.bytes().bytes() > MOST_UNDER_WAY => {
            Err(Misfit::policy(key, format!("more than {} under way", Size::from_bytes(MOST_UNDER_WAY))))
        }
        Some(spec) if spec.limit() > MOST_FRAMES => {
            Err(Misfit::policy(key, format!("more than {MOST_FRAMES} frames under way")))
        }
        spec => Ok(spec),
    }
}

fn rules(key: &'static str, texts: Option<&Vec<String>>) -> Result<Vec<Rule>, Misfit> {
    let rule = |text: &String| text.parse().map_err(|bad: BadRule| Misfit::policy(key, bad.to_string()));
    texts.into_iter().flatten().map(rule).collect()
}

fn rate(
    key: &'static str,
    rate: Option<&str>,
    burst_key: &'static str,
    burst: Option<&str>,
) -> Result<Option<(Rate, Size)>, Misfit> {
    let bad = |key| move |what: netvale_policy::units::Error| Misfit::policy(key, what.to_string());
    let rate: Option<Rate> = rate.map(str::parse).transpose().map_err(bad(key))?;
    let burst: Option<Size> = burst.map(str::parse).transpose().map_err(bad(burst_key))?;
    match (rate, burst) {
        (Some(rate), _) if rate.bits() == 0 => {
            Err(Misfit::policy(key, "a rate of 0 lets nothing pass: detach the port"))
        }
        (_, Some(burst)) if burst.bytes() == 0 => Err(Misfit::policy(burst_key, "a burst of 0 lets nothing pass")),
        (None, Some(_)) => Err(Misfit::policy(burst_key, format!("a burst belongs to a rate: say {key}, too"))),
        (Some(rate), burst) => Ok(Some((rate, burst.unwrap_or_else(|| usual_burst(rate))))),
        (None, None) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(values: Value) -> Result<Option<PortPolicies>, String> {
        let options = PortOptions::default().with_policies(values.as_object().expect("an object"))?;
        options.policies().map_err(|misfit| misfit.to_string())
    }

    /// Objective: what is said is what there is; defaults are the switch's usual ways, and nothing said is no policy.
    #[test]
    fn read() {
        assert!(of(json!({})).unwrap().is_none());
        let policies =
            of(json!({"access": 10, "flood": false, "storm_bcast": 5, "rate_in": "1gbit"})).unwrap().unwrap();
        assert_eq!(policies.vlans, Some(Vlans::access(10).unwrap()));
        assert_eq!((policies.flood, policies.storm), ([false, true, true], [None, None, Some(5)]));
        let (rate, burst) = policies.rate_in.unwrap();
        assert_eq!((rate.bits(), burst.bytes(), policies.learning), (1_000_000_000, 1_250_000, true));
        let slow = of(json!({"rate_in": "10mbit", "burst_in": "3kb"})).unwrap().unwrap();
        assert_eq!(slow.rate_in.map(|(_, burst)| burst.bytes()), Some(3072));
    }

    /// Objective: each contradiction is refused, and the text names the option.
    #[test]
    fn contradictions() {
        for (values, key) in [
            (json!({"native": 5}), "native"),
            (json!({"vlan_protocol": "802.1ad"}), "vlan_protocol"),
            (json!({"access": 5, "trunk": "7"}), "access"),
            (json!({"burst_in": "64kb"}), "burst_in"),
            (json!({"learning": false, "sticky": true}), "sticky"),
            (json!({"learning": false, "max_addresses": 3}), "max_addresses"),
            (json!({"max_addresses": 0}), "max_addresses"),
            (json!({"access": 4095}), "access"),
            (json!({"rate_in": "0"}), "rate_in"),
            (json!({"rings": 2}), "rings"),
            (json!({"isolated": "on"}), "isolated"),
        ] {
            let why = of(values.clone()).expect_err(key);
            assert!(why.starts_with(key), "{values}: {why}");
        }
    }

    /// Objective: a policy that is set stays while another is set; null takes it away, and nothing else.
    #[test]
    fn one_after_another() {
        let set = |options: &PortOptions, values: Value| options.with_policies(values.as_object().unwrap()).unwrap();
        let first = set(&PortOptions { rings: 2, ..PortOptions::default() }, json!({"access": 10, "isolated": true}));
        let second = set(&first, json!({"access": null, "trunk": "1-3"}));
        assert_eq!(Value::from(second.policy_values()), json!({"isolated": true, "trunk": "1-3"}));
        assert_eq!(second.rings, 2);
    }
}
