//! A persistent port that is on a second switch, and thereby joins two switches.
//!
//! netmap puts a bridge wrapper around such a port. Frames that the first switch sends to the port enter the second
//! switch, and vice versa; no program can open the port while it joins two switches. In netvale, the daemon does what
//! the program would do: it forwards the frames in the port's rx rings to the second switch. Frames from the second
//! switch wait in rings of private memory until the first switch takes them.

use std::sync::Arc;

use netvale_abi::nmreq::NR_REG_ALL_NIC;
use netvale_control::types::PortKind;
use netvale_mem::mapping::PageKind;
use netvale_mem::{PortMem, PortShape, Region, RegionSizes};
use netvale_port::far_end::FarEnd;
use netvale_port::ring_in::RingIngress;
use netvale_port::ring_out::RingEgress;
use netvale_port::{Egress, HdrLen, Ingress};
use netvale_switch::{Forwarder, PortId, Switch};
use rustix::io::Errno;

use super::kind::NamedRings;
use super::plug::{NewPort, drain, plug, unplug};
use crate::caller::Caller;
use crate::daemon::{Daemon, DaemonPort, PortBackend};
use crate::permission;
use crate::refusal::{Refusal, refuse};
use crate::registry::ports::SwitchPort;
use crate::rings::switched::{PortRings, RingDoorbells};

/// Backend of the port through which a persistent port is connected to its second switch.
pub struct JointPort {
    /// Name of the persistent port.
    pub port: String,
    /// Length of the virtio-net header in bytes, shared with the persistent port. Programs set the length at the
    /// persistent port.
    pub hdr_len: HdrLen,
    queues: u32,
    detail: String,
}

impl PortBackend for JointPort {
    fn kind(&self) -> PortKind {
        PortKind::Local
    }

    fn notes(&self) -> Vec<String> {
        vec![self.detail.clone()]
    }

    fn wrapped_queues(&self) -> Option<u32> {
        Some(self.queues)
    }

    fn set_header(&self, len: u32) -> bool {
        self.hdr_len.get() == len
    }
}

/// Returns the backend of a port that joins a persistent port to a second switch; `None` for other ports.
pub fn of(record: &DaemonPort) -> Option<&JointPort> {
    record.behind.get()
}

/// Creates the ingress that takes the frames that `ring`, an egress, delivers to a ring of `mem`.
fn far_end(
    mem: &Arc<PortMem>,
    ring: &Arc<RingEgress>,
    bells: &RingDoorbells,
    hdr_len: &HdrLen,
) -> Result<Box<dyn Ingress>, Refusal> {
    let end = FarEnd::new(Arc::clone(ring));
    let wake = bells.wake.try_clone()?;
    Ok(Box::new(RingIngress::new(Arc::clone(mem), end, wake, hdr_len.clone(), Arc::default())))
}

/// Creates an ingress for each rx ring. The ingress takes the frames that were delivered to the ring.
fn far_ends(rings: &PortRings) -> Result<Vec<Box<dyn Ingress>>, Refusal> {
    let bells = rings.bells.iter().skip(rings.mem.shape().tx_rings as usize);
    rings.rx.iter().zip(bells).map(|(ring, bells)| far_end(&rings.mem, ring, bells, &rings.hdr_len)).collect()
}

/// Returns the shape of a port from the point of view of its peer, with tx and rx swapped.
pub(crate) fn turned(s: PortShape) -> PortShape {
    PortShape { tx_rings: s.rx_rings, rx_rings: s.tx_rings, tx_slots: s.rx_slots, rx_slots: s.tx_slots }
}

