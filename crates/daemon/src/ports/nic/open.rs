//! An interface that a program opens. The rings of the program are the interface's queues.

use std::collections::BTreeSet;
use std::sync::Arc;

use netvale_afxdp::Nic;
use netvale_afxdp::sizes::{self, RegionNeeds};
use netvale_control::attach::{AttachRequest, FLAG_NETMAP, MAX_PORT_RINGS, MAX_RINGS};
use netvale_control::types::PortKind;
use netvale_mem::PortShape;
use netvale_mem::mapping::PageKind;
use netvale_mem::region::{Binding, RingRanges};
use netvale_portspec::{Memory, PortSpec};
use rustix::io::Errno;

use super::names::{RingNumbers, wanted_both};
use super::{hold, stack};
use crate::caller::Caller;
use crate::daemon::Daemon;
use crate::handover::items::{BindingItem, HoldItem};
use crate::permission;
use crate::ports::attachment::{Attachment, Description, OpenedPort, gone};
use crate::ports::memory::{self, NumberedRegion};
use crate::ports::plug::{end_monitors, tell_detached, tell_made};
use crate::refusal::{Refusal, refuse};
use crate::registry::regions::COMMON_REGION;
use crate::registry::watches::MonitoredPort;
use crate::rings::nic::{NicPort, OpenQueue};
use crate::rings::sizes::own_pools;
use crate::rings::switched::RingDoorbells;

/// Maximum number of extra buffers in a region for a netmap program. The number is limited because the buffers take
/// locked memory; netmap programs accept fewer buffers than they request.
const MOST_EXTRA_BUFS: u32 = 128 * 1024;

/// Rings of a network interface that a program has opened.
struct OpenInterface {
    /// The connection that opened the rings.
    client: u64,
    /// The `netmap_if` of the rings.
    binding: Binding,
}

impl Attachment for OpenInterface {
    fn describe(&self, d: &Daemon) -> Result<Description, Refusal> {
        d.interfaces.port(self.client).ok_or_else(gone)?.reply(&self.binding, true)
    }

    fn save(&self) -> std::io::Result<Option<HoldItem>> {
        Ok(Some(HoldItem::Interface { client: self.client, binding: (&self.binding).into() }))
    }

    /// Releases the rings. After this call, the host's stack receives from and sends on the queues again.
    fn close(self: Box<Self>, d: &mut Daemon, client: u64) {
        drop(self.binding);
        remove(d, client);
    }
}

fn remove(d: &mut Daemon, client: u64) {
    let Some(port) = d.interfaces.remove(client) else { return };
    d.workers.retire(&port.tasks);
    d.mirrors.end(&mut d.workers, &port.mem, &RingRanges { tx: port.tx.clone(), rx: port.rx.clone() });
    let ifname = &port.nic.interface().name;
    if d.interfaces.port_on(ifname).is_none() {
        end_monitors(d, &MonitoredPort::Nic(ifname.clone()));
    }
    tracing::info!(port = port.name, "closed");
    tell_detached(d, &port.name, port.owner.uid, "its program has closed the interface");
    let receiving = port.sockets.iter().filter(|queue| port.rx.contains(&queue.number()));
    receiving.for_each(|queue| queue.opened.ignore());
    drop(port);
    d.forget_kept();
}

/// Releases the rings of connections other than `clients`.
pub fn release_all_but(d: &mut Daemon, clients: &BTreeSet<u64>) {
    let gone: Vec<u64> = d.interfaces.ports().map(|(client, _)| client).filter(|id| !clients.contains(id)).collect();
    gone.into_iter().for_each(|client| remove(d, client));
}

/// Restores a connection's hold on an interface.
///
/// # Errors
/// [`Refusal`] if its rings or its `netmap_if` do not exist.
pub fn continue_hold(d: &Daemon, client: u64, binding: BindingItem) -> Result<Box<dyn Attachment>, Refusal> {
    let port = d.interfaces.port(client).ok_or_else(gone)?;
    let binding = port.mem.continue_binding(binding.index, binding.extra_bufs)?;
    Ok(Box::new(OpenInterface { client, binding }))
}

