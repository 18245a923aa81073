//! A persistent port on a second switch: it joins the two.
//!
//! netmap puts a bridge wrapper around the port. What the first switch sends to the port enters the second one from there, and the other way
//! round; no program can have it meanwhile. Here the daemon plays the program: it takes what came to the port's rx rings for the second
//! switch, whose own frames lie in rings of memory that nobody else maps until the first switch has taken them.

use std::sync::Arc;

use netvale_abi::nmreq::NR_REG_ALL_NIC;
use netvale_control::types::PortOptions;
use netvale_mem::mapping::Pages;
use netvale_mem::{PortMem, PortShape, Region, RegionSizes};
use netvale_port::far_end::FarEnd;
use netvale_port::ring_in::RingIngress;
use netvale_port::ring_out::RingEgress;
use netvale_port::{Egress, HdrLen, Ingress};
use netvale_switch::{Forwarder, PortId, Switch};
use rustix::io::Errno;

use crate::devices::Device;
use crate::open::refuse;
use crate::refusal::Refusal;
use crate::rings::{Bells, Rings};
use crate::state::{Caller, NewPort, PortRecord, State};

/// What a switch's port is that is a persistent port's second one.
pub struct Joined {
    /// The persistent port.
    pub port: String,
    /// The length of its header.
    pub hdr_len: HdrLen,
}

/// Takes what an egress delivered to one of `mem`'s rings.
fn far_end(
    mem: &Arc<PortMem>,
    ring: &Arc<RingEgress>,
    bells: &Bells,
    hdr_len: &HdrLen,
) -> Result<Box<dyn Ingress>, Refusal> {
    let (end, wake) = (FarEnd::new(Arc::clone(ring)), bells.wake.try_clone()?);
    Ok(Box::new(RingIngress::new(Arc::clone(mem), end, wake, hdr_len.clone(), Arc::default())))
}

/// The far ends of all rx rings.
fn far_ends(rings: &Rings) -> Result<Vec<Box<dyn Ingress>>, Refusal> {
    let bells = rings.bells.iter().skip(rings.mem.shape().tx_rings as usize);
    rings.rx.iter().zip(bells).map(|(ring, bells)| far_end(&rings.mem, ring, bells, &rings.hdr_len)).collect()
}

/// A port seen from the other side: what it sends there, it receives here.
pub(crate) fn turned(s: PortShape) -> PortShape {
    PortShape { tx_rings: s.rx_rings, rx_rings: s.tx_rings, tx_slots: s.rx_slots, rx_slots: s.tx_slots }
}

/// Rings for what the second switch sends to the port, as many and as long as its tx rings.
fn rings_between(rings: &Rings) -> Result<Rings, Refusal> {
    let PortShape { rx_rings, rx_slots, .. } = turned(rings.mem.shape());
    let shape = PortShape { tx_rings: 0, rx_rings, tx_slots: rx_slots, rx_slots };
    let buf_size = rings.mem.region().layout().sizes.bufs.size;
    let sizes = RegionSizes::for_port(shape.rx_rings, shape.rx_slots, buf_size, 0, 0);
    let region = Region::shared("netvale-joint", sizes, Pages::Ordinary)?;
    Ok(Rings::new(&region, rings.mem_id, shape, rings.hdr_len.clone(), rings.fault.clone())?.0)
}

impl PortRecord {
    /// Of a persistent port's second port: what it is.
    pub(crate) fn joined(&self) -> Option<&Joined> {
        self.device().and_then(|device| device.joined.as_ref())
    }
}

impl State {
    /// Attaches a persistent port that is on a switch to another one.
    pub(crate) fn join(
        &mut self,
        (switch, port): (&str, &str),
        (mode, ring): (u32, u16),
        caller: Caller,
    ) -> Result<(), Refusal> {
        if mode != NR_REG_ALL_NIC || ring != 0 {
            return refuse(
                Errno::INVAL,
                format!("{port} joins two switches with all its rings, and has no host rings"),
            );
        }
        let place = self.own_place(port).unwrap_or_default();
        let Some((first, id, rings)) = self.ports.get(&place).and_then(on_switch) else {
            return refuse(Errno::INVAL, format!("{port} is on no switch"));
        };
        let between = rings_between(rings)?;
        let (over, back) = (far_ends(rings)?, far_ends(&between)?);
        let joined = Joined { port: port.to_owned(), hdr_len: rings.hdr_len.clone() };
        let detail = Some(format!("joins {switch} and {place}"));
        let device = Device { detail, joined: Some(joined), ..Device::default() };
        let egress = between.rx.iter().map(|e| Arc::clone(e) as Arc<dyn Egress>).collect();
        self.plug(switch, port, egress, over, NewPort::device(device, caller, &PortOptions::default()))?;
        self.bring_back(&place, back, (&first, id));
        self.set_joint(port, Some(format!("{switch}:{port}")));
        Ok(())
    }

    /// What comes from the second switch goes to the first one, or wherever the port is moved.
    fn bring_back(&mut self, place: &str, ingresses: Vec<Box<dyn Ingress>>, (switch, id): (&Arc<Switch>, PortId)) {
        for (ring, ingress) in ingresses.into_iter().enumerate() {
            let counters = Arc::clone(ingress.counters());
            let placed = self.place(Box::new(Forwarder::new(Arc::clone(switch), id, ring, ingress)));
            if let Some(record) = self.ports.get_mut(place) {
                record.placed.push(placed);
                record.ingress.push(counters);
            }
        }
    }

    /// Takes a persistent port off its second switch. Returns whether `full` is one there.
    pub(crate) fn part(&mut self, full: &str, why: &str) -> bool {
        let Some(port) = self.ports.get(full).and_then(PortRecord::joined).map(|joined| joined.port.clone()) else {
            return false;
        };
        let place = self.own_place(&port).unwrap_or_default();
        // What was on its way arrives.
        self.drain(full);
        if self.unplug(full, why).is_err() {
            return false;
        }
        self.drain(&place);
        if let Some(record) = self.ports.get_mut(&place) {
            let own = record.rings().map_or(0, |rings| rings.tx.len());
            record.ingress.truncate(own);
            let back = record.placed.split_off(own.min(record.placed.len()));
            self.retire(&back);
        }
        self.set_joint(&port, None);
        true
    }
}

fn on_switch(record: &PortRecord) -> Option<(Arc<Switch>, PortId, &Rings)> {
    Some((Arc::clone(record.switch.as_ref()?), record.id?, record.rings()?))
}