/// Creates rx rings that buffer the frames from the second switch: the same number of rings and of slots as the port's
/// tx rings.
fn rings_between(d: &Daemon, rings: &PortRings, caller: Caller) -> Result<PortRings, Refusal> {
    let PortShape { rx_rings, rx_slots, .. } = turned(rings.mem.shape());
    let shape = PortShape { tx_rings: 0, rx_rings, tx_slots: rx_slots, rx_slots };
    let buf_size = rings.mem.region().layout().sizes.bufs.size;
    let sizes = RegionSizes::for_port(shape.rx_rings, shape.rx_slots, buf_size, 0, 0);
    permission::may_have_memory(d, caller, sizes)?;
    let region = Region::shared("netvale-joint", sizes, PageKind::Ordinary)?;
    Ok(PortRings::new(&region, rings.mem_id, shape, rings.hdr_len.clone(), rings.fault.clone())?.0)
}

/// Attaches a persistent port that is already on one switch to a second switch.
pub fn join(d: &mut Daemon, at: &SwitchPort, rings: NamedRings, caller: Caller) -> Result<(), Refusal> {
    let port = at.port.as_str();
    if rings.mode != NR_REG_ALL_NIC || rings.ring != 0 {
        return refuse(
            Errno::INVAL,
            format!("{port} can join a second switch only with all its rings and without host rings"),
        );
    }
    let place = d.persistent.own_place(port).unwrap_or_default();
    let Some((first, id, rings)) = d.ports.get(&place).and_then(on_switch) else {
        return refuse(Errno::INVAL, format!("{port} is not on a switch"));
    };
    let between = rings_between(d, rings, caller)?;
    let over = far_ends(rings)?;
    let back = far_ends(&between)?;
    let egress: Vec<_> = between.rx.iter().map(|e| Arc::clone(e) as Arc<dyn Egress>).collect();
    let joint = JointPort {
        port: port.to_owned(),
        hdr_len: rings.hdr_len.clone(),
        queues: egress.len() as u32,
        detail: format!("joins {} and {place}", at.switch),
    };
    plug(d, at, (egress, over), NewPort::of(Box::new(joint), caller))?;
    bring_back(d, &place, back, &first, id);
    say_joint(d, &place, true);
    d.persistent.set_joint(port, Some(at.full()));
    Ok(())
}

/// Adds the worker tasks that forward frames from the second switch: these frames enter the first switch, `switch`, as
/// frames from its port `id`.
fn bring_back(d: &mut Daemon, place: &str, ingresses: Vec<Box<dyn Ingress>>, switch: &Arc<Switch>, id: PortId) {
    for (ring, ingress) in ingresses.into_iter().enumerate() {
        let counters = Arc::clone(ingress.counters());
        let placed = d.workers.place(Box::new(Forwarder::new(Arc::clone(switch), id, ring, ingress)));
        if let Some(record) = d.ports.get_mut(place) {
            record.placed.push(placed);
            record.ingress.push(counters);
        }
    }
}

/// Removes the port `full` through which a persistent port is on its second switch. Returns false if `full` is not such
/// a port.
pub fn part(d: &mut Daemon, full: &str, why: &str) -> bool {
    let joint = d.ports.get(full).and_then(of);
    let Some(port) = joint.map(|joint| joint.port.clone()) else { return false };
    let place = d.persistent.own_place(&port).unwrap_or_default();
    // Frames in flight are forwarded before the port is removed.
    drain(d, full);
    if unplug(d, full, why).is_err() {
        return false;
    }
    drain(d, &place);
    if let Some(record) = d.ports.get_mut(&place) {
        let own = record.rings().map_or(0, |rings| rings.tx.len());
        record.ingress.truncate(own);
        let back = record.placed.split_off(own.min(record.placed.len()));
        d.workers.retire(&back);
    }
    say_joint(d, &place, false);
    d.persistent.set_joint(&port, None);
    true
}

fn say_joint(d: &mut Daemon, place: &str, is_joint: bool) {
    let local = d.ports.get_mut(place).and_then(|record| record.behind.programs_mut());
    local.into_iter().for_each(|local| local.set_joint(is_joint));
}

fn on_switch(record: &DaemonPort) -> Option<(Arc<Switch>, PortId, &PortRings)> {
    Some((Arc::clone(record.switch.as_ref()?), record.id?, record.rings()?))
}
