//! What has to be done to ports so that they are those of a file. Nothing is done here.

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
    /// What it is attached with.
    pub params: AttachParams,
    /// Its number in the file.
    pub index: usize,
}

/// A port that is there, by what it was attached with; `None` if a program opened it, or it came with another port.
pub(super) type There = BTreeMap<String, Option<Declared>>;

/// What is done to a port.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// It goes.
    Detach(String),
    /// It goes, and comes again with other options.
    Reattach(Wanted, AttachParams),
    /// It gets other options while frames pass.
    Adjust(Wanted, AttachParams),
    /// It comes.
    Attach(Wanted),
    /// It is not touched; from now on, it is the file's.
    Keep(Wanted),
}

/// A port of the file whose name somebody else has.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Conflict {
    /// The port's number in the file.
    pub index: usize,
    /// What is wrong, and what to do.
    pub what: String,
}

impl Wanted {
    /// The ports of a configuration. They have been checked.
    pub(super) fn of(ports: &[AttachParams]) -> Vec<Wanted> {
        let of = |(index, params): (usize, &AttachParams)| {
            let spec = AttachSpec::parse(&params.port).ok()?;
            Some(Wanted { full: full_name(params, &spec), params: canonical(params), index })
        };
        ports.iter().enumerate().filter_map(of).collect()
    }
}

/// Compares. With `prune`, ports that were attached by hand give way, too.
///
/// # Errors
/// The first port of the file whose name a port has that stays.
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

/// What is done to a port whose name there is.
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
        let (is, text) = (words(&old, &["name"]), "detach it, or let --prune replace it");
        return conflict(format!("{full} was attached by hand, as {is}: {text}"));
    }
    Ok(if is_adjustable(&old, &port.params) { Step::Adjust(port, old) } else { Step::Reattach(port, old) })
}

/// Whether only such options differ that change while frames pass: policies, whether a port holds senders back, and
/// what else such ports adjust.
fn is_adjustable(old: &AttachParams, new: &AttachParams) -> bool {
    let (mut as_new, wanted) = (old.options.clone(), &new.options);
    let adjusts = AttachSpec::parse(&old.port).map_or(&[][..], |spec| spec.kind().adjusts);
    for option in adjusts.iter().filter_map(|key| AttachOption::find(key)) {
        option.copy(wanted, &mut as_new);
    }
    as_new.policies = wanted.policies.clone();
    // The stack behind an interface is a port of its own.
    if !as_new.host {
        as_new.lossless = wanted.lossless;
    }
    (&old.switch, &old.port, &as_new) == (&new.switch, &new.port, wanted)
}

impl Step {
    /// What is told of it.
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

    /// The port that it attaches.
    pub(super) fn attaches(&self) -> Option<&Wanted> {
        match self {
            Step::Attach(port) | Step::Reattach(port, _) => Some(port),
            Step::Detach(_) | Step::Adjust(..) | Step::Keep(_) => None,
        }
    }

    /// The port that it detaches.
    pub(super) fn detaches(&self) -> Option<&str> {
        match self {
            Step::Detach(full) => Some(full),
            Step::Reattach(port, _) => Some(&port.full),
            Step::Attach(_) | Step::Adjust(..) | Step::Keep(_) => None,
        }
    }
}
