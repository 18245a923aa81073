//! The policies of a port: consistency checks, derived values, and changes.

use netvale_policy::guard::Guard;
use netvale_policy::impair::Spec;
use netvale_policy::snoop::{BadRouter, Multicast, Router};
use netvale_policy::units::{Rate, Size};
use netvale_policy::vlan::{BadVlans, Vlans};
use serde_json::{Map, Value};

use super::burst::usual_burst;
use super::misfit::Misfit;
use super::rule::{ConfiguredRule, ConfiguredRules};
use super::written::WrittenValue;
use super::{AttachOption, OPTIONS, OptionAccess, OptionHolder, Policies};

/// The default queue holds the bytes that the rate allows in 1/`QUEUE_PART` of a second, 50 ms.
const QUEUE_PART: u64 = 20;
/// Minimum size of the default queue in bytes.
const LEAST_QUEUE: u64 = 256 << 10;
/// Maximum size of the default queue in bytes.
const MOST_QUEUE: u64 = 64 << 20;
/// Maximum number of bytes in flight on an emulated link.
const MOST_UNDER_WAY: u64 = 1 << 30;
/// Maximum number of frames in flight on an emulated link.
const MOST_FRAMES: u32 = 1 << 24;

/// Returns all policies of the table.
fn all() -> impl Iterator<Item = (&'static AttachOption, &'static OptionAccess<Policies>)> {
    OPTIONS.iter().filter_map(|option| match &option.holder {
        OptionHolder::Policies(access) => Some((option, access)),
        OptionHolder::PortOptions(_) => None,
    })
}

impl Policies {
    /// Returns the keys of the policies that are set, and their values.
    pub fn given(&self) -> impl Iterator<Item = (&'static str, Value)> {
        all().filter_map(|(option, access)| Some((option.key, (access.given)(self)?)))
    }

    /// Returns, as a JSON object, the policies that are set.
    #[must_use]
    pub fn values(&self) -> Map<String, Value> {
        self.given().map(|(key, value)| (key.to_owned(), value)).collect()
    }

    /// Returns the value of a policy; `None` if it is not set.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Value> {
        self.given().find(|(given, _)| *given == key).map(|(_, value)| value)
    }

    /// Returns whether any policy that affects frames is set.
    #[must_use]
    pub fn are_for_frames(&self) -> bool {
        all().any(|(option, access)| option.is_for_frames() && (access.given)(self).is_some())
    }

    /// Returns these policies with the values of `set`: null restores a default, other policies stay unchanged.
    ///
    /// # Errors
    /// A sentence that names the key that is not a policy, or the invalid value.
    pub fn with(&self, set: &Map<String, Value>) -> Result<Policies, String> {
        if let Some(key) = set.keys().find(|key| !all().any(|(option, _)| option.key == **key)) {
            let keys: Vec<_> = all().map(|(option, _)| option.key).collect();
            return Err(format!("{key} cannot be set while frames pass: expected one of {}", keys.join(", ")));
        }
        let mut new = self.clone();
        for (option, access) in all() {
            match set.get(option.key) {
                None => {}
                Some(Value::Null) => (access.copy)(&Policies::default(), &mut new),
                Some(value) => option.put_in(access, &mut new, value.clone())?,
            }
        }
        Ok(new)
    }

    /// Returns these policies, completed by those `defaults` that these policies neither set nor exclude.
    #[must_use]
    pub fn over(&self, defaults: &Policies) -> Policies {
        let own: Vec<_> =
            all().filter(|(_, access)| (access.given)(self).is_some()).map(|(option, _)| option).collect();
        let stands = |option: &AttachOption| {
            own.iter().all(|own| {
                own.key != option.key && !own.excludes.contains(&option.key) && !option.excludes.contains(&own.key)
            })
        };
        let mut both = self.clone();
        all().filter(|(option, _)| stands(option)).for_each(|(_, access)| (access.copy)(defaults, &mut both));
        both
    }

    /// Returns the rules for frames that the port sends, then the rules for frames that the port receives.
    #[must_use]
    pub fn rules(&self) -> [&ConfiguredRules; 2] {
        [&self.filter_in, &self.filter_out]
    }

    /// Returns the rules that are not compiled.
    pub fn sources(&self) -> impl Iterator<Item = &WrittenValue<ConfiguredRule>> {
        self.rules().into_iter().flatten().flatten().filter(|rule| rule.compiled().is_err())
    }

    /// Returns the rules that are not compiled, so that the caller can replace them by their compiled form.
    pub fn sources_mut(&mut self) -> impl Iterator<Item = &mut WrittenValue<ConfiguredRule>> {
        let rules = [&mut self.filter_in, &mut self.filter_out].into_iter().flatten().flatten();
        rules.filter(|rule| rule.compiled().is_err())
    }
}

/// Values derived from several policies.
impl Policies {
    /// Checks that the policies do not contradict each other. Rules need not be compiled yet.
    ///
    /// # Errors
    /// [`Misfit`] names a policy that contradicts another.
    pub fn check(&self) -> Result<(), Misfit> {
        self.exclude()?;
        self.vlans()?;
        self.guard()?;
        self.multicast()?;
        self.check_rates()?;
        check_link("link_in", self.link_in.as_deref())?;
        check_link("link_out", self.link_out.as_deref())?;
        self.check_learning()
    }

