//! Quotas: limits on what one user may have at the same time. Root and the daemon's own user have no quota.

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
    let text = format!(
        "user {} has {has} {what}, and the limit is {most}; close some, or raise '{key}' in [quota]",
        caller.uid
    );
    refuse(Errno::NOSPC, text)
}

/// Checks that a user who has `connections` connections may open another connection.
///
/// # Errors
/// [`Refusal`]: `ENOSPC`.
pub fn may_connect(d: &Daemon, caller: Caller, connections: usize) -> Result<(), Refusal> {
    within(caller, connections, d.config.quota.connections, "connections", "connections")
}

/// Maximum number of all users' subscriptions, and the number of these that are reserved for root and the daemon's own
/// user.
const SUBSCRIPTIONS: (usize, usize) = (128, 16);

/// Checks that the caller may have another subscription.
///
/// # Errors
/// [`Refusal`]: `ENOSPC`.
pub fn may_subscribe(d: &Daemon, caller: Caller) -> Result<(), Refusal> {
    let (all, theirs) = d.events.counts(caller.uid);
    let (most, reserved) = SUBSCRIPTIONS;
    let room = if is_trusted(caller) { most } else { most - reserved };
    if all >= room {
        return refuse(Errno::NOSPC, format!("the limit of {all} subscriptions to events is reached; close one"));
    }
    within(caller, theirs, d.config.quota.subscriptions, "subscriptions to events", "subscriptions")
}

/// Maximum number of all users' traces, the number of these that are reserved for root and the daemon's own user, and
/// the maximum number of traces of any other user.
const TRACES: (usize, usize, usize) = (64, 8, 4);

/// Checks that the caller may have another trace, which replaces the current trace of the caller's connection.
///
/// # Errors
/// [`Refusal`]: `ENOSPC`.
pub fn may_trace(d: &Daemon, caller: Caller) -> Result<(), Refusal> {
    let (all, theirs) = d.traces.counts_beside(caller);
    let (most, reserved, of_user) = TRACES;
    if is_trusted(caller) && all < most {
        return Ok(());
    }
    if all + reserved >= most {
        return refuse(Errno::NOSPC, format!("the limit of traces is reached ({all} connections have one); end one"));
    }
    if theirs >= of_user {
        return refuse(Errno::NOSPC, format!("user {} has reached the limit of {theirs} traces; end one", caller.uid));
    }
    Ok(())
}

/// Checks the total number of unread answer bytes on a user's connections.
///
/// # Errors
/// [`Refusal`]: `ENOSPC`.
pub fn may_leave_unread(d: &Daemon, caller: Caller, bytes: usize) -> Result<(), Refusal> {
    let most = d.config.quota.unread_kib << 10;
    if is_trusted(caller) || bytes <= most {
        return Ok(());
    }
    let text = format!(
        "the connections of user {} have {} KiB of unread answers, and the limit is {}; read them, or raise \
         'unread_kib' in [quota]",
        caller.uid,
        bytes >> 10,
        most >> 10
    );
    refuse(Errno::NOSPC, text)
}

/// Number of descriptors that a port is assumed to take, in addition to those of its rings.
const PER_PORT: usize = 4;
/// Maximum number of descriptors of a ring.
const PER_RING: usize = 4;

/// Checks that another port with `rings` rings does not exceed the caller's quota of descriptors.
///
/// # Errors
/// [`Refusal`]: `ENOSPC`.
pub fn may_have_rings(d: &Daemon, caller: Caller, rings: usize) -> Result<(), Refusal> {
    if is_trusted(caller) {
        return Ok(());
    }
    let has = descriptors_of(d, caller.uid);
    let more = PER_PORT + PER_RING * rings;
    let most = d.config.quota.descriptors;
    if has + more <= most {
        return Ok(());
    }
    let text = format!(
        "the ports of user {} have about {has} descriptors; {more} more would exceed the limit of {most}; request \
         fewer rings, or raise 'descriptors' in [quota]",
        caller.uid
    );
    refuse(Errno::NOSPC, text)
}

/// Returns an upper estimate of the number of descriptors that a user's ports take.
fn descriptors_of(d: &Daemon, uid: u32) -> usize {
    let ports = d.ports.iter().filter(|(_, record)| record.owner.uid == uid);
    let of_ports = ports.map(|(_, record)| PER_PORT + PER_RING * (record.ingress.len() + record.egress.len()));
    let pipes = d.pipes.iter().filter(|(_, pipe)| pipe.uid == uid).map(|_| PER_PORT + 2 * PER_RING);
    let interfaces = d.interfaces.ports().filter(|(_, port)| port.owner.uid == uid);
    let of_interfaces = interfaces.map(|(_, port)| PER_PORT + 2 * PER_RING * port.nic.interface().queues as usize);
    of_ports.chain(pipes).chain(of_interfaces).sum()
}

