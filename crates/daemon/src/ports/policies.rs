//! Compiles the policies of ports for their switch, and changes them while the ports are attached.

use std::sync::Arc;

use netvale_control::options::{
    AttachOption, CompiledRule, ConfiguredRule, ConfiguredRules, MTU, Misfit, RateGroup, WrittenValue,
};
use netvale_control::types::{Direction, EventName, Mac, Policies, PortOptions, RuleInfo, SetParams};
use netvale_policy::bucket::{GroupShare, MEMBERS, RateLimit};
use netvale_switch::CompiledPolicies;
use netvale_switch::filters::{self, Filters};
use netvale_switch::policies::Classes;
use rustix::io::Errno;
use serde_json::{Map, Value as JsonValue};

use super::links;
use super::private;
use super::tunnel::{self, word_of};
use crate::caller::Caller;
use crate::daemon::{Daemon, DaemonPort};
use crate::permission::is_trusted;
use crate::refusal::{Refusal, refuse};
use crate::registry::events::NewEvent;

/// A port's filter rules as configured, each with its compiled form. Unchanged rules keep their counts of frames.
#[derive(Default)]
pub struct PortRules<'a>([Vec<(&'a WrittenValue<ConfiguredRule>, Arc<filters::FilterRule>)>; 2]);

impl<'a> PortRules<'a> {
    fn of(policies: &'a Policies, compiled: Option<&CompiledPolicies>) -> PortRules<'a> {
        let of = |dir: usize, given: &'a ConfiguredRules| {
            let rules = compiled.map_or(&[][..], |compiled| compiled.filters[dir].rules());
            given.iter().flatten().zip(rules.iter().cloned()).collect()
        };
        let [sent, got] = policies.rules();
        PortRules([of(0, sent), of(1, got)])
    }

    fn rule(
        &mut self,
        dir: usize,
        given: &WrittenValue<ConfiguredRule>,
        rule: &CompiledRule,
    ) -> Arc<filters::FilterRule> {
        let known = &mut self.0[dir];
        match known.iter().position(|(known, _)| *known == given) {
            Some(at) => known.swap_remove(at).1,
            None => filters::FilterRule::new(rule.drops, rule.program.clone()),
        }
    }
}

/// Adds a new port to the rate group that the port's policies name. Returns `None` if they name no group.
///
/// # Errors
/// [`Refusal`] if the group has another rate or is full.
pub fn join(d: &mut Daemon, uid: u32, policies: &Policies) -> Result<Option<Arc<GroupShare>>, Refusal> {
    let Some(wanted) = policies.rate_group.as_deref() else { return Ok(None) };
    if let Some(known) = d.groups.get(uid, &wanted.name).filter(|known| *known != wanted) {
        let text = format!(
            "rate_group: {} has another rate ({known}); 'netvale port set' changes the rate of all its ports",
            wanted.name
        );
        return refuse(Errno::EXIST, text);
    }
    share(d, uid, wanted).map(Some)
}

fn share(d: &mut Daemon, uid: u32, wanted: &RateGroup) -> Result<Arc<GroupShare>, Refusal> {
    let full =
        || Refusal::new(Errno::NOSPC, format!("rate_group: {} has reached the limit of {MEMBERS} ports", wanted.name));
    d.groups.get_or_make(uid, wanted).join().map(Arc::new).ok_or_else(full)
}

/// After the rate of a group has been changed through the port `full`, updates the policies of the group's other ports.
fn regroup(d: &mut Daemon, full: &str, uid: u32, group: &RateGroup) -> Result<(), Refusal> {
    let is_other = |record: &DaemonPort| {
        let known = record.policies.rate_group.as_deref();
        record.owner.uid == uid && known.is_some_and(|known| known.name == group.name && known != group)
    };
    let others = d.ports.iter().filter(|(name, record)| *name != full && is_other(record));
    let others: Vec<_> = others.map(|(name, record)| (name.to_owned(), record.given_policies())).collect();
    for (name, policies) in others {
        put(d, &name, &Policies { rate_group: Some(group.clone().into()), ..policies })?;
    }
    Ok(())
}

/// Compiles a port's policies for its switch, except its links and its rate group. Returns `None` if no policy applies
/// to individual frames. Filter rules that are also in `known` keep their counts.
///
/// # Errors
/// [`Refusal`] that names the contradictory policies, or the rule that does not compile.
pub fn compile(policies: &Policies, known: PortRules<'_>) -> Result<Option<CompiledPolicies>, Refusal> {
    let compiled = policies.check().and_then(|()| compile_all(policies, known));
    let compiled = compiled.or_else(|misfit| refuse(Errno::INVAL, misfit.to_string()))?;
    Ok(policies.are_for_frames().then_some(compiled))
}

