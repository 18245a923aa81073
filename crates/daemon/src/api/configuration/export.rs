//! Export of the running state as a configuration file.

use netvale_control::types::{AttachParams, ExportReply, Owner};

use crate::caller::is_trusted_user;
use crate::config::{self, canonical};
use crate::daemon::{Daemon, DaemonPort};

/// Exports settings and attached ports.
pub fn export(d: &Daemon) -> ExportReply {
    let attached: Vec<(&str, AttachParams, &DaemonPort)> = d
        .ports
        .iter()
        .filter_map(|(full, record)| Some((full, canonical(&record.declared.as_ref()?.params), record)))
        .collect();
    let ports: Vec<AttachParams> = attached.iter().map(|(_, params, _)| params.clone()).collect();
    let file = config::json(&d.config, &ports);
    let left_out = left_out(d);
    let mut above = vec![format!(
        "State of a netvale daemon (release {}). Omitted settings have their defaults.",
        env!("CARGO_PKG_VERSION")
    )];
    if !left_out.is_empty() {
        above.push(String::new());
        above.push("Not in this file:".to_owned());
        above.extend(left_out.iter().map(|line| format!("- {line}")));
    }
    above.push(String::new());
    let text = config::text(&file, &above, |index| attached.get(index).and_then(|(_, _, record)| remark(record)));
    ExportReply { config: file, text, left_out }
}

/// Returns a comment on a port for the exported file: if the port's owner is neither root nor the daemon's user, the
/// port will belong to the daemon when it is attached from the file. `None` for other ports.
fn remark(record: &DaemonPort) -> Option<String> {
    let uid = record.owner.uid;
    (!is_trusted_user(uid)).then(|| format!("Owned by user {uid}; attached from a file, it is owned by the daemon."))
}

/// Returns the parts of the running state that a file cannot express, one sentence each.
fn left_out(d: &Daemon) -> Vec<String> {
    let of = |uid: u32, pid: i32| format!("user {uid}, process {pid}");
    let host_stack = |full: &str| full.strip_suffix('^').is_some_and(|port| d.ports.contains(port));
    let comes_with = |full: &str, record: &DaemonPort| host_stack(full) || record.behind.comes_with().is_some();
    let undeclared = d.ports.iter().filter(|(full, record)| record.declared.is_none() && !comes_with(full, record));
    let ports = undeclared.map(|(full, record)| {
        let owner = of(record.owner.uid, record.owner.pid);
        format!("{full}: a program created it, or its interface is in another network namespace ({owner})")
    });
    let pipes = d.pipes.iter().filter(|(_, pipe)| pipe.guest_end().is_none());
    let pipes = pipes.map(|(name, pipe)| format!("pipe {name}: programs have it open (user {})", pipe.uid));
    let interfaces = d.interfaces.ports().map(|(_, port)| {
        let info = port.info();
        let Owner { uid, pid } = info.owner.unwrap_or_default();
        format!("{}: a program has it open ({})", info.name, of(uid, pid))
    });
    let dirs = d.config.allow_dirs.iter().filter(|dir| dir.to_str().is_none());
    let dirs = dirs.map(|dir| format!("allow_dirs: {} is not UTF-8", dir.display()));
    ports.chain(pipes).chain(interfaces).chain(missing(d)).chain(dirs).collect()
}

/// Returns one sentence for each port of the last applied file that is not attached: the port could not be attached
/// when the daemon started, or it has been detached since then.
fn missing(d: &Daemon) -> impl Iterator<Item = String> {
    let wanted = super::ConfigPort::of(&d.config.ports).into_iter();
    wanted.filter(|port| !d.ports.contains(&port.full)).map(|port| {
        format!("{}: in the last applied file ({}), but not attached", port.full, config::words(&port.params, &[]))
    })
}
