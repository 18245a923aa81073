//! Policies of ports, as their switch gets them; and changing them while frames pass.

use std::sync::Arc;

use netvale_control::options::{PortPolicies, Rule};
use netvale_control::types::{Direction, Mac, PortOptions, RuleInfo, SetParams};
use netvale_policy::bucket::Limit;
use netvale_switch::Policies;
use netvale_switch::filters::{self, Filters};
use netvale_switch::policies::Classes;
use rustix::io::Errno;
use serde_json::Value as JsonValue;

use crate::caller::Caller;
use crate::daemon::{Daemon, Record};
use crate::permission::is_trusted;
use crate::refusal::{Refusal, refuse};

/// What a port's switch is told of its options.
///
/// # Errors
/// [`Refusal`] names options that contradict each other.
pub fn of(options: &PortOptions) -> Result<Option<Arc<Policies>>, Refusal> {
    after(options, &PortOptions::default(), None)
}

/// The same for a port that has policies: a rule that stays goes on counting.
fn after(
    options: &PortOptions,
    old: &PortOptions,
    known: Option<Arc<Policies>>,
) -> Result<Option<Arc<Policies>>, Refusal> {
    let policies = options.policies().or_else(|misfit| refuse(Errno::INVAL, misfit.to_string()))?;
    let texts = [&old.filter_in, &old.filter_out].map(|texts| texts.iter().flatten());
    let known = known.iter().flat_map(|known| known.filters.each_ref()).map(Filters::rules);
    let mut known: Vec<Vec<_>> =
        texts.into_iter().zip(known).map(|(texts, rules)| texts.zip(rules).collect()).collect();
    let mut rule = |dir: usize, rule: Rule| {
        let text = rule.to_string();
        let rules = known.get_mut(dir).filter(|rules| !rules.is_empty());
        let found = rules.and_then(|rules| {
            let at = rules.iter().position(|(known, _)| **known == text)?;
            Some(Arc::clone(rules.swap_remove(at).1))
        });
        found.unwrap_or_else(|| filters::Rule::new(rule.drops, rule.program))
    };
    Ok(policies.map(|policies| Arc::new(for_switch(policies, &mut rule))))
}

fn for_switch(policies: PortPolicies, rule: &mut dyn FnMut(usize, Rule) -> Arc<filters::Rule>) -> Policies {
    let [sent, got] = policies.filters;
    let mut filters = |dir, rules: Vec<Rule>| Filters::new(rules.into_iter().map(|one| rule(dir, one)).collect());
    let filters = [filters(0, sent), filters(1, got)];
    // Storms are cut off after a tenth of a second.
    let storm =
        policies.storm.map(|limit| limit.map(|frames| Limit::frames(frames.into(), frames.div_ceil(10).into())));
    let bits = policies.rate_in.map(|(rate, burst)| Limit::bits(rate.bits(), burst.bytes()));
    let frames = policies.pps_in.map(|frames| Limit::frames(frames.into(), frames.div_ceil(100).into()));
    Policies {
        vlans: policies.vlans,
        addresses: policies.addresses.iter().map(word).collect(),
        most_addresses: policies.max_addresses,
        learning: policies.learning,
        sticky: policies.sticky,
        locked: policies.locked,
        isolated: policies.isolated,
        flood: Classes(policies.flood),
        storm: Classes(storm),
        loop_guard: policies.loop_guard,
        guard: policies.guard,
        filters,
        rates: bits.into_iter().chain(frames).collect(),
    }
}

/// An address in wire order, first byte lowest.
fn word(mac: &Mac) -> u64 {
    let [a, b, c, d, e, f] = mac.0;
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}

/// Changes policies of a port while frames pass.
///
/// # Errors
/// [`Refusal`] if there is no such port on a switch, or the policies contradict each other; nothing has changed then.
pub fn set(d: &mut Daemon, asked: &SetParams, caller: Caller) -> Result<(), Refusal> {
    let missing = || {
        let text = format!("there is no port {} on a switch: 'netvale list' shows the ports", asked.port);
        Refusal::new(Errno::NXIO, text)
    };
    let record = d.ports.get(&asked.port).ok_or_else(missing)?;
    if record.id.is_none() {
        return Err(missing());
    }
    let options = record.policies.with_policies(&asked.set).or_else(|what| refuse(Errno::INVAL, what))?;
    put(d, &asked.port, &options)?;
    if let Some(record) = d.ports.get_mut(&asked.port) {
        record.policies_are_set |= is_trusted(caller);
    }
    tracing::info!(port = asked.port, uid = caller.uid, policies = %JsonValue::from(options.policy_values()), "policies were set");
    Ok(())
}

/// Gives a port the policies of these options and no others, while frames pass.
///
/// # Errors
/// [`Refusal`] if they contradict each other; nothing has changed then.
pub fn put(d: &mut Daemon, full: &str, options: &PortOptions) -> Result<(), Refusal> {
    let values = options.policy_values();
    let Some(record) = d.ports.get_mut(full) else { return Ok(()) };
    let known = record.switch.as_ref().zip(record.id).and_then(|(switch, id)| switch.policies(id));
    let policies = after(options, &record.policies, known)?;
    let with = |old: &PortOptions| old.with_only(&values).or_else(|what| refuse(Errno::INVAL, what));
    record.policies = with(&record.policies)?;
    if let Some(declared) = &mut record.declared {
        declared.params.options = with(&declared.params.options)?;
    }
    if let (Some(switch), Some(id)) = (&record.switch, record.id) {
        switch.set_policies(id, policies, None);
    }
    Ok(())
}

/// The rules of a port, and how many frames each decided about.
pub fn rules(record: &Record) -> Vec<RuleInfo> {
    let policies = record.switch.as_ref().zip(record.id).and_then(|(switch, id)| switch.policies(id));
    let Some(policies) = policies else { return Vec::new() };
    let texts = [&record.policies.filter_in, &record.policies.filter_out].map(|texts| texts.iter().flatten());
    let rules = texts.into_iter().zip(&policies.filters).zip([Direction::In, Direction::Out]);
    let info = |dir, (text, rule): (&String, &Arc<filters::Rule>)| {
        let known: Option<Rule> = text.parse().ok();
        let expression = known.and_then(|rule| rule.expression).unwrap_or_else(|| rule.program.to_string());
        RuleInfo { dir, drops: rule.drops, expression, frames: rule.frames() }
    };
    rules.flat_map(|((texts, rules), dir)| texts.zip(rules.rules()).map(move |one| info(dir, one))).collect()
}

/// Goes on counting where another process stopped.
pub fn count_rules(record: &Record, frames: &[u64]) {
    let policies = record.switch.as_ref().zip(record.id).and_then(|(switch, id)| switch.policies(id));
    let rules = policies.iter().flat_map(|policies| policies.filters.iter().flat_map(Filters::rules));
    rules.zip(frames).for_each(|(rule, &frames)| rule.count(frames));
}

/// Sentences for `netvale show`: what policies have done that no counter says.
pub fn notes(record: &Record) -> Vec<String> {
    let state = record.switch.as_ref().zip(record.id).and_then(|(switch, id)| switch.policy_state(id));
    let Some(state) = state.filter(|state| state.loops() > 0) else { return Vec::new() };
    let now = if state.is_blocked() { "is blocked" } else { "was blocked" };
    vec![format!("{now}, as addresses moved to it again and again ({} times so far): there is a loop", state.loops())]
}
