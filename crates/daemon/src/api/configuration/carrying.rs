//! Applies the steps from the running ports to the ports of a configuration file, and rolls the steps back if one of
//! them fails.

use std::time::{Duration, Instant};

use netvale_control::types::{AttachParams, PortOptions};

use super::difference::{ConfigPort, PortStep};
use super::settings;
use crate::api::attaching::{attach_declared, once_free};
use crate::caller::Caller;
use crate::config::Config;
use crate::daemon::Daemon;
use crate::ports::{detach, policies, private};
use crate::refusal::Refusal;
use crate::registry::ports::DeclaredPort;

const WHY: &str = "the configuration has changed";
/// How long to wait until the kernel has closed the device or socket of a port that an earlier step detached.
const CLOSING: Duration = Duration::from_secs(2);

pub(super) struct StepFailure {
    /// Index, in the file, of the port at fault; `None` if the failure concerns the settings or the removal of a port.
    pub index: Option<usize>,
    pub refusal: Refusal,
    /// Differences that remain after the rollback.
    pub left: RemainingDifferences,
}

/// Differences between the state before the first step and the state after a rollback.
#[derive(Default)]
pub(super) struct RemainingDifferences {
    /// Full names of ports that were detached and attached again. The peers of these ports must reconnect.
    pub again: Vec<String>,
    /// Steps that could not be rolled back, with one sentence for each.
    pub different: Vec<String>,
}

/// An action that undoes a completed step.
enum UndoStep {
    Attach(String, Box<DeclaredPort>, Caller),
    Detach(String),
    /// Change the port's options back, from those in the first parameters to those in the second parameters.
    Adjust(String, Box<[AttachParams; 2]>),
    Put(Box<Config>),
}

/// Applies the settings of `config` and all steps, or none of them.
///
/// # Errors
/// The failed step. The completed steps have then been rolled back.
pub(super) fn carry_out(d: &mut Daemon, config: Config, steps: Vec<PortStep>) -> Result<(), StepFailure> {
    let mut done = Vec::new();
    match all(d, config, &steps, &mut done) {
        Ok(()) => {
            steps.iter().for_each(|step| adopt(d, step));
            Ok(())
        }
        Err((index, refusal)) => Err(StepFailure { index, refusal, left: take_back(d, done) }),
    }
}

type StoppedStep = (Option<usize>, Refusal);

/// Applies all steps in this order: removals, which free names and resources; the settings, which apply to new ports;
/// changed options; new ports. The options of private ports for which the daemon picks a VLAN, and new ports of this
/// kind, come last.
fn all(d: &mut Daemon, config: Config, steps: &[PortStep], done: &mut Vec<UndoStep>) -> Result<(), StoppedStep> {
    detach_all(d, steps, done)?;
    let before = d.config.clone();
    settings::put(d, config).map_err(|why| (None, why))?;
    done.push(UndoStep::Put(Box::new(before)));
    let (last, first): (Vec<_>, Vec<_>) =
        steps.iter().partition(|step| step.port().is_some_and(|port| private::is_picked_for(d, &port.params)));
    for steps in [first, last] {
        adjust_all(d, &steps, done)?;
        attach_all(d, &steps, done)?;
    }
    Ok(())
}

fn detach_all(d: &mut Daemon, steps: &[PortStep], done: &mut Vec<UndoStep>) -> Result<(), StoppedStep> {
    for full in steps.iter().filter_map(PortStep::detaches) {
        let known = d.ports.get(full).and_then(|record| Some((record.declared.clone()?, record.owner)));
        let Some((declared, owner)) = known else { continue };
        detach(d, full, WHY).map_err(|why| (None, why))?;
        done.push(UndoStep::Attach(full.to_owned(), Box::new(declared), owner));
        d.watched.progress(Instant::now());
    }
    Ok(())
}