/// Opens an interface for a program. The rings of the program are the interface's queues.
pub fn open(
    d: &mut Daemon,
    request: &AttachRequest,
    spec: &PortSpec,
    ifname: &str,
    caller: Caller,
) -> Result<OpenedPort, Refusal> {
    let nic = d.interfaces.nic(ifname)?;
    let queues = nic.interface().queues;
    let (shape, host) = shape_of(d, &nic, request, spec)?;
    let bound = wanted_both(spec, (queues, host.0), (queues, host.1))?;
    let tx = bound.tx.clone();
    let rx = bound.rx.clone();
    if tx.len() + rx.len() > MAX_RINGS {
        return refuse(
            Errno::NOMEM,
            format!("{} rings of {ifname} requested: expected at most {MAX_RINGS} open together", tx.len() + rx.len()),
        );
    }
    if tx.end.max(rx.end) > queues {
        is_off_switches(d, ifname)?;
    }
    hold::are_free(d, &nic, &bound)?;
    let used = hold::new_rings(d, &nic, &bound);
    let needs = RegionNeeds { shape, host, used, buf_size: request.buf_size, extra_bufs: extra_bufs(request) };
    let (region, mem_id) = region_for(d, ifname, &spec.memory, request, &needs, caller)?;
    let mem = match hold::memory_in(d, ifname, &region) {
        Some(mem) => mem,
        None => Arc::new(region.port_in_part(shape, host.0, host.1, &RingRanges::NONE)?),
    };
    let binding = mem.bind(&spec.name.to_string(), tx, rx, request.extra_bufs)?;
    // Quotes in a specification mark the end of a name; the quotes are not part of the name.
    let name = request.name.replace('\'', "");
    let base = NicPort::new(name, nic, mem, mem_id, bound, d.evictions.new_fault(caller), caller);
    let port = NicPort { trusted: permission::is_trusted(caller), ..base };
    let port = start(d, port)?;
    let (reply, fds) = port.reply(&binding, false)?;
    tracing::info!(port = port.name, uid = caller.uid, pid = caller.pid, "opened");
    tell_made(d, &port.name, caller, PortKind::Nic);
    d.interfaces.insert(caller.client, port);
    Ok((reply, fds, Box::new(OpenInterface { client: caller.client, binding })))
}

fn extra_bufs(request: &AttachRequest) -> u32 {
    match request.flags & FLAG_NETMAP {
        0 => request.extra_bufs,
        // Programs that use netmap accept fewer buffers than they request.
        _ => request.extra_bufs.min(MOST_EXTRA_BUFS),
    }
}

/// Returns the shape of the interface's rings, including host rings, and the numbers of host rings in each direction.
/// The first program that opens the interface determines the shape; it remains until the last program closes the
/// interface.
fn shape_of(
    d: &Daemon,
    nic: &Nic,
    request: &AttachRequest,
    spec: &PortSpec,
) -> Result<(PortShape, RingNumbers), Refusal> {
    let interface = nic.interface();
    if let Some(port) = d.interfaces.port_on(&interface.name) {
        return Ok((port.mem.shape(), port.mem.host_rings()));
    }
    let or_one = |conf: u16, asked: u32| u32::from(conf).max(asked).max(1);
    let host = (
        or_one(spec.conf.host_tx_rings, request.host_tx_rings),
        or_one(spec.conf.host_rx_rings, request.host_rx_rings),
    );
    let all = host.0.saturating_add(host.1).saturating_add(2 * interface.queues);
    if all > MAX_PORT_RINGS || host.1 > netvale_tap::device::MAX_QUEUES {
        let (tx, rx) = host;
        return refuse(
            Errno::NOMEM,
            format!("{tx} tx and {rx} rx host rings are too many for {}; request fewer", interface.name),
        );
    }
    let host_rings = PortShape {
        tx_rings: host.0,
        rx_rings: host.1,
        tx_slots: spec.conf.tx_slots.max(request.tx_slots),
        rx_slots: spec.conf.rx_slots.max(request.rx_slots),
    };
    Ok((sizes::shape(interface.queues, host_rings), host))
}

