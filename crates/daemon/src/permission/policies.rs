//! Policies that users may set on their ports: none that affects others on a shared switch, none that exceeds the
//! switch's policies for new ports, and rules whose cost to others is no more than that of frames.

use netvale_control::options::AttachOption;
use netvale_control::types::Policies;
use rustix::io::Errno;

use super::controls;
use crate::caller::Caller;
use crate::daemon::Daemon;
use crate::refusal::{Refusal, refuse};

/// Maximum number of instructions in all rules of a user's ports: a few microseconds, if a frame passes all of them.
pub const MOST_INSTRUCTIONS: usize = 4096;

/// New policies of a port.
pub struct NewPolicies<'a> {
    /// The policies after the change.
    pub policies: &'a Policies,
    /// Whether the change names a policy, even to reset it.
    pub names: &'a dyn Fn(&str) -> bool,
}

/// Checks that an untrusted caller may set those policies of a port on that switch.
///
/// # Errors
/// [`Refusal`]: `EACCES` for policies reserved to the switch's owner, `ENOSPC` if all rules together are too long.
pub fn may_set(d: &Daemon, caller: Caller, switch: &str, full: &str, change: &NewPolicies<'_>) -> Result<(), Refusal> {
    let reaches_beyond = |key: &str| AttachOption::find(key).is_some_and(AttachOption::reaches_beyond);
    let beyond = change.policies.given().find(|(key, _)| (change.names)(key) && reaches_beyond(key));
    if let Some((key, _)) = beyond.filter(|_| !owns_switch(d, caller, switch)) {
        let text = format!("{key} reaches beyond the port: on switch {switch}, only its owner and root set that");
        return refuse(Errno::ACCESS, text);
    }
    may_have_rules(d, caller, switch, full, change)
}

/// Checks that an untrusted user's port stays within the switch's policies for new ports.
///
/// # Errors
/// [`Refusal`]: `EACCES` names the policy that exceeds them.
pub fn is_within(d: &Daemon, switch: &str, policies: &Policies) -> Result<(), Refusal> {
    let most = d.config.switch.policies.of(switch);
    let beyond = policies.over(&most).beyond(&most).or_else(|misfit| refuse(Errno::INVAL, misfit.to_string()))?;
    // A group has one rate, on all switches.
    let regroups = || d.config.switch.policies.has_other_rate(policies).then_some("rate_group");
    let Some(key) = beyond.or_else(regroups) else { return Ok(()) };
    let usual = most.get(key).map(|usual| format!(" ({usual})")).unwrap_or_default();
    let text = format!("{key} would allow more than switch {switch} does{usual}: ask root or the daemon's own user");
    refuse(Errno::ACCESS, text)
}

/// A shared switch has no owner among users.
fn owns_switch(d: &Daemon, caller: Caller, switch: &str) -> bool {
    !super::is_shared(d, switch) && d.switches.owner(switch).is_none_or(|owner| controls(caller, owner))
}

/// Rules from the switch's policies for new ports do not count as the user's.
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
        // New rules replace the port's old ones.
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
        "rules of user {} have {has} instructions, and may have {MOST_INSTRUCTIONS}: {more} more are too many; have \
         shorter ones, or fewer",
        caller.uid
    );
    refuse(Errno::NOSPC, text)
}

/// Number of instructions in the rules of a port, for the directions that count.
fn instructions(policies: &Policies, counts: impl Fn(&str) -> bool) -> usize {
    let both = ["filter_in", "filter_out"].into_iter().zip(policies.rules());
    let rules = both.filter(|(key, _)| counts(key)).flat_map(|(_, rules)| rules.iter().flatten());
    rules.filter_map(|rule| rule.compiled().ok()).map(|rule| rule.program.insns().len()).sum()
}
