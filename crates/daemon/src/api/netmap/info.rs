//! Requests for the properties of a port, whether or not a program has opened it, and for its region
//! (`NETMAP_REQ_PORT_INFO_GET`, `NETMAP_REQ_POOLS_INFO_GET`).

use std::mem::offset_of;

use netvale_abi::nmreq::{NmreqPoolsInfo, NmreqPortInfoGet};
use netvale_control::attach::{AttachRequest, FLAG_NETMAP};
use netvale_mem::{Layout, RegionError};
use netvale_portspec::{Base, Conf, PortName};
use rustix::io::Errno;

use super::body::NetmapBody;
use crate::caller::Caller;
use crate::daemon::{Daemon, DaemonPort};
use crate::permission;
use crate::ports::joint::{self, turned};
use crate::ports::memory::{region, region_of};
use crate::ports::nic::facts::of_interface;
use crate::refusal::{Refusal, refuse};
use crate::registry::ports::SwitchPort;
use crate::registry::regions::COMMON_REGION;
use crate::rings::sizes::{PortFacts, Sizes};

/// Returns the properties of port `name`: the actual properties of an existing port, or the properties that the port
/// would have if it were opened with `request`.
fn facts(d: &mut Daemon, name: &str, request: &AttachRequest, caller: Caller) -> Result<PortFacts, Refusal> {
    let parsed = PortName::parse(name).or_else(|e| refuse(Errno::INVAL, format!("{e:#}")))?;
    let wanted = Sizes::new(request, &Conf::default())?;
    let text = parsed.to_string();
    if let Some(facts) = of_record(d, &text) {
        return Ok(facts);
    }
    let on_switch = d.ports.get(&text).and_then(|record| record.behind.interface());
    if let Some(ifname) = on_switch.map(str::to_owned) {
        return of_interface(d, &ifname, request, caller);
    }
    let known = match (parsed.pipe(), parsed.base()) {
        (Some(_), base) => region_of(d, &text).or_else(|| region_of(d, &base.to_string())),
        (None, Base::Netmap { ifname }) => {
            return of_interface(d, ifname.as_str(), request, caller);
        }
        (None, Base::Vale { switch, port }) => {
            permission::may_be_named(d, &SwitchPort::new(switch, port), true, caller)?;
            None
        }
    };
    let known = known.or((request.mem_id != 0).then_some(request.mem_id));
    let Some(id) = known else {
        return Ok(PortFacts {
            shape: wanted.shape,
            host: (0, 0),
            layout: Layout::new(wanted.region()).map_err(|e| Refusal::from(RegionError::from(e)))?,
            mem_id: 0,
        });
    };
    Ok(PortFacts { shape: wanted.shape, host: (0, 0), layout: *region(d, id, caller)?.layout(), mem_id: id })
}

/// Returns the properties of a port with rings, by any of its names; `None` if no port with rings has this name.
fn of_record(d: &Daemon, name: &str) -> Option<PortFacts> {
    let of = |place: &str| d.ports.get(place).and_then(DaemonPort::rings);
    let joint = || joint::of(d.ports.get(name)?);
    let (rings, shape) = match of(d.persistent.place_of(name)) {
        Some(rings) => (rings, rings.mem.shape()),
        None => {
            let rings = of(&d.persistent.own_place(&joint()?.port)?)?;
            (rings, turned(rings.mem.shape()))
        }
    };
    Some(PortFacts { shape, host: (0, 0), layout: *rings.mem.region().layout(), mem_id: rings.mem_id })
}

