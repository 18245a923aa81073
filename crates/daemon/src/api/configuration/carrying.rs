//! Applies a difference, and rolls it back if a step fails.

use std::time::{Duration, Instant};

use netvale_control::types::{AttachParams, PortOptions};

use super::difference::{Step, Wanted};
use super::settings;
use crate::api::attaching::{attach_declared, once_free};
use crate::caller::Caller;
use crate::config::Config;
use crate::daemon::Daemon;
use crate::ports::{detach, policies};
use crate::refusal::Refusal;
use crate::registry::ports::Declared;

const WHY: &str = "the configuration has changed";
/// Longest wait for the close of a device or socket of another port in the same difference.
const CLOSING: Duration = Duration::from_secs(2);

/// A step that failed.
pub(super) struct Failed {
    /// The port at fault, by its index in the file; `None`: the settings.
    pub index: Option<usize>,
    /// Why.
    pub refusal: Refusal,
    /// Differences that remain.
    pub left: Left,
}

/// Differences that remain after a rollback.
#[derive(Default)]
pub(super) struct Left {
    /// Ports that were detached and attached again.
    pub again: Vec<String>,
    /// Failed rollbacks, a sentence each.
    pub different: Vec<String>,
}

/// The reverse of a step.
enum Undo {
    Attach(String, Box<Declared>, Caller),
    Detach(String),
    /// From the new options to the old ones.
    Adjust(String, Box<[AttachParams; 2]>),
    Put(Box<Config>),
}

/// Applies all steps, or none.
///
/// # Errors
/// The failed step, after the rollback of the others.
pub(super) fn carry_out(d: &mut Daemon, config: Config, steps: Vec<Step>) -> Result<(), Failed> {
    let mut done = Vec::new();
    match all(d, config, &steps, &mut done) {
        Ok(()) => {
            steps.iter().for_each(|step| adopt(d, step));
            Ok(())
        }
        Err((index, refusal)) => Err(Failed { index, refusal, left: take_back(d, done) }),
    }
}

type Stopped = (Option<usize>, Refusal);

/// Removals first, to make room; new ports get the new settings.
fn all(d: &mut Daemon, config: Config, steps: &[Step], done: &mut Vec<Undo>) -> Result<(), Stopped> {
    detach_all(d, steps, done)?;
    let before = d.config.clone();
    settings::put(d, config).map_err(|why| (None, why))?;
    done.push(Undo::Put(Box::new(before)));
    adjust_all(d, steps, done)?;
    attach_all(d, steps, done)
}

fn detach_all(d: &mut Daemon, steps: &[Step], done: &mut Vec<Undo>) -> Result<(), Stopped> {
    for full in steps.iter().filter_map(Step::detaches) {
        let known = d.ports.get(full).and_then(|record| Some((record.declared.clone()?, record.owner)));
        let Some((declared, owner)) = known else { continue };
        detach(d, full, WHY).map_err(|why| (None, why))?;
        done.push(Undo::Attach(full.to_owned(), Box::new(declared), owner));
        d.watched.progress(Instant::now());
    }
    Ok(())
}

fn adjust_all(d: &mut Daemon, steps: &[Step], done: &mut Vec<Undo>) -> Result<(), Stopped> {
    for step in steps {
        let Step::Adjust(port, old) = step else { continue };
        adjust(d, &port.full, old, &port.params).map_err(|why| (Some(port.index), prefixed(why, &port.full)))?;
        done.push(Undo::Adjust(port.full.clone(), Box::new([port.params.clone(), old.clone()])));
    }
    Ok(())
}

fn attach_all(d: &mut Daemon, steps: &[Step], done: &mut Vec<Undo>) -> Result<(), Stopped> {
    let frees = done.iter().any(|done| matches!(done, Undo::Attach(..)));
    for Wanted { full, params, index } in steps.iter().filter_map(Step::attaches) {
        let declared = Declared { params: params.clone(), from_file: true };
        let attached = attach(d, &declared, Caller::daemon(), frees);
        attached.map_err(|why| (Some(*index), prefixed(why, &format!("{full} cannot be attached"))))?;
        done.push(Undo::Detach(full.clone()));
        d.watched.progress(Instant::now());
    }
    Ok(())
}

/// Attaches a port. Its device or socket may belong to a port detached just now (`frees`).
fn attach(d: &mut Daemon, declared: &Declared, owner: Caller, frees: bool) -> Result<String, Refusal> {
    let until = Instant::now() + if frees { CLOSING } else { Duration::ZERO };
    once_free(d, until, |d| attach_declared(d, declared.clone(), owner))
}

fn prefixed(why: Refusal, what: &str) -> Refusal {
    Refusal { text: format!("{what}: {}", why.text), ..why }
}

/// Changes a port's options during operation.
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

/// Marks a port that stays as the file's.
fn adopt(d: &mut Daemon, step: &Step) {
    let (Step::Keep(port) | Step::Adjust(port, _)) = step else { return };
    if let Some(declared) = d.ports.get_mut(&port.full).and_then(|record| record.declared.as_mut()) {
        declared.from_file = true;
    }
}

/// Rolls back completed steps in reverse order.
fn take_back(d: &mut Daemon, done: Vec<Undo>) -> Left {
    let mut left = Left::default();
    for undo in done.into_iter().rev() {
        d.watched.progress(Instant::now());
        match undo {
            Undo::Detach(full) => {
                if let Err(why) = detach(d, &full, "the configuration cannot be applied") {
                    left.different.push(format!("{full} is attached ({why})"));
                }
            }
            Undo::Adjust(full, options) => {
                let [new, old] = &*options;
                if let Err(why) = adjust(d, &full, new, old) {
                    left.different.push(format!("{full} keeps its new options ({why})"));
                }
            }
            Undo::Put(config) => {
                if let Err(why) = settings::put(d, *config) {
                    left.different.push(format!("the settings are the new ones ({why})"));
                }
            }
            Undo::Attach(full, declared, owner) => match attach(d, &declared, owner, true) {
                Ok(_) => left.again.push(full),
                Err(why) => left.different.push(format!("{full} is gone ({why})")),
            },
        }
    }
    left
}
