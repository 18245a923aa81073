//! A configuration's settings as values, by their keys: what is compared, and what is written down.

use serde_json::{Value, json};

use super::{Config, DEFAULT_SPIN, Quota};
use crate::worker::Polling;

/// A setting: a key of the file outside `[[port]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Its table; empty for the keys before the first table.
    pub table: &'static str,
    /// Its key.
    pub name: &'static str,
    /// Its value as the file would have it; null if the file would not.
    pub value: Value,
}

impl Setting {
    /// Its name as messages have it: `switch.ageing_s`.
    #[must_use]
    pub fn path(&self) -> String {
        if self.table.is_empty() { self.name.to_owned() } else { format!("{}.{}", self.table, self.name) }
    }
}

/// All settings, in the order of the file.
#[must_use]
pub fn settings(c: &Config) -> Vec<Setting> {
    let of = |table: &'static str| move |(name, value)| Setting { table, name, value };
    let all = daemon(c).into_iter().map(of(""));
    let all = all.chain(sockets(c).into_iter().map(of("sockets")));
    all.chain(switch(c).into_iter().map(of("switch"))).chain(quota(&c.quota).into_iter().map(of("quota"))).collect()
}

fn daemon(c: &Config) -> [(&'static str, Value); 14] {
    let cpus: Option<Vec<usize>> = c.workers.iter().copied().collect();
    let spin = if let Polling::Spin(spin) = c.polling { spin } else { DEFAULT_SPIN };
    let dirs: Vec<_> = c.allow_dirs.iter().filter_map(|dir| dir.to_str()).collect();
    [
        ("run_dir", json!(c.run_dir.to_str())),
        ("workers", json!(c.workers.len())),
        ("cpus", json!(cpus)),
        ("spin_us", json!(spin.as_micros() as u64)),
        ("poll_always", json!(c.polling == Polling::Always)),
        ("rt_priority", json!(c.rt_priority)),
        ("user", json!(c.user)),
        ("sandbox", json!(c.sandbox)),
        ("latency_sampling", json!(c.latency_sampling)),
        ("require_ports", json!(c.require_ports)),
        ("allow_nics", json!(c.allow_nics)),
        ("allow_taps", json!(c.allow_taps)),
        ("allow_dirs", json!(dirs)),
        ("trusted_hypervisors", json!(c.trusted_hypervisors)),
    ]
}

fn sockets(c: &Config) -> [(&'static str, Value); 3] {
    let mode = c.sockets.mode.map(|mode| format!("{mode:04o}"));
    [("owner", json!(c.sockets.owner)), ("group", json!(c.sockets.group)), ("mode", json!(mode))]
}

fn switch(c: &Config) -> [(&'static str, Value); 6] {
    [
        ("ageing_s", json!(c.ageing.as_secs())),
        ("table_entries", json!(c.switches.table_entries)),
        ("shared", json!(c.shared_switches)),
        ("sticky_addresses", json!(c.switches.sticky)),
        ("lossless_between_users", json!(c.switches.holds_others)),
        ("policies", json!(c.policies)),
    ]
}

fn quota(q: &Quota) -> [(&'static str, Value); 10] {
    [
        ("connections", json!(q.connections)),
        ("ports", json!(q.ports)),
        ("switches", json!(q.switches)),
        ("memory_mib", json!(q.memory >> 20)),
        ("descriptors", json!(q.descriptors)),
        ("addresses", json!(q.addresses)),
        ("unread_kib", json!(q.unread >> 10)),
        ("log_lines", json!(q.log_lines)),
        ("captures_mib", json!(q.captures)),
        ("subscriptions", json!(q.subscriptions)),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::{File, KEYS};
    use super::*;

    /// Objective: each key of the file is a setting, and no other; a file's values come out as they went in.
    #[test]
    fn all_keys() {
        let text = "run_dir = '/r'\nworkers = 2\ncpus = [1, 0]\nspin_us = 7\nrt_priority = 3\nuser = 'u'\nsandbox = false\nlatency_sampling = 11\nrequire_ports = true\n\
            allow_nics = ['n']\nallow_taps = ['t']\nallow_dirs = ['/d']\n\
            trusted_hypervisors = ['h']\n[sockets]\nowner = 'o'\ngroup = 'g'\nmode = '0600'\n\
            [switch]\nageing_s = 10\ntable_entries = 64\nshared = ['*']\nsticky_addresses = false\nlossless_between_users = true\n\
            policies = {vale0 = {isolated = true, rate_in = '1gbit'}}\n\
            [quota]\nconnections = 1\nports = 2\nswitches = 3\nmemory_mib = 4\ndescriptors = 5\naddresses = 6\nunread_kib = 7\nlog_lines = 8\ncaptures_mib = 9\nsubscriptions = 10";
        let table: toml::Table = text.parse().unwrap();
        let found = settings(&File::parse(text).unwrap().into_config().unwrap());
        for key in &KEYS {
            let setting = found.iter().find(|one| (one.table, one.name) == (key.table, key.name)).unwrap();
            let there = if key.table.is_empty() { table.get(key.name) } else { table[key.table].get(key.name) };
            let expected = there.map_or(json!(false), |value| serde_json::to_value(value).unwrap());
            assert_eq!(setting.value, expected, "{}", setting.path());
        }
        assert_eq!(found.len(), KEYS.len());
        let always = settings(&File::parse("poll_always = true").unwrap().into_config().unwrap());
        assert!(always.iter().any(|one| one.name == "poll_always" && one.value == json!(true)));
    }
}
