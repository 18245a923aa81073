//! Compares a port's policies with its switch's defaults, which the port's user may only make stricter.

use netvale_policy::guard::{Check, Checks};
use netvale_policy::vlan::Vlans;

use super::Policies;
use super::misfit::Misfit;
use super::policies::is_on;
use super::rule::ConfiguredRules;

impl Policies {
    /// Returns the key of a policy that allows more than `most` does; `None` if there is no such policy.
    ///
    /// # Errors
    /// [`Misfit`] if policies in one of the two sets contradict each other, or a rule is not compiled.
    pub fn beyond(&self, most: &Policies) -> Result<Option<&'static str>, Misfit> {
        [most, self].into_iter().try_for_each(|policies| policies.check().and_then(|()| policies.check_rules()))?;
        let vlans = if self.access.is_some() { "access" } else { "trunk" };
        let same = [
            ("addresses", is_same(&self.addresses, &most.addresses)),
            ("mcast_snooping", is_same(&self.mcast_snooping, &most.mcast_snooping)),
            ("mcast_querier", is_same(&self.mcast_querier, &most.mcast_querier)),
            ("mcast_router", is_same(&self.mcast_router, &most.mcast_router)),
            ("mcast_fast_leave", is_same(&self.mcast_fast_leave, &most.mcast_fast_leave)),
            ("rate_group", is_same(&self.rate_group, &most.rate_group)),
            ("link_in", is_same(&self.link_in, &most.link_in)),
            ("link_out", is_same(&self.link_out, &most.link_out)),
            ("filter_in", begins_with(&self.filter_in, &most.filter_in)),
            ("filter_out", begins_with(&self.filter_out, &most.filter_out)),
            ("guard", has_checks(self.guard.as_deref(), most.guard.as_deref())),
            (vlans, has_only_vlans(self.vlans()?, most.vlans()?)),
        ];
        let all = same.into_iter().chain(switches(self, most)).chain(numbers(self, most));
        Ok(all.into_iter().find(|(_, fits)| !fits).map(|(key, _)| key))
    }
}

/// Compares a policy whose values are not ordered by strictness. Returns whether it equals `most`, or `most` does not
/// set it.
fn is_same<T: PartialEq>(is: &Option<T>, most: &Option<T>) -> bool {
    most.is_none() || is == most
}

/// Returns whether a filter begins with the rules of `most`. The first matching rule decides, so later rules only
/// handle frames that no earlier rule matches.
fn begins_with(is: &ConfiguredRules, most: &ConfiguredRules) -> bool {
    is.as_deref().unwrap_or_default().starts_with(most.as_deref().unwrap_or_default())
}

fn has_checks(is: Option<&Checks>, most: Option<&Checks>) -> bool {
    let has = |checks: Option<&Checks>, check| checks.is_some_and(|checks| checks.has(check));
    Check::ALL.into_iter().all(|check| !has(most, check) || has(is, check))
}

fn has_only_vlans(is: Option<Vlans>, most: Option<Vlans>) -> bool {
    most.is_none_or(|most| is.is_some_and(|is| is.are_among(&most)))
}

