//! Exports the running state as a configuration file.

use netvale_control::types::{AttachParams, Exported, Owner};

use crate::caller::is_trusted_user;
use crate::config::{self, canonical};
use crate::daemon::{Daemon, Record};

/// Exports settings and attached ports.
pub fn export(d: &Daemon) -> Exported {
    let attached: Vec<(&str, AttachParams, &Record)> = d
        .ports
        .iter()
        .filter_map(|(full, record)| Some((full, canonical(&record.declared.as_ref()?.params), record)))
        .collect();
    let ports: Vec<AttachParams> = attached.iter().map(|(_, params, _)| params.clone()).collect();
    let file = config::json(&d.config, &ports);
    let left_out = left_out(d);
    let mut above = vec![format!(
        "What a netvale daemon (release {}) was like. Settings that are not here have their defaults.",
        env!("CARGO_PKG_VERSION")
    )];
    if !left_out.is_empty() {
        above.push(String::new());
        above.push("Not in this file:".to_owned());
        above.extend(left_out.iter().map(|line| format!("- {line}")));
    }
    above.push(String::new());
    let text = config::text(&file, &above, |index| attached.get(index).and_then(|(_, _, record)| remark(record)));
    Exported { config: file, text, left_out }
}

/// Remark on a port's owner, if a daemon started from the file would be the owner instead.
fn remark(record: &Record) -> Option<String> {
    let uid = record.owner.uid;
    (!is_trusted_user(uid)).then(|| format!("User {uid}'s; from a file, it is the daemon's."))
}

/// Parts of the running state that a file cannot express, a sentence each.
fn left_out(d: &Daemon) -> Vec<String> {
    let of = |uid: u32, pid: i32| format!("user {uid}, process {pid}");
    let host_stack = |full: &str| full.strip_suffix('^').is_some_and(|port| d.ports.contains(port));
    let undeclared = d.ports.iter().filter(|(full, record)| record.declared.is_none() && !host_stack(full));
    let ports = undeclared.map(|(full, record)| {
        let owner = of(record.owner.uid, record.owner.pid);
        format!("{full}: it is a program's, or its interface is in another network namespace ({owner})")
    });
    let pipes = d.pipes.iter().filter(|(_, pipe)| pipe.guest_end().is_none());
    let pipes = pipes.map(|(name, pipe)| format!("pipe {name}: programs have it (user {})", pipe.uid));
    let interfaces = d.interfaces.ports().map(|(_, port)| {
        let info = port.info();
        let Owner { uid, pid } = info.owner.unwrap_or_default();
        format!("{}: a program has it open ({})", info.name, of(uid, pid))
    });
    let dirs = d.config.allow_dirs.iter().filter(|dir| dir.to_str().is_none());
    let dirs = dirs.map(|dir| format!("allow_dirs: {} is no UTF-8", dir.display()));
    ports.chain(pipes).chain(interfaces).chain(missing(d)).chain(dirs).collect()
}

/// Ports of the file that are not attached: their files were unavailable at the start, or they were detached.
fn missing(d: &Daemon) -> impl Iterator<Item = String> {
    let wanted = super::Wanted::of(&d.config.ports).into_iter();
    wanted.filter(|port| !d.ports.contains(&port.full)).map(|port| {
        format!("{}: the last file has it ({}), but it is not attached", port.full, config::words(&port.params, &[]))
    })
}
