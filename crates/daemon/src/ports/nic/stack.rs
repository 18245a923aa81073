//! The replacement for an interface's host stack: a TAP, whose queues serve as the interface's host rings.

use std::os::fd::AsFd;
use std::sync::Arc;

use netvale_afxdp::Nic;
use netvale_afxdp::bpf::{Diversion, steering};
use netvale_afxdp::iface::Interface;
use netvale_afxdp::outlet::Outlet;
use netvale_afxdp::rx_end::RxEnd;
use netvale_afxdp::socket::BufferLayout;
use netvale_mem::host::HostTx;
use netvale_mem::notify::KickCounts;
use netvale_mem::region::{FurnishedRings, RingRanges};
use netvale_nic::stack::{Stack, StackRx, StackTx};
use netvale_port::RingCounters;
use netvale_tap::{Tap, TapOptions};
use rustix::io::Errno;

use crate::daemon::Daemon;
use crate::ports::handed::domain_of;
use crate::refusal::Refusal;
use crate::registry::interfaces::Interfaces;
use crate::rings::nic::NicPort;
use crate::rings::switched::RingDoorbells;
use crate::worker::WorkerTask;

/// Creates the TAP that replaces the interface's host stack, with `queues` queues. With `finished`, the TAP has no
/// offloads: frames from the TAP are segmented and have complete checksums.
pub(crate) fn make(interfaces: &mut Interfaces, nic: &Nic, queues: u32, finished: bool) -> Result<Arc<Stack>, Refusal> {
    let interface = nic.interface();
    let options = TapOptions {
        name: "nvhost%d".to_owned(),
        queues,
        mtu: Some(interface.mtu),
        no_offloads: finished,
        ..TapOptions::default()
    };
    let tap = Tap::open(&options)?;
    let failed = |what: &str, source: Errno| {
        Refusal::new(source, format!("host rings of {}: cannot {what}: {source}", interface.name))
    };
    let there = Interface::find(tap.name()).map_err(|e| failed("find the TAP", e))?;
    if queues > 1 {
        let program = steering().map_err(|(what, e)| failed(what, e))?;
        tap.steer(&program)?;
    }
    let barrier = nic.barrier()?;
    let before = barrier.as_ref().map(|[_, link]| link.as_fd());
    let diversion = Diversion::attach(interface.index, before, there.index, queues);
    let diversion = diversion.map_err(|(what, e)| failed(what, e))?;
    tap.bring_up()?;
    let stack = Arc::new(Stack::new(tap.into_queues(), diversion));
    interfaces.add_stack(&interface.name, &stack);
    Ok(stack)
}

/// Returns the TAP that replaces the stack of an interface with open host rings. Creates the TAP for the first program.
pub(crate) fn of_port(interfaces: &mut Interfaces, port: &NicPort) -> Result<Arc<Stack>, Refusal> {
    match interfaces.stack(&port.nic.interface().name) {
        Some(stack) => Ok(stack),
        None => make(interfaces, &port.nic, port.mem.host_rings().1.max(1), true),
    }
}

/// A function that creates or restores the two doorbells of a host ring.
pub(crate) type GetBells<'a> = dyn FnMut(&NicPort) -> Result<RingDoorbells, Refusal> + 'a;

/// Creates the tasks that forward frames between the stack and the port's open host rings. Stores in `port` the
/// doorbells and rings that these tasks use. `continues` must be set if another process saved the rings and they have
/// been restored.
pub(crate) fn host_rings(
    port: &mut NicPort,
    stack: &Arc<Stack>,
    bells: &mut GetBells<'_>,
    continues: bool,
) -> Result<Vec<CountedTask>, Refusal> {
    let mut tasks = Vec::<CountedTask>::new();
    let interface = port.nic.interface().clone();
    let queues = interface.queues;
    let failed = |what: &'static str| {
        let name = interface.name.clone();
        move |e: Errno| Refusal::new(e, format!("{name}: cannot {what}: {e}"))
    };
    for i in port.tx.clone().filter(|&i| i >= queues) {
        let side = port.mem.tx.get(i as usize).ok_or_else(|| Refusal::internal("a host ring without memory"))?;
        let bells = bells(port)?;
        let counters = Arc::<RingCounters>::default();
        let side = side.clone();
        let wake = bells.wake.try_clone()?;
        let end = if continues { HostTx::continued } else { HostTx::new };
        let host = port.mem.region().touch(move || end(side, wake))?;
        let kicks = host.kicks();
        let doorbell = bells.doorbell.try_clone()?;
        let queue = stack.queue(i - queues).map_err(failed("reach the stack"))?;
        let ring = furnished(port, RingRanges { tx: i..i + 1, rx: 0..0 }, continues)?;
        let task = StackTx::new(ring, host, doorbell, queue, Arc::clone(&counters));
        port.bells.insert((false, i), bells);
        tasks.push((Box::new(task), (counters, kicks)));
    }
    for i in port.rx.clone().filter(|&i| i >= queues) {
        let side = port.mem.rx.get(i as usize).ok_or_else(|| Refusal::internal("a host ring without memory"))?;
        let bells = bells(port)?;
        let counters = Arc::<RingCounters>::default();
        let wire = Outlet::wire(interface.index).map_err(failed("send past the stack"))?;
        let side = side.clone();
        let wake = bells.wake.try_clone()?;
        let fresh = move || RxEnd::new(side, wake);
        let end = port.mem.region().touch(move || if continues { fresh().continued() } else { fresh() })?;
        let queue = stack.queue(i - queues).map_err(failed("reach the stack"))?;
        let ring = furnished(port, RingRanges { tx: 0..0, rx: i..i + 1 }, continues)?;
        let task = StackRx::new(ring, end, queue, wire, Arc::clone(&counters));
        let kicks = task.kicks();
        let ring = if continues { Ok(stack.continue_ring(i - queues)) } else { stack.open_ring(i - queues) };
        port.open_rings.push(ring.map_err(failed("redirect the stack's frames"))?);
        port.bells.insert((true, i), bells);
        tasks.push((Box::new(task), (counters, kicks)));
    }
    Ok(tasks)
}

/// Returns a host ring. Allocates buffers for the ring, unless `continues` is set, which means that the ring was
/// restored with its buffers.
fn furnished(port: &NicPort, ring: RingRanges, continues: bool) -> Result<FurnishedRings, Refusal> {
    if continues { Ok(FurnishedRings::of(&port.mem, ring)) } else { Ok(port.mem.furnish(ring)?) }
}

/// Places the tasks of a port's host rings on workers.
pub(crate) fn place(d: &mut Daemon, port: &mut NicPort, tasks: Vec<CountedTask>) -> std::io::Result<()> {
    let domain = domain_of(port.owner);
    d.workers.begin(domain, 1)?;
    for (task, counts) in tasks {
        port.counts.push(counts);
        port.tasks.push(d.workers.place_for(domain, task));
    }
    Ok(())
}

/// Returns the layout of the buffers in a port's region.
pub(crate) fn buffers(port: &NicPort) -> BufferLayout {
    let layout = port.mem.region().layout();
    let bufs = layout.sizes.bufs;
    BufferLayout { first: layout.buf_pool, stride: bufs.size, count: bufs.num }
}

/// A task with its counters.
pub(crate) type CountedTask = (WorkerTask, (Arc<RingCounters>, Arc<KickCounts>));