fn switches(is: &Policies, most: &Policies) -> [(&'static str, bool); 9] {
    // `takes` compares policies that restrict the port while they are on, `gives` those that grant the port something.
    let takes = |is: Option<bool>, most: Option<bool>| is_on(is) || !is_on(most);
    let gives = |is: bool, most: bool| !is || most;
    let learns = |policies: &Policies| policies.learning != Some(false);
    let [is_flood, most_flood] = [is, most].map(Policies::floods);
    [
        ("sticky", takes(is.sticky, most.sticky)),
        ("locked", takes(is.locked, most.locked)),
        ("isolated", takes(is.isolated, most.isolated)),
        ("private", takes(is.private, most.private)),
        ("loop_guard", takes(is.loop_guard, most.loop_guard)),
        ("learning", gives(learns(is), learns(most))),
        ("flood", gives(is_flood[0], most_flood[0])),
        ("mcast_flood", gives(is_flood[1], most_flood[1])),
        ("bcast_flood", gives(is_flood[2], most_flood[2])),
    ]
}

fn numbers(is: &Policies, most: &Policies) -> [(&'static str, bool); 11] {
    let bits = |policies: &Policies| policies.rates().map(|rate| rate.map(|(rate, _)| rate.bits()));
    let bytes = |policies: &Policies| policies.rates().map(|rate| rate.map(|(_, burst)| burst.bytes()));
    let [rate_in, rate_out] = bits(is);
    let [burst_in, burst_out] = bytes(is);
    let [most_in, most_out] = bits(most);
    let [most_burst_in, most_burst_out] = bytes(most);
    let waits = most.rate_out.is_some() || most.pps_out.is_some();
    [
        ("rate_in", is_at_most(rate_in, most_in)),
        ("burst_in", is_at_most(burst_in, most_burst_in)),
        ("pps_in", is_at_most(is.pps_in, most.pps_in)),
        ("rate_out", is_at_most(rate_out, most_out)),
        ("burst_out", is_at_most(burst_out, most_burst_out)),
        ("pps_out", is_at_most(is.pps_out, most.pps_out)),
        ("queue_out", !waits || is.queue().bytes() <= most.queue().bytes()),
        ("max_addresses", is_at_most(is.max_addresses, most.max_addresses)),
        ("storm_unknown", is_at_most(is.storm_unknown, most.storm_unknown)),
        ("storm_mcast", is_at_most(is.storm_mcast, most.storm_mcast)),
        ("storm_bcast", is_at_most(is.storm_bcast, most.storm_bcast)),
    ]
}

fn is_at_most<T: PartialOrd>(is: Option<T>, most: Option<T>) -> bool {
    most.is_none_or(|most| is.is_some_and(|is| is <= most))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn options(values: &Value) -> Policies {
        Policies::default().with(values.as_object().expect("an object")).expect("policies")
    }

    /// Objective: for each policy, a narrower value passes, and a wider value makes the check return the policy's key.
    #[test]
    fn only_narrower_values_pass() {
        let drop_all = "drop 1,6 0 0 1";
        for (key, most, narrower, wider) in [
            ("access", json!({"trunk": "10-20", "native": 5}), json!({"access": 10}), json!({"access": 21})),
            ("trunk", json!({"trunk": "10-20"}), json!({"trunk": "11,12"}), json!({"trunk": "20,21"})),
            (
                "addresses",
                json!({"addresses": "02:00:00:00:00:0a"}),
                json!({"isolated": true}),
                json!({"addresses": "02:00:00:00:00:0b"}),
            ),
            (
                "guard",
                json!({"guard": "dhcp,ra"}),
                json!({"guard": "ra,nd,dhcp", "addresses": "10.0.0.1"}),
                json!({"guard": "ra"}),
            ),
            (
                "filter_in",
                json!({"filter_in": [drop_all]}),
                json!({"filter_in": [drop_all, "pass 1,6 0 0 1"]}),
                json!({"filter_in": ["pass 1,6 0 0 1", drop_all]}),
            ),
            (
                "filter_out",
                json!({"filter_out": [drop_all]}),
                json!({"info": "x"}),
                json!({"filter_out": ["pass 1,6 0 0 1"]}),
            ),
            ("locked", json!({"locked": true}), json!({"locked": true}), json!({"locked": false})),
            ("isolated", json!({"isolated": false}), json!({"isolated": true}), json!(null)),
            ("private", json!({"private": true}), json!({"access": 7}), json!({"private": false})),
            ("loop_guard", json!({"loop_guard": true}), json!({}), json!({"loop_guard": false})),
            ("sticky", json!({"sticky": true}), json!({}), json!({"sticky": false})),
            ("learning", json!({"learning": false}), json!({"flood": false}), json!({"learning": true})),
            ("flood", json!({"flood": false}), json!({"bcast_flood": false}), json!({"flood": true})),
            ("mcast_flood", json!({"mcast_flood": false}), json!({}), json!({"mcast_flood": true})),
            ("bcast_flood", json!({"bcast_flood": false}), json!({}), json!({"bcast_flood": true})),
            ("storm_bcast", json!({"storm_bcast": 10}), json!({"storm_bcast": 9}), json!({"storm_bcast": 11})),
            ("max_addresses", json!({"max_addresses": 10}), json!({"max_addresses": 1}), json!({"max_addresses": 11})),
            ("rate_in", json!({"rate_in": "1gbit"}), json!({"rate_in": "900mbit"}), json!({"rate_in": "2gbit"})),
            ("burst_in", json!({"rate_in": "1gbit"}), json!({"burst_in": "64kb"}), json!({"burst_in": "100mb"})),
            ("pps_out", json!({"pps_out": 100}), json!({"pps_out": 50}), json!({"pps_out": 101})),
            (
                "queue_out",
                json!({"rate_out": "1gbit", "queue_out": "1mb"}),
                json!({"queue_out": "512kb"}),
                json!({"queue_out": "2mb"}),
            ),
            ("rate_group", json!({"rate_group": "g 1gbit"}), json!({}), json!({"rate_group": "h 1gbit"})),
            ("link_in", json!({"link_in": "delay 1ms"}), json!({}), json!({"link_in": "delay 2ms"})),
            ("mcast_snooping", json!({"mcast_snooping": true}), json!({}), json!({"mcast_snooping": false})),
        ] {
            let most = options(&most);
            let beyond = |values: &Value| options(values).over(&most).beyond(&most).expect("policies that agree");
            assert_eq!(beyond(&narrower), None, "{key}: {narrower}");
            if !wider.is_null() {
                assert_eq!(beyond(&wider), Some(key), "{wider}");
            }
            assert_eq!(options(&json!({})).over(&most), most, "{key}");
        }
    }
}
