//! Rings of an interface opened by several programs: each ring belongs to one program, but the two rings of a queue,
//! which has one socket on one memory, may belong to two.

use std::ops::Range;
use std::sync::Arc;

use netvale_afxdp::Nic;
use netvale_afxdp::iface::Interface;
use netvale_mem::region::RingRanges;
use netvale_mem::{PortMem, Region};
use rustix::io::Errno;

use crate::daemon::Daemon;
use crate::refusal::{Refusal, refuse};
use crate::rings::nic::{NicPort, OpenQueue};

/// Both rings of a queue.
pub(super) fn both(queue: u32) -> RingRanges {
    RingRanges { tx: queue..queue + 1, rx: queue..queue + 1 }
}

/// A port with that queue open.
fn holder<'a>(d: &'a Daemon, nic: &Nic, number: u32) -> Option<(&'a NicPort, &'a Arc<OpenQueue>)> {
    let mut ports = d.interfaces.ports_on(&nic.interface().name);
    ports.find_map(|(_, port)| Some((port, port.queue(number)?)))
}

/// Returns the queue if another program has its other ring open: they share one socket, on one memory.
///
/// # Errors
/// [`Refusal`] with `EBUSY` if their rings lie in another region.
pub(super) fn shared(d: &Daemon, port: &NicPort, number: u32) -> Result<Option<Arc<OpenQueue>>, Refusal> {
    let Some((other, queue)) = holder(d, &port.nic, number) else { return Ok(None) };
    if Arc::ptr_eq(&other.mem, &port.mem) {
        return Ok(Some(Arc::clone(queue)));
    }
    let ifname = &port.nic.interface().name;
    let uid = other.owner.uid;
    let region = other.mem_id;
    let text =
        format!("queue {number} of {ifname} is in use by user {uid}, in region {region}, and has both rings there");
    refuse(Errno::BUSY, text)
}

/// The memory of an interface's existing rings in a region.
pub(super) fn memory_in(d: &Daemon, ifname: &str, region: &Arc<Region>) -> Option<Arc<PortMem>> {
    let mut all = d.interfaces.ports_on(ifname).map(|(_, port)| &port.mem);
    all.find(|mem| Arc::ptr_eq(mem.region(), region)).map(Arc::clone)
}

/// Refuses rings in use: a ring's frames are moved by one program.
///
/// # Errors
/// [`Refusal`] with `EBUSY`.
pub(super) fn are_free(d: &Daemon, nic: &Nic, rings: &RingRanges) -> Result<(), Refusal> {
    let Interface { name: ifname, queues, .. } = nic.interface();
    let common = |a: &Range<u32>, b: &Range<u32>| {
        let first = a.start.max(b.start);
        (first < a.end.min(b.end)).then_some(first)
    };
    for (_, port) in d.interfaces.ports_on(ifname) {
        let ways = [("tx", common(&rings.tx, &port.tx)), ("rx", common(&rings.rx, &port.rx))];
        let Some((way, ring)) = ways.into_iter().find_map(|(way, ring)| Some((way, ring?))) else { continue };
        let what = match ring.checked_sub(*queues) {
            Some(host) => format!("host {way} ring {host} of {ifname} is in use"),
            None => format!("queue {ring} of {ifname} is in use: its {way} ring is another program's"),
        };
        let text = format!("{what}; open another ring or direction, or stop the program that has it");
        return refuse(Errno::BUSY, text);
    }
    Ok(())
}

/// The queues of some rings of an interface, in either direction.
pub(super) fn queues_of(nic: &Nic, rings: &RingRanges) -> impl Iterator<Item = u32> + use<> {
    let RingRanges { tx, rx } = rings.clone();
    let all = 0..nic.interface().queues;
    all.filter(move |queue| tx.contains(queue) || rx.contains(queue))
}

/// The host rings among some rings of an interface.
pub(super) fn host_of(nic: &Nic, RingRanges { tx, rx }: &RingRanges) -> RingRanges {
    let queues = nic.interface().queues;
    let of = |range: &Range<u32>| range.start.max(queues)..range.end.max(queues);
    RingRanges { tx: of(tx), rx: of(rx) }
}

/// Numbers of tx and rx rings without buffers. An open queue has both rings, even if only one is held.
pub(super) fn new_rings(d: &Daemon, nic: &Nic, rings: &RingRanges) -> (u32, u32) {
    let queues = queues_of(nic, rings).filter(|&queue| holder(d, nic, queue).is_none()).count() as u32;
    let host = host_of(nic, rings);
    (queues + host.tx.len() as u32, queues + host.rx.len() as u32)
}