fn adjust_all(d: &mut Daemon, steps: &[&PortStep], done: &mut Vec<UndoStep>) -> Result<(), StoppedStep> {
    for step in steps {
        let PortStep::Adjust(port, old) = step else { continue };
        adjust(d, &port.full, old, &port.params).map_err(|why| (Some(port.index), prefixed(why, &port.full)))?;
        done.push(UndoStep::Adjust(port.full.clone(), Box::new([port.params.clone(), old.clone()])));
    }
    Ok(())
}

fn attach_all(d: &mut Daemon, steps: &[&PortStep], done: &mut Vec<UndoStep>) -> Result<(), StoppedStep> {
    let frees = done.iter().any(|done| matches!(done, UndoStep::Attach(..)));
    for ConfigPort { full, params, index } in steps.iter().filter_map(|step| step.attaches()) {
        let declared = DeclaredPort { params: params.clone(), from_file: true };
        let attached = attach(d, &declared, Caller::daemon(), frees);
        attached.map_err(|why| (Some(*index), prefixed(why, &format!("{full} cannot be attached"))))?;
        done.push(UndoStep::Detach(full.clone()));
        d.watched.progress(Instant::now());
    }
    Ok(())
}

/// Attaches a port. With `frees`, waits up to [`CLOSING`] if its device or socket is in use, because a port that was
/// just detached may not have closed that device or socket yet.
fn attach(d: &mut Daemon, declared: &DeclaredPort, owner: Caller, frees: bool) -> Result<String, Refusal> {
    let until = Instant::now() + if frees { CLOSING } else { Duration::ZERO };
    once_free(d, until, |d| attach_declared(d, declared.clone(), owner))
}

fn prefixed(why: Refusal, what: &str) -> Refusal {
    Refusal { text: format!("{what}: {}", why.text), ..why }
}

/// Changes the options of an attached port.
fn adjust(d: &mut Daemon, full: &str, old: &AttachParams, new: &AttachParams) -> Result<(), Refusal> {
    let was = &old.options;
    let PortOptions { lossless, mtu, .. } = new.options.clone();
    if new.options.policies != was.policies {
        policies::put(d, full, &new.options.policies)?;
        policies::tell(d, full, None, &new.options.policies.values());
    }
    if mtu != was.mtu {
        policies::put_mtu(d, full, mtu)?;
    }
    let Some(record) = d.ports.get_mut(full) else { return Err(Refusal::internal("a port vanished")) };
    if lossless != was.lossless {
        record.lossless = lossless;
        if let (Some(switch), Some(id)) = (&record.switch, record.id) {
            switch.set_lossless(id, lossless);
        }
    }
    if let Some(declared) = &mut record.declared {
        declared.params = new.clone();
    }
    Ok(())
}

/// Records that a port which stays attached belongs to the file from now on.
fn adopt(d: &mut Daemon, step: &PortStep) {
    let (PortStep::Keep(port) | PortStep::Adjust(port, _)) = step else { return };
    if let Some(declared) = d.ports.get_mut(&port.full).and_then(|record| record.declared.as_mut()) {
        declared.from_file = true;
    }
}

/// Rolls back completed steps in reverse order. Returns the differences that remain.
fn take_back(d: &mut Daemon, done: Vec<UndoStep>) -> RemainingDifferences {
    let mut left = RemainingDifferences::default();
    for undo in done.into_iter().rev() {
        d.watched.progress(Instant::now());
        match undo {
            UndoStep::Detach(full) => {
                if let Err(why) = detach(d, &full, "the configuration cannot be applied") {
                    left.different.push(format!("{full} is still attached ({why})"));
                }
            }
            UndoStep::Adjust(full, options) => {
                let [new, old] = &*options;
                if let Err(why) = adjust(d, &full, new, old) {
                    left.different.push(format!("{full} keeps its new options ({why})"));
                }
            }
            UndoStep::Put(config) => {
                if let Err(why) = settings::put(d, *config) {
                    left.different.push(format!("the daemon keeps the new settings ({why})"));
                }
            }
            UndoStep::Attach(full, declared, owner) => match attach(d, &declared, owner, true) {
                Ok(_) => left.again.push(full),
                Err(why) => left.different.push(format!("{full} is no longer attached ({why})")),
            },
        }
    }
    left
}
