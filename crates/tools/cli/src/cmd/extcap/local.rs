//! Ports of this host's daemons: the daemon that `netvale list` uses, and the system's daemon.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use netvale_control::client::Client;
use netvale_control::dirs::{RUN_DIR_VARIABLE, SYSTEM_RUN_DIR};
use netvale_control::types::{PortInfo, PortKind};

use crate::CliContext;

/// Time limit for a daemon's answer: Wireshark starts only once all daemons have answered.
const PATIENCE: Duration = Duration::from_secs(2);

/// Returns the run directories of the daemons, the user's own first.
fn folders(ctx: &CliContext) -> Vec<PathBuf> {
    let is_named = ctx.run_dir.is_some() || std::env::var_os(RUN_DIR_VARIABLE).is_some_and(|value| !value.is_empty());
    let system = (!is_named).then(|| PathBuf::from(SYSTEM_RUN_DIR));
    [ctx.dir()].into_iter().chain(system.filter(|system| *system != ctx.dir())).collect()
}

/// Returns the ports visible to this user; none if the daemon does not answer.
fn ports_of(folder: &std::path::Path) -> Vec<PortInfo> {
    let ports = Client::connect_within(folder, PATIENCE).and_then(|mut client| client.ports(None));
    let mut ports = ports.unwrap_or_default();
    ports.retain(|port| port.kind != PortKind::Monitor);
    ports
}

/// Returns the ports of all daemons. If two daemons have a port of the same name, the port of the first daemon is
/// returned.
pub fn ports(ctx: &CliContext) -> Vec<PortInfo> {
    let mut names = BTreeSet::new();
    let all = folders(ctx).into_iter().flat_map(|folder| ports_of(&folder));
    all.filter(|port| names.insert(port.name.clone())).collect()
}

/// Returns the daemon that has the port; if no daemon has it, returns the user's own daemon, which then reports the
/// error.
pub fn daemon_of(port: &str, ctx: &CliContext) -> CliContext {
    let has = |folder: &PathBuf| ports_of(folder).iter().any(|known| known.name == port);
    let folder = folders(ctx).into_iter().find(has).unwrap_or_else(|| ctx.dir());
    CliContext { run_dir: Some(folder), ..ctx.clone() }
}
