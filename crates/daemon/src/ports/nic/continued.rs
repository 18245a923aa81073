//! Hand-over of interfaces, and of the rings of interfaces that programs have opened.

use std::os::fd::AsFd;
use std::sync::Arc;

use netvale_afxdp::Nic;
use netvale_afxdp::bpf::Diversion;
use netvale_afxdp::iface::Interface as Found;
use netvale_afxdp::socket::BindResult;
use netvale_fdio::state::Fd;
use netvale_mem::PortShape;
use netvale_mem::region::{FurnishedRings, RingRanges};
use netvale_nic::stack::Stack;
use netvale_tap::Tap;
use netvale_tap::restore::name_of;
use rustix::io::Errno;

use super::{hold, stack};
use crate::daemon::Daemon;
use crate::handover::items::Item;
use crate::handover::kinds::{InterfaceItem, OpenInterfaceItem, StackItem};
use crate::ports::memory;
use crate::refusal::{Refusal, refuse};
use crate::rings::nic::{NicPort, OpenQueue};
use crate::rings::switched::RingDoorbells;

/// An interface, and the TAP that replaces its host stack; `None` if there is no such TAP.
pub type ContinuedInterface = (Arc<Nic>, Option<Arc<Stack>>);

/// Returns the items (saved states) of all interfaces in use that still exist.
///
/// # Errors
/// Fails if the daemon is out of descriptors.
pub fn interfaces(d: &Daemon) -> std::io::Result<Vec<Item>> {
    let there = d.interfaces.in_use().filter(|nic| nic.is_there());
    there.map(|nic| interface(&nic, d.interfaces.stack(&nic.interface().name).as_deref())).collect()
}

/// Returns the items of the interfaces that are needed after a kill: interfaces of ports on a switch, and interfaces
/// whose rings programs have opened. Other users of an interface, such as passthrough ports, start anew and open the
/// interface again.
///
/// # Errors
/// Fails if the daemon is out of descriptors.
pub fn kept_interfaces(d: &Daemon) -> std::io::Result<Vec<Item>> {
    let is_kept = |item: &InterfaceItem| {
        let is_it = |name: Option<&str>| name == Some(&item.name);
        d.interfaces.port_on(&item.name).is_some() || d.ports.iter().any(|(_, record)| is_it(record.behind.interface()))
    };
    let mut all = interfaces(d)?;
    all.retain(|item| matches!(item, Item::Interface(item) if is_kept(item)));
    Ok(all)
}

/// Returns the items of rings that programs have opened. The items do not include the rings' counters, which change
/// with every frame.
///
/// # Errors
/// Fails if the daemon is out of descriptors.
pub fn kept_rings(d: &Daemon) -> std::io::Result<Vec<Item>> {
    let mut all = open_rings(d)?;
    for item in &mut all {
        if let Item::OpenInterface(item) = item {
            item.counters.clear();
        }
    }
    Ok(all)
}

fn interface(nic: &Nic, stack: Option<&Stack>) -> std::io::Result<Item> {
    let mut item = None;
    if let Some((stack, first)) = stack.and_then(|stack| Some((stack, stack.queues().first()?))) {
        let [map, away, back, only] = stack.diversion().descriptors();
        item = Some(StackItem {
            tap: name_of(first)?,
            queues: stack.queues().iter().map(Fd::shared).collect(),
            hooks: [Fd::copy_of(map)?, Fd::copy_of(away)?, Fd::copy_of(back)?, Fd::copy_of(only)?],
        });
    }
    Ok(Item::Interface(Box::new(InterfaceItem::new(nic, item)?)))
}

/// Restores an interface. The daemon keeps the interface open as long as a port or the returned value refers to it.
///
/// # Errors
/// [`Refusal`] if the interface does not exist, or a descriptor is not of the expected type.
pub fn continue_interface(d: &mut Daemon, item: InterfaceItem) -> Result<ContinuedInterface, Refusal> {
    let (interface, mode) = item.interface();
    if d.interfaces.known(&interface.name).is_some() {
        return refuse(Errno::INVAL, "the interface has already been restored");
    }
    let nic = Nic::restore(interface, mode, item.has_told, item.nic)?;
    d.interfaces.add(&nic);
    let stack = item.stack.map(|item| restore_stack(&nic, item)).transpose()?;
    stack.iter().for_each(|stack| d.interfaces.add_stack(&nic.interface().name, stack));
    Ok((nic, stack))
}

fn restore_stack(nic: &Nic, item: StackItem) -> Result<Arc<Stack>, Refusal> {
    let StackItem { tap, queues, hooks: [map, away, back, only] } = item;
    let tap = Tap::restore(&tap, false, Fd::take_all(queues)?)?;
    let there = Found::find(tap.name())
        .map_err(|e| Refusal::new(e, format!("host-stack TAP {} does not exist", tap.name())))?;
    let hooks = [map.take()?, away.take()?, back.take()?, only.take()?];
    let queues = tap.into_queues();
    let diversion = Diversion::continued(nic.interface().index, there.index, queues.len() as u32, hooks)?;
    Ok(Arc::new(Stack::new(queues, diversion)))
}

