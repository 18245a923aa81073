//! Computes the steps from the running ports to those of a file, without applying them.

use std::collections::{BTreeMap, BTreeSet};

use netvale_control::options::AttachOption;
use netvale_control::types::{Action, AttachParams, Change};
use netvale_portspec::AttachSpec;

use crate::config::{canonical, full_name, words};
use crate::registry::ports::Declared;

/// A port of the file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Wanted {
    /// Its full name.
    pub full: String,
    /// Its attach parameters.
    pub params: AttachParams,
    /// Its index in the file.
    pub index: usize,
}

/// Running ports with their attach parameters; `None` if a program opened the port, or it came with another port.
pub(super) type There = BTreeMap<String, Option<Declared>>;

/// A step for one port.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Detach it.
    Detach(String),
    /// Detach it, and attach it with other options.
    Reattach(Wanted, AttachParams),
    /// Change its options during operation.
    Adjust(Wanted, AttachParams),
    /// Attach it.
    Attach(Wanted),
    /// Leave it unchanged; it belongs to the file from now on.
    Keep(Wanted),
}

/// A port of the file whose name is taken.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Conflict {
    /// The port's index in the file.
    pub index: usize,
    /// The fault, and the advice.
    pub what: String,
}

impl Wanted {
    /// Returns the ports of a checked configuration.
    pub(super) fn of(ports: &[AttachParams]) -> Vec<Wanted> {
        let of = |(index, params): (usize, &AttachParams)| {
            let spec = AttachSpec::parse(&params.port).ok()?;
            Some(Wanted { full: full_name(params, &spec), params: canonical(params), index })
        };
        ports.iter().enumerate().filter_map(of).collect()
    }
}

/// Compares running ports with wanted ones. With `prune`, ports attached by hand are replaced or detached as well.
///
/// # Errors
/// The first port of the file whose name another port keeps.
pub(super) fn compare(there: &There, wanted: Vec<Wanted>, prune: bool) -> Result<Vec<Step>, Conflict> {
    let names: BTreeSet<&str> = wanted.iter().map(|port| port.full.as_str()).collect();
    let goes = |(full, declared): (&String, &Option<Declared>)| {
        let is_ours = declared.as_ref().is_some_and(|declared| declared.from_file || prune);
        (is_ours && !names.contains(full.as_str())).then(|| Step::Detach(full.clone()))
    };
    let mut steps: Vec<Step> = there.iter().filter_map(goes).collect();
    for port in wanted {
        let step = match there.get(&port.full) {
            None => Step::Attach(port),
            Some(known) => change(port, known.as_ref(), prune)?,
        };
        steps.push(step);
    }
    Ok(steps)
}

/// The step for a port whose name exists.
fn change(port: Wanted, known: Option<&Declared>, prune: bool) -> Result<Step, Conflict> {
    let conflict = |what| Err(Conflict { index: port.index, what });
    let full = &port.full;
    let Some(known) = known else {
        return conflict(format!("a program has made a port {full}: end it, or choose another name"));
    };
    let old = canonical(&known.params);
    if old == port.params {
        return Ok(Step::Keep(port));
    }
    if !known.from_file && !prune {
        let is = words(&old, &["name"]);
        let text = "detach it, or let --prune replace it";
        return conflict(format!("{full} was attached by hand, as {is}: {text}"));
    }
    Ok(if is_adjustable(&old, &port.params) { Step::Adjust(port, old) } else { Step::Reattach(port, old) })
}

/// Whether all changed options can be set during operation: policies, holding senders back, and adjustable options of
/// the kind.
fn is_adjustable(old: &AttachParams, new: &AttachParams) -> bool {
    let mut as_new = old.options.clone();
    let wanted = &new.options;
    let adjusts = AttachSpec::parse(&old.port).map_or(&[][..], |spec| spec.kind().adjusts);
    for option in adjusts.iter().filter_map(|key| AttachOption::find(key)) {
        option.copy(wanted, &mut as_new);
    }
    as_new.policies = wanted.policies.clone();
    // The host stack of an interface is a separate port.
    if !as_new.host {
        as_new.lossless = wanted.lossless;
    }
    (&old.switch, &old.port, &as_new) == (&new.switch, &new.port, wanted)
}

impl Step {
    /// The reported change.
    pub(super) fn change(&self, there: &There) -> Option<Change> {
        let said = |params: &AttachParams| Some(words(params, &["name"]));
        let change =
            |action, name: &str, from, to| Some(Change { action, name: name.to_owned(), from, to, note: None });
        match self {
            Step::Detach(full) => {
                let was = there.get(full).and_then(Option::as_ref).map(|known| canonical(&known.params));
                change(Action::Detach, full, was.as_ref().and_then(said), None)
            }
            Step::Reattach(port, old) => change(Action::Reattach, &port.full, said(old), said(&port.params)),
            Step::Adjust(port, old) => change(Action::Adjust, &port.full, said(old), said(&port.params)),
            Step::Attach(port) => change(Action::Attach, &port.full, None, said(&port.params)),
            Step::Keep(_) => None,
        }
    }

    /// The port that the step attaches.
    pub(super) fn attaches(&self) -> Option<&Wanted> {
        match self {
            Step::Attach(port) | Step::Reattach(port, _) => Some(port),
            Step::Detach(_) | Step::Adjust(..) | Step::Keep(_) => None,
        }
    }

    /// The port that the step detaches.
    pub(super) fn detaches(&self) -> Option<&str> {
        match self {
            Step::Detach(full) => Some(full),
            Step::Reattach(port, _) => Some(&port.full),
            Step::Attach(_) | Step::Adjust(..) | Step::Keep(_) => None,
        }
    }
}
