//! netmap requests that create, attach, detach, list and change ports.

use std::mem::offset_of;

use netvale_abi::nmreq::{
    NETMAP_POLLING_MODE_MULTI_CPU, NETMAP_POLLING_MODE_SINGLE_CPU, NmreqPortHdr, NmreqRegister, NmreqValeAttach,
    NmreqValeDetach, NmreqValeList, NmreqValeNewif, NmreqValePolling,
};
use netvale_control::attach::{AttachRequest, FLAG_NETMAP};
use netvale_portspec::{Base, PortName, SwitchName};
use netvale_switch::PortId;
use rustix::io::Errno;

use super::body::NetmapBody;
use crate::caller::Caller;
use crate::daemon::{Daemon, DaemonPort};
use crate::naming;
use crate::permission::{controls, may_join};
use crate::ports::joint;
use crate::ports::kind::NamedRings;
use crate::ports::memory::{region, region_of};
use crate::ports::nic::attach::attach_named;
use crate::ports::nic::facts::header;
use crate::ports::{detach, persistent};
use crate::refusal::{Refusal, refuse};
use crate::registry::persistent::own_name;
use crate::registry::ports::SwitchPort;

fn find<'a>(d: &'a mut Daemon, name: &str) -> Result<&'a mut DaemonPort, Refusal> {
    let none = || Refusal::new(Errno::NXIO, format!("port {name} does not exist: 'netvale list' shows the ports"));
    d.ports.get_mut(name).ok_or_else(none)
}

pub(super) fn hdr_set(d: &mut Daemon, name: &str, body: &NetmapBody) -> Result<(), Refusal> {
    let len = body.u32(offset_of!(NmreqPortHdr, nr_hdr_len));
    if !matches!(len, 0 | 10 | 12) {
        return refuse(Errno::INVAL, format!("invalid virtio-net header length {len}: expected 0, 10 or 12"));
    }
    if !find(d, name)?.behind.set_header(len) {
        return refuse(
            Errno::OPNOTSUPP,
            format!("cannot set the header of {name}: expected a VALE port that programs can open"),
        );
    }
    Ok(())
}

pub(super) fn hdr_get(d: &Daemon, name: &str, body: &mut NetmapBody) -> Result<(), Refusal> {
    let record = d.ports.get(d.persistent.place_of(name)).or_else(|| d.ports.get(&d.persistent.own_place(name)?));
    let len = match record {
        Some(record) => joint::of(record).map_or_else(|| record.hdr_len(), |joint| joint.hdr_len.get()),
        None => header_without_record(d, name)?,
    };
    body.put32(offset_of!(NmreqPortHdr, nr_hdr_len), len);
    Ok(())
}

/// Returns the header length of a pipe or an interface.
fn header_without_record(d: &Daemon, name: &str) -> Result<u32, Refusal> {
    let none = || Refusal::new(Errno::NXIO, format!("port {name} does not exist: 'netvale list' shows the ports"));
    let parsed = PortName::parse(name).map_err(|_| none())?;
    match (parsed.pipe(), parsed.base()) {
        (Some(_), _) if d.pipes.with_end(&parsed.to_string()).is_some() => Ok(0),
        (None, Base::Netmap { ifname }) => header(d, ifname.as_str()),
        _ => Err(none()),
    }
}

pub(super) fn newif(d: &mut Daemon, name: &str, body: &mut NetmapBody, caller: Caller) -> Result<(), Refusal> {
    let request = AttachRequest {
        flags: FLAG_NETMAP,
        tx_slots: body.u32(offset_of!(NmreqValeNewif, nr_tx_slots)),
        rx_slots: body.u32(offset_of!(NmreqValeNewif, nr_rx_slots)),
        tx_rings: body.u16(offset_of!(NmreqValeNewif, nr_tx_rings)).into(),
        rx_rings: body.u16(offset_of!(NmreqValeNewif, nr_rx_rings)).into(),
        mem_id: body.u16(offset_of!(NmreqValeNewif, nr_mem_id)).into(),
        ..AttachRequest::default()
    };
    let (shape, mem_id) = persistent::make(d, name, &request, caller)?;
    body.put32(offset_of!(NmreqValeNewif, nr_tx_slots), shape.tx_slots);
    body.put32(offset_of!(NmreqValeNewif, nr_rx_slots), shape.rx_slots);
    body.put16(offset_of!(NmreqValeNewif, nr_tx_rings), shape.tx_rings);
    body.put16(offset_of!(NmreqValeNewif, nr_rx_rings), shape.rx_rings);
    body.put16(offset_of!(NmreqValeNewif, nr_mem_id), mem_id);
    Ok(())
}

pub(super) fn vale_attach(
    d: &mut Daemon,
    at: &SwitchPort,
    body: &mut NetmapBody,
    caller: Caller,
) -> Result<(), Refusal> {
    const REG: usize = offset_of!(NmreqValeAttach, reg);
    let rings = NamedRings {
        mode: body.u32(REG + offset_of!(NmreqRegister, nr_mode)),
        ring: body.u16(REG + offset_of!(NmreqRegister, nr_ringid)),
    };
    let mem_at = REG + offset_of!(NmreqRegister, nr_mem_id);
    let mem_id = body.u16(mem_at).into();
    if d.persistent.contains(&at.port) {
        persistent::attach(d, at, mem_id, rings, caller)?;
        body.put16(mem_at, region_of(d, &own_name(&at.port)).unwrap_or(mem_id));
    } else {
        if mem_id != 0 {
            region(d, mem_id, caller)?;
        }
        attach_named(d, at.clone(), rings, caller)?;
    }
    let index = d.ports.get(&at.full()).and_then(|record| record.id).unwrap_or_default();
    body.put32(offset_of!(NmreqValeAttach, port_index), index_of(index));
    Ok(())
}