pub(super) fn port_info(d: &mut Daemon, name: &str, body: &mut NetmapBody, caller: Caller) -> Result<(), Refusal> {
    if name.is_empty() {
        return region_info(d, body, caller);
    }
    let asked = |body: &NetmapBody| AttachRequest {
        flags: FLAG_NETMAP,
        tx_slots: body.u32(offset_of!(NmreqPortInfoGet, nr_tx_slots)),
        rx_slots: body.u32(offset_of!(NmreqPortInfoGet, nr_rx_slots)),
        tx_rings: body.u16(offset_of!(NmreqPortInfoGet, nr_tx_rings)).into(),
        rx_rings: body.u16(offset_of!(NmreqPortInfoGet, nr_rx_rings)).into(),
        host_tx_rings: body.u16(offset_of!(NmreqPortInfoGet, nr_host_tx_rings)).into(),
        host_rx_rings: body.u16(offset_of!(NmreqPortInfoGet, nr_host_rx_rings)).into(),
        ..AttachRequest::default()
    };
    let request = AttachRequest { mem_id: body.u16(offset_of!(NmreqPortInfoGet, nr_mem_id)).into(), ..asked(body) };
    let facts = facts(d, name, &request, caller)?;
    let s = facts.shape;
    body.put64(offset_of!(NmreqPortInfoGet, nr_memsize), facts.layout.total);
    body.put32(offset_of!(NmreqPortInfoGet, nr_tx_slots), s.tx_slots);
    body.put32(offset_of!(NmreqPortInfoGet, nr_rx_slots), s.rx_slots);
    body.put16(offset_of!(NmreqPortInfoGet, nr_tx_rings), s.tx_rings - facts.host.0);
    body.put16(offset_of!(NmreqPortInfoGet, nr_rx_rings), s.rx_rings - facts.host.1);
    body.put16(offset_of!(NmreqPortInfoGet, nr_host_tx_rings), facts.host.0);
    body.put16(offset_of!(NmreqPortInfoGet, nr_host_rx_rings), facts.host.1);
    body.put16(offset_of!(NmreqPortInfoGet, nr_mem_id), facts.mem_id);
    Ok(())
}

/// Answers a request that names no port with the properties of a region.
fn region_info(d: &mut Daemon, body: &mut NetmapBody, caller: Caller) -> Result<(), Refusal> {
    let id = match body.u16(offset_of!(NmreqPortInfoGet, nr_mem_id)) {
        0 => COMMON_REGION,
        id => id.into(),
    };
    let region = region(d, id, caller)?;
    body.put64(offset_of!(NmreqPortInfoGet, nr_memsize), region.layout().total);
    body.put16(offset_of!(NmreqPortInfoGet, nr_mem_id), id);
    Ok(())
}

pub(super) fn pools_info(d: &mut Daemon, name: &str, body: &mut NetmapBody, caller: Caller) -> Result<(), Refusal> {
    if name.is_empty() {
        return refuse(Errno::NXIO, "missing port name: expected the port whose pools are meant");
    }
    let mem_id = body.u16(offset_of!(NmreqPoolsInfo, nr_mem_id)).into();
    let facts = facts(d, name, &AttachRequest { mem_id, flags: FLAG_NETMAP, ..AttachRequest::default() }, caller)?;
    let l = facts.layout;
    let s = facts.layout.sizes;
    body.put64(offset_of!(NmreqPoolsInfo, nr_memsize), l.total);
    body.put16(offset_of!(NmreqPoolsInfo, nr_mem_id), facts.mem_id);
    body.put64(offset_of!(NmreqPoolsInfo, nr_if_pool_offset), l.if_pool);
    body.put32(offset_of!(NmreqPoolsInfo, nr_if_pool_objtotal), s.ifs.num);
    body.put32(offset_of!(NmreqPoolsInfo, nr_if_pool_objsize), s.ifs.size);
    body.put64(offset_of!(NmreqPoolsInfo, nr_ring_pool_offset), l.ring_pool);
    body.put32(offset_of!(NmreqPoolsInfo, nr_ring_pool_objtotal), s.rings.num);
    body.put32(offset_of!(NmreqPoolsInfo, nr_ring_pool_objsize), s.rings.size);
    body.put64(offset_of!(NmreqPoolsInfo, nr_buf_pool_offset), l.buf_pool);
    body.put32(offset_of!(NmreqPoolsInfo, nr_buf_pool_objtotal), s.bufs.num);
    body.put32(offset_of!(NmreqPoolsInfo, nr_buf_pool_objsize), s.bufs.size);
    Ok(())
}