fn compile_all(policies: &Policies, known: PortRules<'_>) -> Result<CompiledPolicies, Misfit> {
    // The burst of storm control is the number of frames in a tenth of a second.
    let storm =
        policies.storms().map(|limit| limit.map(|frames| RateLimit::frames(frames.into(), frames.div_ceil(10).into())));
    let addresses = policies.addresses.iter().flat_map(|addresses| addresses.macs());
    Ok(CompiledPolicies {
        vlans: policies.vlans()?,
        addresses: addresses.map(|mac| word_of(Mac(mac.0))).collect(),
        most_addresses: policies.max_addresses,
        learning: policies.learning != Some(false),
        sticky: policies.sticky == Some(true),
        locked: policies.locked == Some(true),
        isolated: policies.isolated == Some(true),
        flood: Classes(policies.floods()),
        storm: Classes(storm),
        loop_guard: policies.loop_guard == Some(true),
        multicast: policies.multicast()?,
        group: None,
        link: None,
        guard: policies.guard()?,
        filters: compile_filters(policies, known)?,
        rates: links::limits(policies.rates()[0], policies.pps_in),
    })
}

fn compile_filters(policies: &Policies, mut known: PortRules<'_>) -> Result<[Filters; 2], Misfit> {
    policies.check_rules()?;
    let mut filters = |dir: usize, given: &ConfiguredRules| {
        let compiled = given.iter().flatten().filter_map(|given| Some((given, given.compiled().ok()?)));
        Filters::new(compiled.map(|(given, rule)| known.rule(dir, given, rule)).collect())
    };
    let [sent, got] = policies.rules();
    Ok([filters(0, sent), filters(1, got)])
}

/// Changes some policies of an attached port.
///
/// # Errors
/// [`Refusal`] if there is no such port on a switch, or if the policies contradict each other; in this case, nothing
/// changes.
pub fn set(d: &mut Daemon, asked: &SetParams, caller: Caller) -> Result<(), Refusal> {
    let missing = || {
        let text = format!("port {} does not exist on any switch: 'netvale list' shows the ports", asked.port);
        Refusal::new(Errno::NXIO, text)
    };
    let record = d.ports.get(&asked.port).ok_or_else(missing)?;
    if record.id.is_none() {
        return Err(missing());
    }
    let mut set = asked.set.clone();
    let mtu = set.remove(MTU).map(|value| read_mtu(&value)).transpose()?;
    let policies = record.given_policies().with(&set).or_else(|what| refuse(Errno::INVAL, what))?;
    // A policy that is reset gets its value from the switch's policies for new ports.
    let usual = record.switch.as_ref().map(|switch| d.config.switch.policies.of(switch.name())).unwrap_or_default();
    let policies = policies.over(&usual);
    let mtu_before = record.declared.as_ref().and_then(|declared| declared.params.options.mtu);
    if let Some(mtu) = mtu {
        put_mtu(d, &asked.port, mtu)?;
    }
    if !set.is_empty() {
        if let Err(why) = put(d, &asked.port, &policies) {
            // On an error, nothing may change, so the MTU is restored. If that fails, the error is ignored: the old MTU
            // was valid before this call.
            let _ = mtu.map(|_| put_mtu(d, &asked.port, mtu_before));
            return Err(why);
        }
        if let Some(record) = d.ports.get_mut(&asked.port) {
            record.policies_are_set |= is_trusted(caller);
        }
    }
    let shown = JsonValue::from(policies.values());
    tracing::info!(port = asked.port, uid = caller.uid, policies = %shown, "set policies");
    tell(d, &asked.port, Some(caller), &asked.set);
    Ok(())
}

/// Parses a requested MTU; null stands for the default.
fn read_mtu(value: &JsonValue) -> Result<Option<u32>, Refusal> {
    let mut options = PortOptions::default();
    if let Some(option) = AttachOption::find(MTU).filter(|_| !value.is_null()) {
        option.put(&mut options, value.clone()).or_else(|what| refuse(Errno::INVAL, what))?;
    }
    Ok(options.mtu)
}

/// Sets the MTU of an attached port.
///
/// # Errors
/// [`Refusal`] if the port's kind does not support it, or the kernel refuses the MTU.
pub fn put_mtu(d: &mut Daemon, full: &str, mtu: Option<u32>) -> Result<(), Refusal> {
    let Some(record) = d.ports.get_mut(full) else { return Err(Refusal::internal("a port vanished")) };
    record.behind.set_mtu(mtu)?;
    if let Some(declared) = &mut record.declared {
        declared.params.options.mtu = mtu;
    }
    Ok(())
}

