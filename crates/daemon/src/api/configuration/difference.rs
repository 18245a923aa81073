//! Computes the steps that turn the running ports into the ports of a configuration file, without applying them.

use std::collections::{BTreeMap, BTreeSet};

use netvale_control::options::AttachOption;
use netvale_control::types::{AttachParams, ConfigAction, ConfigChange};
use netvale_portspec::AttachSpec;

use crate::config::{canonical, full_name, words};
use crate::registry::ports::DeclaredPort;

/// A port of a configuration file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ConfigPort {
    /// Full name of the port.
    pub full: String,
    /// Attach parameters of the port.
    pub params: AttachParams,
    /// Index of the port in the file.
    pub index: usize,
}

/// Running ports by full name, with their attach parameters. `None` for a port without attach parameters: a program
/// created the port by opening it, a client passed it as a TAP, or it was created together with another port, such as
/// an interface's host stack.
pub(super) type RunningPorts = BTreeMap<String, Option<DeclaredPort>>;

/// A step for one port. The [`AttachParams`] in a variant are the present parameters of the running port.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PortStep {
    /// Detach the port with this full name.
    Detach(String),
    /// Detach the running port, and attach it again with the options of the file.
    Reattach(ConfigPort, AttachParams),
    /// Change the options of the running port to those of the file; the port stays attached.
    Adjust(ConfigPort, AttachParams),
    /// Attach the port, which is not running.
    Attach(ConfigPort),
    /// Leave the port unchanged; it belongs to the file from now on.
    Keep(ConfigPort),
}

/// A port of the file whose name belongs to a running port that may not be replaced, because a program created the
/// port, or because it was attached by hand.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Conflict {
    /// The port's index in the file.
    pub index: usize,
    /// The message: what is wrong, and what to do.
    pub what: String,
}

impl ConfigPort {
    /// Returns the ports of a checked configuration, with their full names.
    pub(super) fn of(ports: &[AttachParams]) -> Vec<ConfigPort> {
        let of = |(index, params): (usize, &AttachParams)| {
            let spec = AttachSpec::parse(&params.port).ok()?;
            Some(ConfigPort { full: full_name(params, &spec), params: canonical(params), index })
        };
        ports.iter().enumerate().filter_map(of).collect()
    }
}

/// Returns the steps from the running ports `there` to the ports `wanted`. With `prune`, ports that were attached by
/// hand are replaced or detached as well.
///
/// # Errors
/// The first [`Conflict`].
pub(super) fn compare(there: &RunningPorts, wanted: Vec<ConfigPort>, prune: bool) -> Result<Vec<PortStep>, Conflict> {
    let names: BTreeSet<&str> = wanted.iter().map(|port| port.full.as_str()).collect();
    let goes = |(full, declared): (&String, &Option<DeclaredPort>)| {
        let is_ours = declared.as_ref().is_some_and(|declared| declared.from_file || prune);
        (is_ours && !names.contains(full.as_str())).then(|| PortStep::Detach(full.clone()))
    };
    let mut steps: Vec<PortStep> = there.iter().filter_map(goes).collect();
    for port in wanted {
        let step = match there.get(&port.full) {
            None => PortStep::Attach(port),
            Some(known) => change(port, known.as_ref(), prune)?,
        };
        steps.push(step);
    }
    Ok(steps)
}

/// Returns the step for a port of the file that has the name of a running port. `known` are the parameters of the
/// running port; `None` if the running port has none, as [`RunningPorts`] explains.
fn change(port: ConfigPort, known: Option<&DeclaredPort>, prune: bool) -> Result<PortStep, Conflict> {
    let conflict = |what| Err(Conflict { index: port.index, what });
    let full = &port.full;
    let Some(known) = known else {
        let text = "end that, or choose another name";
        return conflict(format!("port {full} was created by a program or for another port; {text}"));
    };
    let old = canonical(&known.params);
    if old == port.params {
        return Ok(PortStep::Keep(port));
    }
    if !known.from_file && !prune {
        let is = words(&old, &["name"]);
        let text = "detach it, or replace it with --prune";
        return conflict(format!("{full} was attached by hand, as {is}; {text}"));
    }
    Ok(if is_adjustable(&old, &port.params) { PortStep::Adjust(port, old) } else { PortStep::Reattach(port, old) })
}

/// Whether all changed options can be set while the port stays attached: policies, `lossless`, and the options that the
/// port's kind can change.
fn is_adjustable(old: &AttachParams, new: &AttachParams) -> bool {
    let mut as_new = old.options.clone();
    let wanted = &new.options;
    let adjusts = AttachSpec::parse(&old.port).map_or(&[][..], |spec| spec.kind().adjusts);
    for option in adjusts.iter().filter_map(|key| AttachOption::find(key)) {
        option.copy(wanted, &mut as_new);
    }
    as_new.policies = wanted.policies.clone();
    // With `host`, `lossless` also applies to another port: the port of the interface's host stack.
    if !as_new.host {
        as_new.lossless = wanted.lossless;
    }
    (&old.switch, &old.port, &as_new) == (&new.switch, &new.port, wanted)
}

impl PortStep {
    /// Returns the change to report; `None` if the step changes nothing.
    pub(super) fn change(&self, there: &RunningPorts) -> Option<ConfigChange> {
        let said = |params: &AttachParams| Some(words(params, &["name"]));
        let change =
            |action, name: &str, from, to| Some(ConfigChange { action, name: name.to_owned(), from, to, note: None });
        match self {
            PortStep::Detach(full) => {
                let was = there.get(full).and_then(Option::as_ref).map(|known| canonical(&known.params));
                change(ConfigAction::Detach, full, was.as_ref().and_then(said), None)
            }
            PortStep::Reattach(port, old) => change(ConfigAction::Reattach, &port.full, said(old), said(&port.params)),
            PortStep::Adjust(port, old) => change(ConfigAction::Adjust, &port.full, said(old), said(&port.params)),
            PortStep::Attach(port) => change(ConfigAction::Attach, &port.full, None, said(&port.params)),
            PortStep::Keep(_) => None,
        }
    }

    /// Returns the port of the file; `None` if the step detaches a port that the file does not contain.
    pub(super) fn port(&self) -> Option<&ConfigPort> {
        match self {
            PortStep::Attach(port) | PortStep::Reattach(port, _) | PortStep::Adjust(port, _) | PortStep::Keep(port) => {
                Some(port)
            }
            PortStep::Detach(_) => None,
        }
    }

    /// Returns the port that the step attaches; `None` if the step attaches no port.
    pub(super) fn attaches(&self) -> Option<&ConfigPort> {
        match self {
            PortStep::Attach(port) | PortStep::Reattach(port, _) => Some(port),
            PortStep::Detach(_) | PortStep::Adjust(..) | PortStep::Keep(_) => None,
        }
    }

    /// Returns the full name of the port that the step detaches; `None` if the step detaches no port.
    pub(super) fn detaches(&self) -> Option<&str> {
        match self {
            PortStep::Detach(full) => Some(full),
            PortStep::Reattach(port, _) => Some(&port.full),
            PortStep::Attach(_) | PortStep::Adjust(..) | PortStep::Keep(_) => None,
        }
    }
}
