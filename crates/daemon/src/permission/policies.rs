//! Permissions on policies. A user may not set policies that affect other users on a shared switch, that allow more
//! than the switch's policies for new ports, or whose filter rules take more of the workers' time than forwarding does.

use netvale_control::options::AttachOption;
use netvale_control::types::Policies;
use rustix::io::Errno;

use super::controls;
use crate::caller::Caller;
use crate::daemon::Daemon;
use crate::refusal::{Refusal, refuse};

/// Maximum number of instructions in all filter rules of a user's ports. A frame takes a few microseconds to pass that
/// many instructions.
pub const MOST_INSTRUCTIONS: usize = 4096;

/// New policies of a port.
pub struct NewPolicies<'a> {
    /// The policies after the change.
    pub policies: &'a Policies,
    /// Returns whether the change sets or resets the policy with this key.
    pub names: &'a dyn Fn(&str) -> bool,
}

/// Checks that an untrusted caller may make `change` to the policies of a port on that switch.
///
/// # Errors
/// [`Refusal`]: `EACCES` for policies reserved to the switch's owner, `ENOSPC` if all rules of the user together have
/// too many instructions.
pub fn may_set(d: &Daemon, caller: Caller, switch: &str, full: &str, change: &NewPolicies<'_>) -> Result<(), Refusal> {
    let reaches_beyond = |key: &str| AttachOption::find(key).is_some_and(AttachOption::reaches_beyond);
    let beyond = change.policies.given().find(|(key, _)| (change.names)(key) && reaches_beyond(key));
    if let Some((key, _)) = beyond.filter(|_| !owns_switch(d, caller, switch)) {
        let text = format!("only the owner of switch {switch} and root may set {key}, which affects other ports");
        return refuse(Errno::ACCESS, text);
    }
    may_have_rules(d, caller, switch, full, change)
}

/// Checks that the policies of an untrusted user's port allow no more than the switch's policies for new ports.
///
/// # Errors
/// [`Refusal`]: `EACCES`, with the name of the policy that allows more.
pub fn is_within(d: &Daemon, switch: &str, policies: &Policies) -> Result<(), Refusal> {
    let most = d.config.switch.policies.of(switch);
    let beyond = policies.over(&most).beyond(&most).or_else(|misfit| refuse(Errno::INVAL, misfit.to_string()))?;
    // A rate group has the same rate on all switches, so a port must not change the rate that another switch sets.
    let regroups = || d.config.switch.policies.has_other_rate(policies).then_some("rate_group");
    let Some(key) = beyond.or_else(regroups) else { return Ok(()) };
    let usual = most.get(key).map(|usual| format!(" ({usual})")).unwrap_or_default();
    let text = format!("{key} would exceed the policies of switch {switch}{usual}; ask root or the daemon's own user");
    refuse(Errno::ACCESS, text)
}

/// Whether the caller owns the switch, or would own it after creating it. A shared switch has no owner.
fn owns_switch(d: &Daemon, caller: Caller, switch: &str) -> bool {
    !super::is_shared(d, switch) && d.switches.owner(switch).is_none_or(|owner| controls(caller, owner))
}

/// Checks the number of instructions in the user's rules. Rules that come from the switch's policies for new ports are
/// not counted.
fn may_have_rules(
    d: &Daemon,
    caller: Caller,
    switch: &str,
    full: &str,
    NewPolicies { policies, names }: &NewPolicies<'_>,
) -> Result<(), Refusal> {
    let usual =
        |switch: &str, counts: &dyn Fn(&str) -> bool| instructions(&d.config.switch.policies.of(switch), counts);
    let mut has = 0;
    for (name, record) in d.ports.iter().filter(|(_, record)| record.owner.uid == caller.uid) {
        // The new rules replace the port's old rules, so the old rules are not counted.
        let stays = |key: &str| name != full || !names(key);
        let usual = record.switch.as_ref().map_or(0, |switch| usual(switch.name(), &stays));
        has += instructions(&record.policies, stays).saturating_sub(usual);
    }
    let usual = usual(switch, &|key| names(key) && policies.get(key).is_some());
    let more = instructions(policies, names).saturating_sub(usual);
    if more == 0 || has + more <= MOST_INSTRUCTIONS {
        return Ok(());
    }
    let text = format!(
        "filter rules of user {} have {has} instructions; {more} more would exceed the limit of \
         {MOST_INSTRUCTIONS}; use shorter or fewer rules",
        caller.uid
    );
    refuse(Errno::NOSPC, text)
}

/// Returns the number of instructions in the rules of a port, for the policy keys that `counts` accepts.
fn instructions(policies: &Policies, counts: impl Fn(&str) -> bool) -> usize {
    let both = ["filter_in", "filter_out"].into_iter().zip(policies.rules());
    let rules = both.filter(|(key, _)| counts(key)).flat_map(|(_, rules)| rules.iter().flatten());
    rules.filter_map(|rule| rule.compiled().ok()).map(|rule| rule.program.insns().len()).sum()
}
