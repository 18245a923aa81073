//! Properties of network interfaces, for netmap's control requests, whether or not a program has opened the interface.
//! Queries need no privilege.

use netvale_afxdp::iface::Interface;
use netvale_afxdp::sizes::{self, RegionNeeds};
use netvale_control::attach::{AttachReply, AttachRequest};
use netvale_mem::layout::{DEFAULT_BUF_SIZE, Layout, PoolSize, RegionSizes};
use netvale_mem::{PortShape, RegionError};

use super::names::find;
use super::open::switch_port_on;
use crate::caller::Caller;
use crate::daemon::Daemon;
use crate::ports::memory::region;
use crate::refusal::Refusal;
use crate::registry::regions::COMMON_REGION;
use crate::rings::guest::GuestPort;
use crate::rings::sizes::PortFacts;

/// Returns the properties of an interface: the actual properties of an open interface, or the properties that the
/// interface would have if it were opened with `request`.
pub(crate) fn of_interface(
    d: &mut Daemon,
    ifname: &str,
    request: &AttachRequest,
    caller: Caller,
) -> Result<PortFacts, Refusal> {
    // As in netmap, a region that does not exist is refused before any other check.
    let named = match request.mem_id {
        0 | COMMON_REGION => None,
        id => Some((*region(d, id, caller)?.layout(), id)),
    };
    if let Some(port) = d.guests.get(ifname) {
        return of_guest(&port);
    }
    let interface = find(ifname)?;
    if let Some(port) = d.interfaces.port_on(ifname) {
        let shape = port.mem.shape();
        let host = port.mem.host_rings();
        let own = port.owner.uid == caller.uid;
        let layout = *port.mem.region().layout();
        let mem_id = port.mem_id;
        let (layout, mem_id) = if own { (layout, mem_id) } else { common(d, &needs(shape, host.0, host.1), caller)? };
        return Ok(PortFacts { shape, host, layout, mem_id });
    }
    if netvale_guest::passthrough::device_of(ifname).is_some() {
        return closed_guest(&interface);
    }
    let host = match switch_port_on(d, ifname) {
        Some(_) => (1, 1),
        None => (request.host_tx_rings.max(1), request.host_rx_rings.max(1)),
    };
    let host_rings =
        PortShape { tx_rings: host.0, rx_rings: host.1, tx_slots: request.tx_slots, rx_slots: request.rx_slots };
    let shape = sizes::shape(interface.queues, host_rings);
    let (layout, mem_id) = match named {
        Some(named) => named,
        None => common(d, &needs(shape, host.0, host.1), caller)?,
    };
    Ok(PortFacts { shape, host, layout, mem_id })
}

/// Returns the layout and number of the region that the caller's interfaces share: the existing region, or the region
/// that the first interface would create.
fn common(d: &Daemon, needs: &RegionNeeds, caller: Caller) -> Result<(Layout, u32), Refusal> {
    let layout = match d.regions.known_common(caller.uid) {
        Some(region) => *region.layout(),
        // If a region has no room for that many rings, opening the interface fails; this function returns the default
        // sizes in that case.
        None => Layout::new(needs.common()).or_else(|_| Layout::new(RegionSizes::COMMON)).map_err(RegionError::from)?,
    };
    Ok((layout, COMMON_REGION))
}

/// Returns the length in bytes of the virtio-net header that precedes each of an interface's frames.
pub(crate) fn header(d: &Daemon, ifname: &str) -> Result<u32, Refusal> {
    match d.guests.get(ifname) {
        Some(port) => Ok(port.hdr_len()),
        None => find(ifname).map(|_| 0),
    }
}

fn needs(shape: PortShape, host_tx: u32, host_rx: u32) -> RegionNeeds {
    RegionNeeds { shape, host: (host_tx, host_rx), used: (shape.tx_rings, shape.rx_rings), buf_size: 0, extra_bufs: 0 }
}

/// Returns the properties of an open ptnet device, from the host's header page.
fn of_guest(port: &GuestPort) -> Result<PortFacts, Refusal> {
    let d = port.described();
    let layout = Layout {
        csb_entries: d.num_rings,
        csb_atok: d.csb_atok,
        csb_ktoa: d.csb_ktoa,
        if_pool: d.if_pool,
        ring_pool: d.ring_pool,
        buf_pool: d.buf_pool,
        total: d.memsize,
        sizes: RegionSizes {
            ifs: PoolSize { num: d.num_ifs, size: d.if_size },
            rings: PoolSize { num: d.num_rings, size: d.ring_size },
            bufs: PoolSize { num: d.num_bufs, size: d.buf_size },
        },
    };
    Ok(PortFacts { shape: shape_of(&d), host: (0, 0), layout, mem_id: d.mem_id })
}

fn shape_of(d: &AttachReply) -> PortShape {
    PortShape { tx_rings: d.tx_rings, rx_rings: d.rx_rings, tx_slots: d.tx_slots, rx_slots: d.rx_slots }
}

/// Returns the properties of a ptnet device that is not open. The device's driver reports the numbers of rings and
/// slots. The device's memory belongs to the host and is not mapped yet, so the layout is computed from these numbers
/// and the default size of buffers.
fn closed_guest(interface: &Interface) -> Result<PortFacts, Refusal> {
    let (tx_slots, rx_slots) = interface.slots().unwrap_or((sizes::SLOTS, sizes::SLOTS));
    let shape = sizes::shape(interface.queues, PortShape { tx_rings: 0, rx_rings: 0, tx_slots, rx_slots });
    let sizes = RegionSizes::for_port(shape.tx_rings + shape.rx_rings, tx_slots.max(rx_slots), DEFAULT_BUF_SIZE, 0, 0);
    let layout = Layout::device(sizes).map_err(RegionError::from)?;
    Ok(PortFacts { shape, host: (0, 0), layout, mem_id: 0 })
}