/// Checks that the caller may have another port: the quota allows another port, and the user's pause after an eviction,
/// if any, is over.
pub(super) fn may_have_port(d: &Daemon, caller: Caller) -> Result<(), Refusal> {
    if let Some(pause) = d.evictions.pause(caller.uid) {
        let uid = caller.uid;
        let seconds = pause.as_secs() + 1;
        return refuse(
            Errno::AGAIN,
            format!("a doorbell or memory of user {uid} blocked a thread; try again in {seconds} s"),
        );
    }
    let is_theirs = |uid: u32| uid == caller.uid;
    let has = d.ports.iter().filter(|(_, record)| is_theirs(record.owner.uid)).count()
        + d.pipes.iter().filter(|(_, pipe)| is_theirs(pipe.uid)).count()
        + d.interfaces.ports().filter(|(_, port)| is_theirs(port.owner.uid)).count();
    within(caller, has, d.config.quota.ports, "ports", "ports")?;
    may_have_rings(d, caller, 0)
}

/// Returns the maximum number of the caller's addresses that a switch learns; `None`: no limit.
pub fn most_addresses(d: &Daemon, caller: Caller) -> Option<u32> {
    (!is_trusted(caller)).then_some(d.config.quota.addresses)
}

/// Maximum number of extra buffers in one request, which bounds the time in which the main thread links the buffers.
const MOST_EXTRA: u32 = 32_768;

/// Checks the number of extra buffers in one request.
pub(super) fn may_have_extra(caller: Caller, buffers: u32) -> Result<(), Refusal> {
    if is_trusted(caller) || buffers <= MOST_EXTRA {
        return Ok(());
    }
    let text = format!("{buffers} extra buffers requested, and the limit per request is {MOST_EXTRA}");
    refuse(Errno::NOSPC, format!("{text}; request the rest with further ports in the same memory"))
}

/// Checks that the caller may create another switch.
pub(super) fn may_have_switch(d: &Daemon, caller: Caller) -> Result<(), Refusal> {
    within(caller, d.switches.count_of(caller.uid), d.config.quota.switches, "switches", "switches")
}

/// Checks that the caller may have another region of these sizes.
///
/// # Errors
/// [`Refusal`]: `ENOSPC`; `EINVAL` for impossible sizes.
pub fn may_have_memory(d: &Daemon, caller: Caller, sizes: RegionSizes) -> Result<(), Refusal> {
    may_have_bytes(d, caller, Layout::new(sizes).map_err(RegionError::from)?.total)
}

/// Checks that the caller may have `more` additional bytes of memory.
///
/// # Errors
/// [`Refusal`]: `ENOSPC`.
pub fn may_have_bytes(d: &Daemon, caller: Caller, more: u64) -> Result<(), Refusal> {
    if is_trusted(caller) {
        return Ok(());
    }
    let devices = d.ports.iter().filter(|(_, record)| record.owner.uid == caller.uid);
    let in_devices: u64 = devices.map(|(_, record)| record.behind.memory() + record.link_bytes()).sum();
    let has = d.regions.bytes_of(caller.uid) + in_devices;
    let most = d.config.quota.memory_mib << 20;
    if has.saturating_add(more) <= most {
        return Ok(());
    }
    let text = format!(
        "user {} has {} MiB of memory, and the limit is {}; {} MiB more are too many; request fewer or smaller \
         buffers, or raise 'memory_mib' in [quota]",
        caller.uid,
        has >> 20,
        most >> 20,
        more.div_ceil(1 << 20)
    );
    refuse(Errno::NOSPC, text)
}

/// Returns the allowance (a limit on file size) that all captures of the caller share. A first portion of the allowance
/// is taken for the new capture. Returns `None` if the user has no quota.
///
/// # Errors
/// [`Refusal`]: `ENOSPC`.
pub fn allowance(d: &mut Daemon, caller: Caller) -> Result<Option<Arc<Allowance>>, Refusal> {
    if is_trusted(caller) {
        return Ok(None);
    }
    let shared = d.captures.allowance(caller.uid, d.config.quota.captures_mib);
    if shared.take() {
        return Ok(Some(Arc::clone(shared)));
    }
    let text = format!(
        "user {} has {} MiB of captures, and the limit is {}; empty or remove some, or raise 'captures_mib' in [quota]",
        caller.uid,
        shared.used(),
        shared.most()
    );
    refuse(Errno::NOSPC, text)
}