    /// Checks that all rules are compiled.
    ///
    /// # Errors
    /// [`Misfit`] names the filter with an uncompiled rule.
    pub fn check_rules(&self) -> Result<(), Misfit> {
        for (key, rules) in [("filter_in", &self.filter_in), ("filter_out", &self.filter_out)] {
            let mut rules = rules.iter().flatten();
            rules.try_for_each(|rule| rule.compiled().map(drop)).map_err(|bad| Misfit::policy(key, bad.to_string()))?;
        }
        Ok(())
    }

    /// Returns the port's VLANs; `None` if no VLANs are set.
    ///
    /// # Errors
    /// [`Misfit`] names a policy that is invalid or contradicts another.
    pub fn vlans(&self) -> Result<Option<Vlans>, Misfit> {
        let protocol = self.vlan_protocol.as_deref().copied();
        let vlans = Vlans::given(self.access, self.trunk.as_deref(), self.native, protocol);
        vlans.map_err(|bad| Misfit::policy(vlan_key(&bad), bad.to_string()))
    }

    /// Returns the checks on sent frames; `None` if no checks are set.
    ///
    /// # Errors
    /// [`Misfit`] if the policies lack the addresses that the checks compare frames with.
    pub fn guard(&self) -> Result<Option<Guard>, Misfit> {
        let Some(checks) = self.guard.as_deref() else { return Ok(None) };
        let addresses = self.addresses.as_deref().cloned().unwrap_or_default();
        Guard::new(*checks, addresses).map(Some).map_err(|bad| Misfit::policy("guard", bad.to_string()))
    }

    /// Returns the multicast settings.
    ///
    /// # Errors
    /// [`Misfit`] if the value for routers is invalid.
    pub fn multicast(&self) -> Result<Multicast, Misfit> {
        let bad = |bad: BadRouter| Misfit::policy("mcast_router", bad.to_string());
        let router: Option<Router> = self.mcast_router.map(|word| word.to_string().parse()).transpose().map_err(bad)?;
        Ok(Multicast {
            snooping: is_on(self.mcast_snooping),
            querier: is_on(self.mcast_querier),
            router: router.unwrap_or_default(),
            fast_leave: is_on(self.mcast_fast_leave),
        })
    }

    /// Returns whether the port receives frames for unknown addresses, multicast frames, and broadcast frames, in this
    /// order.
    #[must_use]
    pub fn floods(&self) -> [bool; 3] {
        [self.flood, self.mcast_flood, self.bcast_flood].map(|flood| flood != Some(false))
    }

    /// Returns the port's send limits for frames to unknown addresses, multicast frames and broadcast frames, in frames
    /// per second; `None` if unlimited.
    #[must_use]
    pub fn storms(&self) -> [Option<u32>; 3] {
        [self.storm_unknown, self.storm_mcast, self.storm_bcast]
    }

    /// Returns rates in bits per second and bursts in bytes, for sending and for receiving; `None` if unlimited.
    #[must_use]
    pub fn rates(&self) -> [Option<(Rate, Size)>; 2] {
        let both = [(&self.rate_in, &self.burst_in), (&self.rate_out, &self.burst_out)];
        both.map(|(rate, burst)| {
            let rate = **rate.as_ref()?;
            Some((rate, burst.as_deref().copied().unwrap_or_else(|| usual_burst(rate))))
        })
    }

    /// Returns the maximum number of bytes of frames that may wait because of the receive rate.
    #[must_use]
    pub fn queue(&self) -> Size {
        let rate = self.rate_out.as_deref().map_or(0, |rate| rate.bits());
        let usual = (rate / 8 / QUEUE_PART).clamp(LEAST_QUEUE, MOST_QUEUE);
        self.queue_out.as_deref().copied().unwrap_or(Size::from_bytes(usual))
    }

    fn check_rates(&self) -> Result<(), Misfit> {
        for (burst, is_lone, rate) in [
            ("burst_in", self.burst_in.is_some() && self.rate_in.is_none(), "rate_in"),
            ("burst_out", self.burst_out.is_some() && self.rate_out.is_none(), "rate_out"),
        ] {
            if is_lone {
                return Err(Misfit::policy(burst, format!("a burst needs a rate: also set {rate}")));
            }
        }
        if self.queue_out.is_some() && self.rate_out.is_none() && self.pps_out.is_none() {
            return Err(Misfit::policy("queue_out", "a queue needs a rate: also set rate_out or pps_out"));
        }
        if self.queue().bytes() > MOST_QUEUE {
            return Err(Misfit::policy("queue_out", format!("expected at most {}", Size::from_bytes(MOST_QUEUE))));
        }
        Ok(())
    }

