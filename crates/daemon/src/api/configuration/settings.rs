//! Settings: which change while the daemon runs, and changing them.

use caps::{CapSet, Capability};
use netvale_control::dirs::{ATTACH_SOCKET, CONTROL_SOCKET};
use netvale_control::types::{Action, Change};
use netvale_switch::Fdb;
use rustix::io::Errno;
use rustix::process::geteuid;
use serde_json::Value;

use crate::config::{Config, Setting, SocketAccess, settings};
use crate::daemon::Daemon;
use crate::refusal::{Refusal, refuse};
use crate::system::sockets::SocketError;
use crate::system::{log, sockets};

/// The configuration that the daemon can have now: as wanted, except for what takes a restart.
pub(super) fn possible(d: &Daemon, wanted: &Config) -> Config {
    let (now, new) = (d.config.clone(), wanted.clone());
    let SocketAccess { owner, group, mode } = new.sockets;
    let (may_give, may_open) = (may_give_sockets(), owns_sockets(d));
    Config {
        sockets: SocketAccess {
            owner: if may_give { owner } else { now.sockets.owner },
            group: if may_give { group } else { now.sockets.group },
            mode: if may_open { mode } else { now.sockets.mode },
        },
        latency_sampling: new.latency_sampling,
        require_ports: new.require_ports,
        allow_dirs: new.allow_dirs.into_iter().filter(|dir| d.reach.has(dir)).collect(),
        allow_nics: new.allow_nics,
        allow_taps: new.allow_taps,
        trusted_hypervisors: new.trusted_hypervisors,
        shared_switches: new.shared_switches,
        quota: new.quota,
        ageing: new.ageing,
        switches: new.switches,
        policies: new.policies,
        ports: new.ports,
        ..now
    }
}

/// Giving a socket to another user or group takes a capability that the sandbox and a user of its own leave none of.
fn may_give_sockets() -> bool {
    caps::has_cap(None, CapSet::Effective, Capability::CAP_CHOWN).unwrap_or(false)
}

fn owns_sockets(d: &Daemon) -> bool {
    let found = rustix::fs::stat(d.config.run_dir.join(CONTROL_SOCKET));
    found.is_ok_and(|found| found.st_uid == geteuid().as_raw())
}

/// What is told of the settings. `kept` are the switches that stay, with their forwarding tables.
pub(super) fn changes(d: &Daemon, wanted: &Config, kept: &[String]) -> Vec<Change> {
    let (now, then) = (settings(&d.config), settings(&possible(d, wanted)));
    let mut told = Vec::new();
    for ((now, then), wanted) in now.into_iter().zip(then).zip(settings(wanted)) {
        if !is_same(&now.value, &then.value) {
            told.push(change(Action::Set, &now, &then.value, note(&now, d)));
        }
        if !is_same(&then.value, &wanted.value) {
            told.push(change(Action::Restart, &then, &wanted.value, why(&then, &wanted, d)));
        }
    }
    told.extend(small_tables(d, wanted, kept));
    told
}

fn change(action: Action, from: &Setting, to: &Value, note: Option<String>) -> Change {
    Change { action, name: from.path(), from: Some(said(&from.value)), to: Some(said(to)), note }
}

fn said(value: &Value) -> String {
    match value {
        Value::Null => "not set".to_owned(),
        other => other.to_string(),
    }
}

/// Whether two values mean the same: the order of a list of names does not matter.
fn is_same(a: &Value, b: &Value) -> bool {
    let sorted = |list: &[Value]| {
        let mut texts: Vec<String> = list.iter().map(Value::to_string).collect();
        texts.sort_unstable();
        texts
    };
    match (a, b) {
        (Value::Array(a), Value::Array(b)) if a.iter().all(Value::is_string) => sorted(a) == sorted(b),
        _ => a == b,
    }
}

/// What does not hold immediately.
fn note(setting: &Setting, d: &Daemon) -> Option<String> {
    match setting.name {
        "addresses" | "policies" | "trusted_hypervisors" => Some("of ports that are attached from now on".to_owned()),
        "allow_dirs" if d.reach.is_limited() => {
            Some("the daemon itself reaches a folder that goes until a restart".to_owned())
        }
        _ => None,
    }
}

/// Why it takes a restart.
fn why(now: &Setting, wanted: &Setting, d: &Daemon) -> Option<String> {
    let texts = |value: &Value| {
        value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
    };
    match (now.table, now.name) {
        ("", "allow_dirs") => {
            let (has, wants) = (texts(&now.value), texts(&wanted.value));
            let missing: Vec<_> = wants.into_iter().filter(|dir| !has.contains(dir)).collect();
            Some(format!("the sandbox was entered without {}", missing.join(", ")))
        }
        ("sockets", "mode") => Some("the sockets are another user's".to_owned()),
        ("sockets", _) if d.config.sandbox || d.config.user.is_some() => {
            Some("the daemon has given up the right to give files away".to_owned())
        }
        ("sockets", _) => Some("only root may give files away".to_owned()),
        _ => None,
    }
}

/// Switches that keep a forwarding table of another size than the one wanted.
fn small_tables(d: &Daemon, wanted: &Config, kept: &[String]) -> Option<Change> {
    let entries = Fdb::entries_of(wanted.switches.table_entries);
    let others: Vec<_> = d.switches.iter().filter(|switch| switch.fdb().capacity() != entries).collect();
    let others: Vec<_> = others.into_iter().filter(|switch| kept.iter().any(|name| name == switch.name())).collect();
    let from = others.first()?.fdb().capacity().to_string();
    let names: Vec<_> = others.iter().map(|switch| switch.name()).collect();
    Some(Change {
        action: Action::Restart,
        name: "switch.table_entries".to_owned(),
        from: Some(from),
        to: Some(entries.to_string()),
        note: Some(format!("of {}, which is there already; new switches have it now", names.join(", "))),
    })
}

fn change_sockets(d: &Daemon, from: &SocketAccess, to: &SocketAccess) -> Result<(), SocketError> {
    let mut paths = [CONTROL_SOCKET, ATTACH_SOCKET].into_iter().map(|socket| d.config.run_dir.join(socket));
    if from == to { Ok(()) } else { paths.try_for_each(|path| sockets::change(&path, from, to)) }
}

/// Gives the daemon a configuration. It is one that [`possible`] made, or the one that it had.
///
/// # Errors
/// [`Refusal`] if the sockets cannot be changed; then nothing has.
pub(super) fn put(d: &mut Daemon, config: Config) -> Result<(), Refusal> {
    let (from, to) = (d.config.sockets.clone(), config.sockets.clone());
    change_sockets(d, &from, &to).or_else(|why| {
        // The first one may have been changed.
        let _ = change_sockets(d, &to, &from);
        refuse(Errno::PERM, why.to_string())
    })?;
    d.switches.treat(config.switches, config.ageing);
    d.captures.set_most(config.quota.captures);
    log::set_limit(config.quota.log_lines);
    netvale_mem::latency::set_sampling(config.latency_sampling);
    d.config = config;
    Ok(())
}
