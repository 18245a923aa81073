//! Creates and finds the regions of ports.

use std::num::NonZeroU16;
use std::sync::Arc;

use netvale_afxdp::iface::Interface;
use netvale_mem::mapping::PageKind;
use netvale_mem::{Region, RegionSizes};
use netvale_portspec::Memory;
use rustix::io::Errno;

use crate::caller::Caller;
use crate::daemon::{Daemon, DaemonPort};
use crate::permission;
use crate::refusal::{Refusal, refuse};
use crate::registry::regions::COMMON_REGION;
use crate::rings::sizes::Sizes;

/// A region and its number.
pub type NumberedRegion = (Arc<Region>, u32);

/// Creates a region for the caller.
///
/// # Errors
/// [`Refusal`] if the sizes are impossible or exceed the caller's quota, or the daemon is out of memory.
pub fn make(d: &mut Daemon, sizes: RegionSizes, pages: PageKind, caller: Caller) -> Result<NumberedRegion, Refusal> {
    permission::may_have_memory(d, caller, sizes)?;
    let id = new_number(d)?;
    Ok(d.regions.make(id, sizes, pages, caller.uid)?)
}

/// Allocates a region number.
///
/// # Errors
/// [`Refusal`] with `ENOSPC` if all numbers are in use.
pub fn new_number(d: &mut Daemon) -> Result<u32, Refusal> {
    let none = || Refusal::new(Errno::NOSPC, "no region numbers are left; close some ports");
    d.regions.new_id(|id| d.pipes.uses(id)).ok_or_else(none)
}

/// Returns the region that the caller's interfaces share, and creates it with `sizes` if it does not exist.
///
/// # Errors
/// As [`make`].
pub fn common(d: &mut Daemon, sizes: RegionSizes, caller: Caller) -> Result<Arc<Region>, Refusal> {
    if let Some(region) = d.regions.known_common(caller.uid) {
        return Ok(region);
    }
    permission::may_have_memory(d, caller, sizes)?;
    Ok(d.regions.common(caller.uid, sizes)?)
}

/// Returns region number `id`, if the caller may use it.
///
/// # Errors
/// [`Refusal`] with `EINVAL` if the region does not exist, or with `EACCES` if it belongs to another user.
pub fn region(d: &mut Daemon, id: u32, caller: Caller) -> Result<Arc<Region>, Refusal> {
    if id == COMMON_REGION {
        return common(d, RegionSizes::COMMON, caller);
    }
    let none = || {
        Refusal::new(
            Errno::INVAL,
            format!("memory region {id} does not exist: 'netvale show PORT' prints a port's region"),
        )
    };
    let entry = d.regions.get(id).ok_or_else(none)?;
    permission::may_use_region(entry, caller)?;
    entry.region().ok_or_else(none)
}

/// Returns region number `id`, or a new region of the given sizes if `id` is 0.
///
/// # Errors
/// Like [`region`]; fails as well if the daemon is out of memory.
pub fn region_or_new(d: &mut Daemon, id: u32, sizes: &Sizes, caller: Caller) -> Result<NumberedRegion, Refusal> {
    match id {
        0 => make(d, sizes.region(), PageKind::Ordinary, caller),
        id => Ok((region(d, id, caller)?, id)),
    }
}

/// Returns the region for a new port: the region in its specification, or a new region of the given sizes.
///
/// # Errors
/// Like [`region`]; fails as well if the daemon is out of memory.
pub fn region_for(
    d: &mut Daemon,
    memory: &Memory,
    sizes: &Sizes,
    huge: bool,
    caller: Caller,
) -> Result<NumberedRegion, Refusal> {
    match memory {
        Memory::Auto => {
            let pages = if huge { PageKind::PreferHuge } else { PageKind::Ordinary };
            make(d, sizes.region(), pages, caller)
        }
        other => region_named(d, other, caller),
    }
}

/// Returns the region that a specification names, by number or by a port.
///
/// # Errors
/// Like [`region`]; fails as well if the named port does not exist.
pub fn region_named(d: &mut Daemon, memory: &Memory, caller: Caller) -> Result<NumberedRegion, Refusal> {
    match memory {
        Memory::Auto => refuse(Errno::INVAL, "missing memory region"),
        Memory::Id(id) => Ok((region(d, u32::from(id.get()), caller)?, u32::from(id.get()))),
        Memory::SharedWith(name) => {
            let id = region_of(d, &name.to_string()).ok_or_else(|| {
                Refusal::new(
                    Errno::NXIO,
                    format!(
                        "port {name}, whose memory is to be shared, does not exist: 'netvale list' shows the ports"
                    ),
                )
            })?;
            Ok((region(d, id, caller)?, id))
        }
        Memory::External(_) => {
            refuse(Errno::OPNOTSUPP, "memory provided by the client (@extmem) is not supported here; omit the option")
        }
    }
}

/// Whether region number `id` has a port, a pipe or open rings. If it has none of these, a worker may nevertheless
/// still use the memory for a moment.
pub fn is_used(d: &Daemon, id: u32) -> bool {
    let of_ports = d.ports.iter().any(|(_, record)| record.rings().is_some_and(|rings| rings.mem_id == id));
    of_ports || d.pipes.uses(id) || d.interfaces.ports().any(|(_, port)| port.mem_id == id) || d.regions.has_bare(id)
}

/// Returns the region of a restored port.
///
/// # Errors
/// [`Refusal`] if the region does not exist.
pub fn continued(d: &Daemon, id: u32, owner: Caller) -> Result<Arc<Region>, Refusal> {
    let none = || Refusal::new(Errno::INVAL, format!("the saved region {id} is missing"));
    d.regions.find(id, owner.uid).ok_or_else(none)
}

/// Returns the memory that a request names by number, or returns `otherwise` if the number is 0 or exceeds 65535.
pub fn by_number(mem_id: u32, otherwise: Memory) -> Memory {
    u16::try_from(mem_id).ok().and_then(NonZeroU16::new).map_or(otherwise, Memory::Id)
}

/// Returns the number of the region of a port, a pipe or an interface; `None` if it has no region.
pub fn region_of(d: &Daemon, name: &str) -> Option<u32> {
    match d.ports.get(d.persistent.place_of(name)).and_then(DaemonPort::rings) {
        Some(rings) => Some(rings.mem_id),
        None => d.pipes.with_end(name).map(|pipe| pipe.mem_id).or_else(|| region_of_interface(d, name)),
    }
}

/// Returns the number of the region that an interface and its pipes use, or would use if the interface were opened.
fn region_of_interface(d: &Daemon, name: &str) -> Option<u32> {
    let ifname = name.strip_prefix("netmap:").filter(|ifname| !d.persistent.contains(ifname))?;
    match d.interfaces.port_on(ifname) {
        Some(port) => Some(port.mem_id),
        None => Interface::find(ifname).ok().map(|_| COMMON_REGION),
    }
}