/// Reports to subscribers that a caller or the configuration has changed a port's policies.
pub fn tell(d: &mut Daemon, full: &str, by: Option<Caller>, set: &Map<String, JsonValue>) {
    let uid = d.ports.get(full).map_or(0, |record| record.owner.uid);
    let changed = NewEvent::to(EventName::PortPolicies, uid).at(full).with("set", set);
    d.events.tell(if let Some(caller) = by { changed.by(caller) } else { changed });
}

/// Replaces the policies of an attached port. If `given` sets no VLAN for a private port, the port keeps its VLAN, or
/// gets one if it has none.
///
/// # Errors
/// [`Refusal`] if the policies contradict each other, or no VLAN is free; in this case, nothing changes.
pub fn put(d: &mut Daemon, full: &str, given: &Policies) -> Result<(), Refusal> {
    let Some(record) = d.ports.get(full) else { return Ok(()) };
    let switch = record.switch.as_ref().map(|switch| switch.name().to_owned()).unwrap_or_default();
    let policies = private::complete(d, &switch, full, given.clone())?;
    put_all(d, full, &policies)?;
    if let Some(declared) = d.ports.get_mut(full).and_then(|record| record.declared.as_mut()) {
        declared.params.options.policies = given.clone();
    }
    Ok(())
}

fn put_all(d: &mut Daemon, full: &str, policies: &Policies) -> Result<(), Refusal> {
    let Some(record) = d.ports.get(full) else { return Ok(()) };
    let uid = record.owner.uid;
    let before = record.switch.as_ref().zip(record.id).and_then(|(switch, id)| switch.policies(id));
    let compiled = compile(policies, PortRules::of(&record.policies, before.as_deref()))?;
    let group = policies.rate_group.as_deref().map(|wanted| share(d, uid, wanted)).transpose()?;
    let old_links = links::change(d, full, policies)?;
    let Some(record) = d.ports.get_mut(full) else { return Ok(()) };
    if let (Some(switch), Some(id)) = (&record.switch, record.id) {
        let link = record.links[0].as_ref().map(|known| Arc::clone(&known.link));
        let compiled = compiled.map(|compiled| Arc::new(CompiledPolicies { link, group, ..compiled }));
        switch.set_policies(id, compiled, Some(links::egresses(record)));
    }
    record.policies = policies.clone();
    links::end(d, old_links);
    tunnel::ask_port(d, full);
    policies.rate_group.as_deref().map_or(Ok(()), |group| regroup(d, full, uid, group))
}

/// Returns a port's filter rules, each with the number of frames that it has decided.
pub fn rules(record: &DaemonPort) -> Vec<RuleInfo> {
    let policies = record.switch.as_ref().zip(record.id).and_then(|(switch, id)| switch.policies(id));
    let Some(policies) = policies else { return Vec::new() };
    let given = record.policies.rules().map(|given| given.iter().flatten());
    let rules = given.into_iter().zip(&policies.filters).zip([Direction::In, Direction::Out]);
    let info = |dir, given: &ConfiguredRule, rule: &filters::FilterRule| {
        let known = given.compiled().ok().and_then(|rule| rule.expression.clone());
        let expression = known.unwrap_or_else(|| rule.program.to_string());
        RuleInfo { dir, drops: rule.drops, expression, frames: rule.frames() }
    };
    rules
        .flat_map(|((given, rules), dir)| given.zip(rules.rules()).map(move |(given, rule)| info(dir, given, rule)))
        .collect()
}

/// Adds saved counts of decided frames to the counts of a port's filter rules.
pub fn count_rules(record: &DaemonPort, frames: &[u64]) {
    let policies = record.switch.as_ref().zip(record.id).and_then(|(switch, id)| switch.policies(id));
    let rules = policies.iter().flat_map(|policies| policies.filters.iter().flat_map(Filters::rules));
    rules.zip(frames).for_each(|(rule, &frames)| rule.count(frames));
}

/// Returns notes for `netvale show` on those effects of policies for which there is no counter.
pub fn notes(record: &DaemonPort) -> Vec<String> {
    let state = record.switch.as_ref().zip(record.id).and_then(|(switch, id)| switch.policy_state(id));
    let Some(state) = state.filter(|state| state.loops() > 0) else { return Vec::new() };
    let now = if state.is_blocked() { "is blocked" } else { "was blocked" };
    vec![format!(
        "{now} because addresses kept moving to this port ({} times so far): the network has a loop",
        state.loops()
    )]
}
