//! Rings of an interface that several programs have opened. Each ring has one holder: the program that has opened that
//! ring. The two rings of a queue may have different holders, which then share the queue's socket and memory.

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

/// Returns the tx ring and the rx ring of a queue.
pub(super) fn both(queue: u32) -> RingRanges {
    RingRanges { tx: queue..queue + 1, rx: queue..queue + 1 }
}

/// Returns the queue `number`, and the open port of a program that holds one of the queue's rings; `None` if no program
/// holds either ring.
fn holder<'a>(d: &'a Daemon, nic: &Nic, number: u32) -> Option<(&'a NicPort, &'a Arc<OpenQueue>)> {
    let mut ports = d.interfaces.ports_on(&nic.interface().name);
    ports.find_map(|(_, port)| Some((port, port.queue(number)?)))
}

/// If another program has opened the queue's other ring, returns the queue; otherwise, `None`.
///
/// # Errors
/// [`Refusal`] with `EBUSY` if the other ring is in another region.
pub(super) fn shared(d: &Daemon, port: &NicPort, number: u32) -> Result<Option<Arc<OpenQueue>>, Refusal> {
    let Some((other, queue)) = holder(d, &port.nic, number) else { return Ok(None) };
    if Arc::ptr_eq(&other.mem, &port.mem) {
        return Ok(Some(Arc::clone(queue)));
    }
    let ifname = &port.nic.interface().name;
    let uid = other.owner.uid;
    let region = other.mem_id;
    let text = format!(
        "user {uid} has queue {number} of {ifname} open in region {region}; open the queue's other ring in the same \
         region"
    );
    refuse(Errno::BUSY, text)
}

/// Returns the memory of the interface's rings that programs have already opened in `region`; `None` if there are none.
pub(super) fn memory_in(d: &Daemon, ifname: &str, region: &Arc<Region>) -> Option<Arc<PortMem>> {
    let mut all = d.interfaces.ports_on(ifname).map(|(_, port)| &port.mem);
    all.find(|mem| Arc::ptr_eq(mem.region(), region)).map(Arc::clone)
}

/// Refuses rings that are in use, because only one program may move a ring's frames.
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
            None => format!("queue {ring} of {ifname} is in use: another program has its {way} ring"),
        };
        let text = format!("{what}; open another ring or direction, or stop the program that has it");
        return refuse(Errno::BUSY, text);
    }
    Ok(())
}

/// Returns the queues to which the tx and rx rings `rings` belong.
pub(super) fn queues_of(nic: &Nic, rings: &RingRanges) -> impl Iterator<Item = u32> + use<> {
    let RingRanges { tx, rx } = rings.clone();
    let all = 0..nic.interface().queues;
    all.filter(move |queue| tx.contains(queue) || rx.contains(queue))
}

/// Returns the host rings among the given rings of an interface.
pub(super) fn host_of(nic: &Nic, RingRanges { tx, rx }: &RingRanges) -> RingRanges {
    let queues = nic.interface().queues;
    let of = |range: &Range<u32>| range.start.max(queues)..range.end.max(queues);
    RingRanges { tx: of(tx), rx: of(rx) }
}

/// Returns the number of these tx rings, and of these rx rings, that have no buffers yet. An open queue has buffers for
/// both of its rings, even if only one ring is held.
pub(super) fn new_rings(d: &Daemon, nic: &Nic, rings: &RingRanges) -> (u32, u32) {
    let queues = queues_of(nic, rings).filter(|&queue| holder(d, nic, queue).is_none()).count() as u32;
    let host = host_of(nic, rings);
    (queues + host.tx.len() as u32, queues + host.rx.len() as u32)
}
