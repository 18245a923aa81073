//! Settings: which settings can change at run time, and how they change.

use caps::{CapSet, Capability};
use netvale_control::dirs::{ATTACH_SOCKET, CONTROL_SOCKET};
use netvale_control::types::{ConfigAction, ConfigChange};
use netvale_switch::Fdb;
use rustix::io::Errno;
use rustix::process::geteuid;
use serde_json::Value;

use crate::config::{Config, Effect, SETTINGS, Setting, SocketAccess};
use crate::daemon::Daemon;
use crate::refusal::{Refusal, refuse};
use crate::system::sockets::SocketError;
use crate::system::{log, sockets};

/// Returns the wanted configuration, but with the present values of the settings that only a restart can change.
pub(super) fn possible(d: &Daemon, wanted: &Config) -> Config {
    let mut config = Config { ports: wanted.ports.clone(), ..d.config.clone() };
    SETTINGS
        .iter()
        .filter(|setting| can_change(d, setting.effect))
        .for_each(|setting| setting.copy(&mut config, wanted));
    config.allow_dirs.retain(|dir| d.reach.has(dir));
    config
}

fn can_change(d: &Daemon, effect: Effect) -> bool {
    match effect {
        Effect::Immediate | Effect::NewPorts | Effect::WithinReach => true,
        Effect::WithChown => may_give_sockets(),
        Effect::OwnSockets => owns_sockets(d),
        Effect::Restart => false,
    }
}

/// Whether the daemon may change the owner and group of its sockets. This needs `CAP_CHOWN`, which the daemon loses in
/// the sandbox and when it changes its user.
fn may_give_sockets() -> bool {
    caps::has_cap(None, CapSet::Effective, Capability::CAP_CHOWN).unwrap_or(false)
}

fn owns_sockets(d: &Daemon) -> bool {
    let found = rustix::fs::stat(d.config.run_dir.join(CONTROL_SOCKET));
    found.is_ok_and(|found| found.st_uid == geteuid().as_raw())
}

/// Returns the changes of settings to report. `kept` contains the names of switches that remain, and thus keep their
/// forwarding tables.
pub(super) fn changes(d: &Daemon, wanted: &Config, kept: &[String]) -> Vec<ConfigChange> {
    let possible = possible(d, wanted);
    let mut told = Vec::new();
    for setting in SETTINGS {
        let [now, then, wanted] = [&d.config, &possible, wanted].map(|config| setting.value(config));
        if !is_same(&now, &then) {
            told.push(change(ConfigAction::Set, setting, [&now, &then], note(setting, d)));
        }
        if !is_same(&then, &wanted) {
            told.push(change(ConfigAction::Restart, setting, [&then, &wanted], why(setting, [&then, &wanted], d)));
        }
    }
    told.extend(small_tables(d, wanted, kept));
    told
}

fn change(action: ConfigAction, setting: &Setting, values: [&Value; 2], note: Option<String>) -> ConfigChange {
    let [from, to] = values.map(|value| Some(said(value)));
    ConfigChange { action, name: setting.path(), from, to, note }
}

fn said(value: &Value) -> String {
    match value {
        Value::Null => "not set".to_owned(),
        other => other.to_string(),
    }
}

/// Whether two values are equal; the order of names in a list is irrelevant.
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

/// Returns a note on a change that does not take full effect immediately; `None` for other changes.
fn note(setting: &Setting, d: &Daemon) -> Option<String> {
    let note = match setting.effect {
        Effect::NewPorts => "for ports attached from now on",
        Effect::WithinReach if d.reach.is_limited() => "the daemon itself can access removed folders until a restart",
        _ => return None,
    };
    Some(note.to_owned())
}

/// Returns the reason why the change from the first value to the second needs a restart; `None` if every change of the
/// setting needs a restart.
fn why(setting: &Setting, values: [&Value; 2], d: &Daemon) -> Option<String> {
    let why = match setting.effect {
        Effect::WithinReach => {
            let [has, wants] = values.map(|value| value.as_array().map_or(&[][..], Vec::as_slice));
            let missing = wants.iter().filter(|dir| !has.contains(dir)).filter_map(Value::as_str);
            return Some(format!("the sandbox excludes {}", missing.collect::<Vec<_>>().join(", ")));
        }
        Effect::OwnSockets => "the sockets belong to another user",
        Effect::WithChown if d.config.sandbox || d.config.user.is_some() => {
            "the daemon has dropped the right to change the owner of files"
        }
        Effect::WithChown => "only root may change the owner of files",
        _ => return None,
    };
    Some(why.to_owned())
}

/// Returns the change to report if remaining switches keep forwarding tables whose size differs from the wanted size;
/// otherwise, `None`.
fn small_tables(d: &Daemon, wanted: &Config, kept: &[String]) -> Option<ConfigChange> {
    let entries = Fdb::entries_of(wanted.switch.table_entries);
    let others: Vec<_> = d.switches.iter().filter(|switch| switch.fdb().capacity() != entries).collect();
    let others: Vec<_> = others.into_iter().filter(|switch| kept.iter().any(|name| name == switch.name())).collect();
    let from = others.first()?.fdb().capacity().to_string();
    let names: Vec<_> = others.iter().map(|switch| switch.name()).collect();
    Some(ConfigChange {
        action: ConfigAction::Restart,
        name: "switch.table_entries".to_owned(),
        from: Some(from),
        to: Some(entries.to_string()),
        note: Some(format!(
            "new switches get the new size now, existing switches after a restart: {}",
            names.join(", ")
        )),
    })
}

fn change_sockets(d: &Daemon, from: &SocketAccess, to: &SocketAccess) -> Result<(), SocketError> {
    let mut paths = [CONTROL_SOCKET, ATTACH_SOCKET].into_iter().map(|socket| d.config.run_dir.join(socket));
    if from == to { Ok(()) } else { paths.try_for_each(|path| sockets::change(&path, from, to)) }
}

/// Puts a configuration into effect: the result of [`possible`], or the former configuration in a rollback.
///
/// # Errors
/// [`Refusal`] if the sockets cannot be changed; in this case, nothing changes.
pub(super) fn put(d: &mut Daemon, config: Config) -> Result<(), Refusal> {
    let from = d.config.sockets.clone();
    let to = config.sockets.clone();
    change_sockets(d, &from, &to).or_else(|why| {
        // Roll back the change, because the first of the two sockets may already have changed.
        let _ = change_sockets(d, &to, &from);
        refuse(Errno::PERM, why.to_string())
    })?;
    d.switches.treat(config.switch.settings(), config.switch.ageing());
    d.captures.set_most(config.quota.captures_mib);
    log::set_limit(config.quota.log_lines);
    netvale_mem::latency::set_sampling(config.latency_sampling);
    d.config = config;
    Ok(())
}