    fn check_learning(&self) -> Result<(), Misfit> {
        let is_off = self.learning == Some(false);
        if is_off && is_on(self.sticky) {
            return Err(Misfit::policy("sticky", "sticky addresses need learning, which is off"));
        }
        if is_off && self.max_addresses.is_some() {
            return Err(Misfit::policy("max_addresses", "a limit of learned addresses needs learning, which is off"));
        }
        if self.max_addresses == Some(0) {
            let what = "expected at least 1: to prevent learning, use 'learning off' with 'locked on'";
            return Err(Misfit::policy("max_addresses", what));
        }
        Ok(())
    }

    /// Checks for policies that exclude each other.
    fn exclude(&self) -> Result<(), Misfit> {
        let given: Vec<_> = self.given().map(|(key, _)| key).collect();
        for option in given.iter().filter_map(|key| AttachOption::find(key)) {
            if let Some(other) = option.excludes.iter().find(|other| given.contains(other)) {
                return Err(Misfit::policy(option.key, format!("cannot be combined with {other}: {}", option.why)));
            }
        }
        Ok(())
    }
}

/// Returns whether a policy that is off by default is on.
pub(super) fn is_on(policy: Option<bool>) -> bool {
    policy == Some(true)
}

fn vlan_key(bad: &BadVlans) -> &'static str {
    match bad {
        BadVlans::AccessAndTrunk | BadVlans::Number(_) => "access",
        BadVlans::Range(_) => "trunk",
        BadVlans::NativeAlone => "native",
        BadVlans::Protocol(_) | BadVlans::ProtocolAlone => "vlan_protocol",
    }
}

fn check_link(key: &'static str, link: Option<&Spec>) -> Result<(), Misfit> {
    match link {
        Some(link) if link.bytes().bytes() > MOST_UNDER_WAY => {
            Err(Misfit::policy(key, format!("expected at most {} in flight", Size::from_bytes(MOST_UNDER_WAY))))
        }
        Some(link) if link.limit() > MOST_FRAMES => {
            Err(Misfit::policy(key, format!("expected at most {MOST_FRAMES} frames in flight")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(values: Value) -> Result<Policies, String> {
        let policies = Policies::default().with(values.as_object().expect("an object"))?;
        policies.check().map(|()| policies).map_err(|misfit| misfit.to_string())
    }

    /// Objective: given values are read back; other policies have their defaults; an object without values sets no
    /// policy.
    #[test]
    fn given_values_are_read_back() {
        assert!(!of(json!({})).unwrap().are_for_frames() && !of(json!({"info": "x"})).unwrap().are_for_frames());
        let policies = of(json!({"access": 10, "flood": false, "storm_bcast": 5, "rate_in": "1gbit"})).unwrap();
        assert!(policies.are_for_frames());
        assert_eq!(policies.vlans(), Ok(Some(Vlans::access(10).unwrap())));
        assert_eq!((policies.floods(), policies.storms()), ([false, true, true], [None, None, Some(5)]));
        let (rate, burst) = policies.rates()[0].unwrap();
        assert_eq!((rate.bits(), burst.bytes(), policies.learning), (1_000_000_000, 1_250_000, None));
        let slow = of(json!({"rate_in": "10mbit", "burst_in": "3kb"})).unwrap();
        assert_eq!(slow.rates()[0].map(|(_, burst)| burst.bytes()), Some(3072));
    }

    /// Objective: each contradiction is refused, and the text names the option.
    #[test]
    fn each_contradiction_names_its_option() {
        for (values, key) in [
            (json!({"native": 5}), "native"),
            (json!({"vlan_protocol": "802.1ad"}), "vlan_protocol"),
            (json!({"access": 5, "trunk": "7"}), "access"),
            (json!({"private": true, "trunk": "all"}), "private"),
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
            assert!(why.contains(key), "{values}: {why}");
        }
    }

    /// Objective: setting a policy leaves other policies unchanged; null removes only the policy for which it is given.
    #[test]
    fn a_set_policy_stays_while_another_is_set() {
        let set = |policies: &Policies, values: Value| policies.with(values.as_object().unwrap()).unwrap();
        let first = set(&Policies::default(), json!({"access": 10, "isolated": true}));
        let second = set(&first, json!({"access": null, "trunk": "1-3"}));
        assert_eq!(Value::from(second.values()), json!({"isolated": true, "trunk": "1-3"}));
    }

    /// Objective: a text stays as given, in JSON and in comparisons, even if other texts mean the same; an unreadable
    /// text, and an option that is not a policy, are refused when read.
    #[test]
    fn a_text_stays_as_given() {
        let values = json!({"trunk": "1,2,3", "rate_in": "1000mbit", "filter_in": ["drop  1,6 0 0 1"]});
        let policies: Policies = serde_json::from_value(values.clone()).unwrap();
        assert_eq!(serde_json::to_value(&policies).unwrap(), values);
        assert_ne!(policies.rate_in, Some(Rate::from_bits(1_000_000_000).into()));
        for (wrong, key) in [(json!({"rate_in": "fast"}), "rate_in"), (json!({"mtu": 9000}), "mtu")] {
            let why = serde_json::from_value::<Policies>(wrong).unwrap_err().to_string();
            assert!(why.contains(key), "{why}");
        }
    }
}
