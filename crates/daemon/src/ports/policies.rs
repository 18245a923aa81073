//! Policies of ports, as their switch gets them; and changing them while frames pass.

use std::sync::Arc;

use netvale_control::options::{AttachOption, MTU, PortPolicies, RateGroup, Rule};
use netvale_control::types::{Direction, EventName, PortOptions, RuleInfo, SetParams};
use netvale_policy::bucket::{Limit, MEMBERS, Share};
use netvale_port::link::Link;
use netvale_switch::Policies;
use netvale_switch::filters::{self, Filters};
use netvale_switch::policies::Classes;
use rustix::io::Errno;
use serde_json::{Map, Value as JsonValue};

use super::links;
use super::tunnel::{self, word_of};
use crate::caller::Caller;
use crate::daemon::{Daemon, Record};
use crate::permission::is_trusted;
use crate::refusal::{Refusal, refuse};
use crate::registry::events::Happened;

/// The policies that options say.
///
/// # Errors
/// [`Refusal`] names options that contradict each other.
pub fn parse(options: &PortOptions) -> Result<Option<PortPolicies>, Refusal> {
    options.policies().or_else(|misfit| refuse(Errno::INVAL, misfit.to_string()))
}

/// A rule for what a port sends (0) or gets (1).
pub type MakeRule<'a> = dyn FnMut(usize, Rule) -> Arc<filters::Rule> + 'a;

/// A rule that begins to count.
pub fn new_rule(_dir: usize, rule: Rule) -> Arc<filters::Rule> {
    filters::Rule::new(rule.drops, rule.program)
}

/// The rules of a port by their texts, of which those that stay go on counting.
struct Known<'a>([Vec<(&'a String, Arc<filters::Rule>)>; 2]);

impl Known<'_> {
    fn of<'a>(options: &'a PortOptions, policies: Option<&Policies>) -> Known<'a> {
        let of = |dir: usize, texts: &'a Option<Vec<String>>| {
            let rules = policies.map_or(&[][..], |policies| policies.filters[dir].rules());
            texts.iter().flatten().zip(rules.iter().cloned()).collect()
        };
        Known([of(0, &options.filter_in), of(1, &options.filter_out)])
    }

    fn rule(&mut self, dir: usize, rule: Rule) -> Arc<filters::Rule> {
        let text = rule.to_string();
        let known = &mut self.0[dir];
        match known.iter().position(|(known, _)| **known == text) {
            Some(at) => known.swap_remove(at).1,
            None => new_rule(dir, rule),
        }
    }
}

/// A part of the group with which a new port shares a rate.
///
/// # Errors
/// [`Refusal`] if the group has another rate, or as many members as there can be.
pub fn join(d: &mut Daemon, uid: u32, policies: Option<&PortPolicies>) -> Result<Option<Arc<Share>>, Refusal> {
    let Some(wanted) = policies.and_then(|policies| policies.group.as_ref()) else { return Ok(None) };
    if let Some(known) = d.groups.get(uid, &wanted.name).filter(|known| *known != wanted) {
        let text = format!(
            "rate_group: {} has another rate ({known}): 'netvale port set' changes it for all its ports",
            wanted.name
        );
        return refuse(Errno::EXIST, text);
    }
    share(d, uid, wanted).map(Some)
}

fn share(d: &mut Daemon, uid: u32, wanted: &RateGroup) -> Result<Arc<Share>, Refusal> {
    let full =
        || Refusal::new(Errno::NOSPC, format!("rate_group: {} has {MEMBERS} ports, the most it can have", wanted.name));
    d.groups.get_or_make(uid, wanted).join().map(Arc::new).ok_or_else(full)
}

/// Gives the other ports of a group its new rate.
fn regroup(d: &mut Daemon, full: &str, uid: u32, group: &RateGroup) -> Result<(), Refusal> {
    let is_other = |record: &Record| {
        let known: Option<RateGroup> = record.policies.rate_group.as_deref().and_then(|text| text.parse().ok());
        record.owner.uid == uid && known.is_some_and(|known| known.name == group.name && known != *group)
    };
    let others = d.ports.iter().filter(|(name, record)| *name != full && is_other(record));
    let others: Vec<_> = others.map(|(name, record)| (name.to_owned(), record.policies.clone())).collect();
    for (name, options) in others {
        put(d, &name, &PortOptions { rate_group: Some(group.to_string()), ..options })?;
    }
    Ok(())
}