/// Returns the items of all interface rings that programs have opened.
///
/// # Errors
/// Fails if the daemon is out of descriptors.
pub fn open_rings(d: &Daemon) -> std::io::Result<Vec<Item>> {
    let there = d.interfaces.ports().filter(|(_, port)| port.nic.is_there());
    there.map(|(client, port)| rings(client, port)).collect()
}

fn rings(client: u64, port: &NicPort) -> std::io::Result<Item> {
    let shape = port.mem.shape();
    let socket = |queue: &Arc<OpenQueue>| {
        let socket = &queue.opened.socket;
        std::io::Result::Ok((queue.number(), socket.entries(), Fd::copy_of(socket.as_fd())?))
    };
    Ok(Item::OpenInterface(Box::new(OpenInterfaceItem {
        client,
        name: port.name.clone(),
        interface: port.nic.interface().name.clone(),
        owner: port.owner.into(),
        trusted: port.trusted,
        bound: port.got.map(|got| (got.zero_copy, got.multi_buffer)),
        region: port.mem_id,
        shape: [shape.tx_rings, shape.rx_rings, shape.tx_slots, shape.rx_slots],
        host: port.mem.host_rings(),
        first: port.mem.csb_first(),
        rings: [port.tx.clone(), port.rx.clone()],
        sockets: port.sockets.iter().map(socket).collect::<std::io::Result<_>>()?,
        bells: port.bells.values().map(RingDoorbells::save).collect::<std::io::Result<_>>()?,
        counters: port.counted(),
    })))
}

/// Restores the interface rings that a program has opened. Forwarding tasks are placed only for host rings, because
/// frames of queues pass directly between the program and the kernel.
///
/// # Errors
/// [`Refusal`] if the memory of the rings does not exist, or a descriptor is not of the expected type.
pub fn continue_rings(d: &mut Daemon, item: OpenInterfaceItem) -> Result<(), Refusal> {
    let wrong = |what: &str| Refusal::new(Errno::INVAL, what);
    let nic = d.interfaces.known(&item.interface).ok_or_else(|| wrong("the interface of these rings is missing"))?;
    let owner = item.owner.into();
    let region = memory::continued(d, item.region, owner)?;
    let [tx_rings, rx_rings, tx_slots, rx_slots] = item.shape;
    let shape = PortShape { tx_rings, rx_rings, tx_slots, rx_slots };
    let known = hold::memory_in(d, &item.interface, &region).filter(|mem| mem.csb_first() == item.first);
    let mem = match known {
        Some(mem) if (mem.shape(), mem.host_rings()) == (shape, item.host) => mem,
        Some(_) => return Err(wrong("the rings of one interface have different shapes")),
        None => Arc::new(region.continue_port(shape, item.host.0, item.host.1, item.first)?),
    };
    let [tx, rx] = item.rings;
    let queues = nic.interface().queues;
    if tx.end > tx_rings || rx.end > rx_rings || [tx_rings - item.host.0, rx_rings - item.host.1] != [queues; 2] {
        return Err(wrong("the saved rings do not match the interface's queues"));
    }
    let has_host = tx.end.max(rx.end) > queues;
    let bound = RingRanges { tx, rx };
    hold::are_free(d, &nic, &bound)?;
    let base = NicPort::new(item.name, nic, mem, item.region, bound, d.evictions.new_fault(owner), owner);
    let got = item.bound.map(|(zero_copy, multi_buffer)| BindResult { zero_copy, multi_buffer });
    let mut port = NicPort { trusted: item.trusted, got, ..base };
    for (number, entries, socket) in item.sockets {
        if !port.tx.contains(&number) && !port.rx.contains(&number) {
            return Err(wrong("a queue has a socket, but no ring"));
        }
        let queue = match hold::shared(d, &port, number)? {
            Some(queue) => queue,
            None => {
                let memory = port.mem.region().mapping();
                let buffers = stack::buffers(&port);
                let opened = port.nic.continue_queue(number, entries, memory, buffers, socket.take()?)?;
                Arc::new(OpenQueue::new(opened, FurnishedRings::of(&port.mem, hold::both(number))))
            }
        };
        port.sockets.push(queue);
    }
    port.send()?;
    if has_host {
        let stack =
            d.interfaces.stack(&item.interface).ok_or_else(|| wrong("the interface's host-stack TAP is missing"))?;
        let mut given = item.bells.into_iter();
        let mut bells = |port: &NicPort| RingDoorbells::restore(given.next(), &port.fault);
        let tasks = stack::host_rings(&mut port, &stack, &mut bells, true)?;
        stack::place(d, &mut port, tasks)?;
        port.count(&item.counters);
        port.stack = Some(stack);
    }
    d.interfaces.insert(item.client, port);
    Ok(())
}