pub(super) fn vale_detach(d: &mut Daemon, at: &SwitchPort, body: &mut NetmapBody) -> Result<(), Refusal> {
    let name = at.full();
    let record = find(d, &name)?;
    if record.behind.wrapped_queues().is_some() && record.polled {
        return refuse(Errno::BUSY, format!("{name} is being polled; disable polling first"));
    }
    let index = record.id.unwrap_or_default();
    // A port that a program created remains while any program has the port open. In this case the request succeeds and
    // changes nothing, as in netmap.
    let of_a_program = !record.persistent && record.behind.programs().is_some_and(|local| !local.is_unheld());
    if !of_a_program {
        detach(d, &name, "requested by a netmap program")?;
    }
    body.put32(offset_of!(NmreqValeDetach, port_index), index_of(index));
    Ok(())
}

/// Answers `NETMAP_REQ_VALE_LIST`. With a name, writes that port's switch index and port index to the body. Without a
/// name, finds the first port at or after the indices in the body, writes the port's indices, and returns the port's
/// name.
pub(super) fn vale_list(d: &Daemon, name: &str, body: &mut NetmapBody, caller: Caller) -> Result<String, Refusal> {
    let bridge_at = offset_of!(NmreqValeList, nr_bridge_idx);
    let port_at = offset_of!(NmreqValeList, nr_port_idx);
    if !name.is_empty() && SwitchName::of_port(name).is_none() {
        return refuse(Errno::INVAL, format!("invalid name {name}: expected SWITCH:PORT"));
    }
    let may_use = |switch: &str| may_join(d, switch, caller).is_ok();
    let bridges: Vec<&str> = d.switches.iter().map(|switch| switch.name()).filter(|name| may_use(name)).collect();
    let position = |full: &str, record: &DaemonPort| {
        let bridge = bridges.iter().position(|b| record.switch.as_ref().is_some_and(|on| *b == on.name()))?;
        Some((bridge as u32, index_of(record.id?), full.to_owned()))
    };
    let from = (u32::from(body.u16(bridge_at)), body.u32(port_at));
    let found = d
        .ports
        .iter()
        .filter(|(_, record)| controls(caller, record.owner.uid))
        .filter_map(|(full, record)| position(full, record))
        .filter(|(bridge, port, full)| if name.is_empty() { (*bridge, *port) >= from } else { full == name })
        .min();
    let Some((bridge, port, full)) = found.or_else(|| no_port(name, &bridges)) else {
        return refuse(Errno::NOENT, "no such switch, or no port at or after this position");
    };
    body.put16(bridge_at, bridge);
    body.put32(port_at, port);
    Ok(naming::alias(&full))
}

/// Port index that stands for a missing port in netmap's API. A switch of netmap has at most this many ports.
const NONE: u32 = 254;

/// Returns the index of a port in netmap's API. Indices skip [`NONE`].
fn index_of(id: PortId) -> u32 {
    let id = u32::from(id);
    if id < NONE { id } else { id + 1 }
}

/// Returns netmap's answer for a port that does not exist on an existing switch: the index of the switch, [`NONE`] as
/// the index of the port, and the name. `None` if the switch does not exist.
fn no_port(name: &str, bridges: &[&str]) -> Option<(u32, u32, String)> {
    let (switch, _) = name.split_once(':')?;
    let bridge = bridges.iter().position(|b| *b == switch)?;
    Some((bridge as u32, NONE, name.to_owned()))
}

/// Starts or ends polling of a port. While a port is polled, its workers never sleep; they replace netmap's polling
/// kernel threads.
pub(super) fn polling(d: &mut Daemon, at: &SwitchPort, body: &NetmapBody, on: bool) -> Result<(), Refusal> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from) as u32;
    let mode = body.u32(offset_of!(NmreqValePolling, nr_mode));
    let first = body.u32(offset_of!(NmreqValePolling, nr_first_cpu_id));
    let count = body.u32(offset_of!(NmreqValePolling, nr_num_polling_cpus));
    let name = at.full();
    let record = find(d, &name)?;
    let Some(queues) = record.behind.wrapped_queues() else {
        return refuse(Errno::OPNOTSUPP, format!("{name} is a VALE port, which has no queues to poll"));
    };
    if record.polled == on {
        return refuse(Errno::FAULT, format!("{name} is {} polled", if on { "already" } else { "not" }));
    }
    // netmap's rule: one CPU polls all rings, or several CPUs poll one ring each, and at least one CPU of the machine
    // does not poll.
    let last = first.saturating_add(count);
    let single = mode == NETMAP_POLLING_MODE_SINGLE_CPU && count == 1;
    let multi = mode == NETMAP_POLLING_MODE_MULTI_CPU && count >= 1 && last <= queues;
    if on && (!(single || multi) || count >= cpus || last > cpus) {
        return refuse(
            Errno::INVAL,
            format!(
                "invalid polling mode {mode} on {count} CPUs from CPU {first}: this machine has {cpus} CPUs, and one \
                 must not poll"
            ),
        );
    }
    record.polled = on;
    if let Some(record) = d.ports.get(&name) {
        d.workers.keep_awake(&record.placed, on);
    }
    Ok(())
}