/// Refuses an interface that is on a switch, because the switch uses its queues, and possibly its host stack.
fn is_off_switches(d: &Daemon, ifname: &str) -> Result<(), Refusal> {
    if let Some(full) = switch_port_on(d, ifname) {
        return refuse(Errno::BUSY, format!("{ifname} is on a switch, as {full}; detach it first"));
    }
    Ok(())
}

/// Returns the full name of an interface's port on a switch, `None` if it has none.
pub fn switch_port_on<'a>(d: &'a Daemon, ifname: &str) -> Option<&'a str> {
    d.ports.iter().find(|(_, record)| record.behind.interface() == Some(ifname)).map(|(full, _)| full)
}

/// Opens a socket for each queue that has none, and places the tasks of host rings on workers.
fn start(d: &mut Daemon, mut port: NicPort) -> Result<NicPort, Refusal> {
    let bound = RingRanges { tx: port.tx.clone(), rx: port.rx.clone() };
    for number in hold::queues_of(&port.nic, &bound) {
        let queue = match hold::shared(d, &port, number)? {
            Some(queue) => queue,
            None => Arc::new(fresh(&port, number)?),
        };
        if !port.trusted {
            port.got = Some(queue.opened.bind()?);
        }
        if port.tx.contains(&number) {
            port.mem.renew_tx(number)?;
        }
        port.sockets.push(queue);
    }
    let host = hold::host_of(&port.nic, &bound);
    if !host.tx.is_empty() || !host.rx.is_empty() {
        let stack = stack::of_port(&mut d.interfaces, &port)?;
        let tasks = stack::host_rings(&mut port, &stack, &mut |port| RingDoorbells::new(&port.fault), false)?;
        stack::place(d, &mut port, tasks)?;
        port.stack = Some(stack);
    }
    for queue in port.sockets.iter().filter(|queue| port.rx.contains(&queue.number())) {
        queue.opened.receive()?;
    }
    port.send()?;
    Ok(port)
}

/// Opens a queue that no program has opened.
fn fresh(port: &NicPort, number: u32) -> Result<OpenQueue, Refusal> {
    let rings = port.mem.furnish(hold::both(number))?;
    let entries = sizes::entries(port.mem.shape());
    let opened = port.nic.queue(number, entries, port.mem.region().mapping(), stack::buffers(port))?;
    Ok(OpenQueue::new(opened, rings))
}

/// Returns the region for an interface's buffers: the requested region, else the region in which the user has already
/// opened rings of this interface, else the region that the user's interfaces share, else a new region.
fn region_for(
    d: &mut Daemon,
    ifname: &str,
    memory: &Memory,
    request: &AttachRequest,
    needs: &RegionNeeds,
    caller: Caller,
) -> Result<NumberedRegion, Refusal> {
    if *memory == Memory::Auto
        && let Some(pools) = own_pools(&request.pools)
    {
        return memory::make(d, pools, PageKind::Ordinary, caller);
    }
    match memory {
        Memory::Id(id) if u32::from(id.get()) == COMMON_REGION => {
            return Ok((memory::common(d, needs.common(), caller)?, COMMON_REGION));
        }
        Memory::Auto => {}
        named => return memory::region_named(d, named, caller),
    }
    let beside = d.interfaces.ports_on(ifname).filter(|(_, p)| p.owner.uid == caller.uid);
    let mut beside = beside.map(|(_, p)| (Arc::clone(p.mem.region()), p.mem_id));
    // If the user has already opened rings of the interface in a region, that region has reserved room for all rings of
    // the interface. Only extra buffers and the `netmap_if` then need room.
    let there = RegionNeeds { shape: PortShape { tx_rings: 0, rx_rings: 0, ..needs.shape }, ..*needs };
    if let Some(found) = beside.find(|(region, _)| there.fit(region)) {
        return Ok(found);
    }
    drop(beside);
    if needs.is_usual() {
        let common = memory::common(d, needs.common(), caller)?;
        if needs.fit(&common) {
            return Ok((common, COMMON_REGION));
        }
    }
    memory::make(d, needs.region(), PageKind::Ordinary, caller)
}
