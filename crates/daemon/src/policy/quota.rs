//! Quotas: what one user may have at a time. Root and the daemon's own user have none.

use std::sync::Arc;

use netvale_mem::{Layout, RegionError, RegionSizes};
use netvale_pcapport::Allowance;
use rustix::io::Errno;

use super::is_trusted;
use crate::caller::Caller;
use crate::daemon::Daemon;
use crate::refusal::{Refusal, refuse};

fn within(caller: Caller, has: usize, most: usize, what: &str, key: &str) -> Result<(), Refusal> {
    if is_trusted(caller) || has < most {
        return Ok(());
    }
    let text =
        format!("user {} has {has} {what}, and may have {most}: close some, or raise '{key}' in [quota]", caller.uid);
    refuse(Errno::NOSPC, text)
}

/// Whether a user who has that many connections may have one more.
///
/// # Errors
/// [`Refusal`]: `ENOSPC`.
pub fn may_connect(d: &Daemon, caller: Caller, connections: usize) -> Result<(), Refusal> {
    within(caller, connections, d.config.quota.connections, "connections", "connections")
}

/// Whether the caller may have one more port.
pub(super) fn may_have_port(d: &Daemon, caller: Caller) -> Result<(), Refusal> {
    let is_theirs = |uid: u32| uid == caller.uid;
    let has = d.ports.iter().filter(|(_, record)| is_theirs(record.owner.uid)).count()
        + d.pipes.iter().filter(|(_, pipe)| is_theirs(pipe.uid)).count()
        + d.interfaces.ports().filter(|(_, port)| is_theirs(port.owner.uid)).count();
    within(caller, has, d.config.quota.ports, "ports", "ports")
}

/// Whether the caller may make one more switch.
pub(super) fn may_have_switch(d: &Daemon, caller: Caller) -> Result<(), Refusal> {
    within(caller, d.switches.count_of(caller.uid), d.config.quota.switches, "switches", "switches")
}

/// Whether the caller may have one more region, of that size.
///
/// # Errors
/// [`Refusal`]: `ENOSPC`; `EINVAL` for impossible sizes.
pub fn may_have_memory(d: &Daemon, caller: Caller, sizes: RegionSizes) -> Result<(), Refusal> {
    let more = Layout::new(sizes).map_err(RegionError::from)?.total;
    let (has, most) = (d.regions.bytes_of(caller.uid), d.config.quota.memory);
    if is_trusted(caller) || has.saturating_add(more) <= most {
        return Ok(());
    }
    let text = format!(
        "user {} has {} MiB of memory, and may have {}: {} more are too many; ask for fewer or smaller buffers, or raise 'memory_mib' in [quota]",
        caller.uid,
        has >> 20,
        most >> 20,
        more.div_ceil(1 << 20)
    );
    refuse(Errno::NOSPC, text)
}

/// What the captures of a caller share, if that user has a quota; a first portion has been taken for one more.
///
/// # Errors
/// [`Refusal`]: `ENOSPC`.
pub fn allowance(d: &mut Daemon, caller: Caller) -> Result<Option<Arc<Allowance>>, Refusal> {
    if is_trusted(caller) {
        return Ok(None);
    }
    let shared = d.captures.allowance(caller.uid, d.config.quota.captures);
    if shared.take() {
        return Ok(Some(Arc::clone(shared)));
    }
    let text = format!(
        "user {} has {} MiB of captures, and may have {}: empty or remove some, or raise 'captures_mib' in [quota]",
        caller.uid,
        shared.used(),
        shared.most()
    );
    refuse(Errno::NOSPC, text)
}