/// What a port's switch is told of its policies.
pub fn for_switch(policies: PortPolicies, link: Option<Arc<Link>>, rule: &mut MakeRule<'_>) -> Policies {
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
        addresses: policies.addresses.iter().map(|mac| word_of(*mac)).collect(),
        most_addresses: policies.max_addresses,
        learning: policies.learning,
        sticky: policies.sticky,
        locked: policies.locked,
        isolated: policies.isolated,
        flood: Classes(policies.flood),
        storm: Classes(storm),
        loop_guard: policies.loop_guard,
        multicast: policies.multicast,
        group: None,
        link,
        guard: policies.guard,
        filters,
        rates: bits.into_iter().chain(frames).collect(),
    }
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
    let mut policies = asked.set.clone();
    let mtu = policies.remove(MTU).map(|value| read_mtu(&value)).transpose()?;
    let options = record.policies.with_policies(&policies).or_else(|what| refuse(Errno::INVAL, what))?;
    // What is taken away is as the switch's ports begin.
    let usual = record.switch.as_ref().map(|switch| d.config.switch.policies.of(switch.name())).unwrap_or_default();
    let options = options.over(&usual);
    let mtu_before = record.declared.as_ref().and_then(|declared| declared.params.options.mtu);
    if let Some(mtu) = mtu {
        put_mtu(d, &asked.port, mtu)?;
    }
    if !policies.is_empty() {
        if let Err(why) = put(d, &asked.port, &options) {
            // All of it, or nothing. That it was the MTU a moment ago makes this unlikely to fail.
            let _ = mtu.map(|_| put_mtu(d, &asked.port, mtu_before));
            return Err(why);
        }
        if let Some(record) = d.ports.get_mut(&asked.port) {
            record.policies_are_set |= is_trusted(caller);
        }
    }
    tracing::info!(port = asked.port, uid = caller.uid, policies = %JsonValue::from(options.policy_values()), "policies were set");
    tell(d, &asked.port, Some(caller), &asked.set);
    Ok(())
}

/// An MTU that is asked for; null is the default.
fn read_mtu(value: &JsonValue) -> Result<Option<u32>, Refusal> {
    let mut options = PortOptions::default();
    if let Some(option) = AttachOption::find(MTU).filter(|_| !value.is_null()) {
        option.put(&mut options, value.clone()).or_else(|what| refuse(Errno::INVAL, what))?;
    }
    Ok(options.mtu)
}

/// Sets a port's MTU while frames pass.
///
/// # Errors
/// [`Refusal`] if its kind cannot, or the kernel does not take it.
pub fn put_mtu(d: &mut Daemon, full: &str, mtu: Option<u32>) -> Result<(), Refusal> {
    let Some(record) = d.ports.get_mut(full) else { return Err(Refusal::internal("a port vanished")) };
    record.behind.set_mtu(mtu)?;
    if let Some(declared) = &mut record.declared {
        declared.params.options.mtu = mtu;
    }
    Ok(())
}

/// Tells that somebody, or a configuration, has changed policies of a port.
pub fn tell(d: &mut Daemon, full: &str, by: Option<Caller>, set: &Map<String, JsonValue>) {
    let uid = d.ports.get(full).map_or(0, |record| record.owner.uid);
    let changed = Happened::to(EventName::PortPolicies, uid).at(full).with("set", set);
    d.events.tell(if let Some(caller) = by { changed.by(caller) } else { changed });
}

/// Gives a port the policies of these options and no others, while frames pass.
///
/// # Errors
/// [`Refusal`] if they contradict each other; nothing has changed then.
pub fn put(d: &mut Daemon, full: &str, options: &PortOptions) -> Result<(), Refusal> {
    let (parsed, values) = (parse(options)?, options.policy_values());
    let with = |old: &PortOptions| old.with_only(&values).or_else(|what| refuse(Errno::INVAL, what));
    let Some(uid) = d.ports.get(full).map(|record| record.owner.uid) else { return Ok(()) };
    let group = parsed.as_ref().and_then(|parsed| parsed.group.clone());
    let share = group.as_ref().map(|wanted| share(d, uid, wanted)).transpose()?;
    let old_links = links::change(d, full, parsed.as_ref())?;
    let Some(record) = d.ports.get_mut(full) else { return Ok(()) };
    if let (Some(switch), Some(id)) = (&record.switch, record.id) {
        let before = switch.policies(id);
        let mut known = Known::of(&record.policies, before.as_deref());
        let link = record.links[0].as_ref().map(|known| Arc::clone(&known.link));
        let policies = parsed.map(|parsed| for_switch(parsed, link, &mut |dir, rule| known.rule(dir, rule)));
        let policies = policies.map(|policies| Arc::new(Policies { group: share, ..policies }));
        switch.set_policies(id, policies, Some(links::egresses(record)));
    }
    record.policies = with(&record.policies)?;
    if let Some(declared) = &mut record.declared {
        declared.params.options = with(&declared.params.options)?;
    }
    links::end(d, old_links);
    tunnel::ask_port(d, full);
    group.map_or(Ok(()), |group| regroup(d, full, uid, &group))
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
