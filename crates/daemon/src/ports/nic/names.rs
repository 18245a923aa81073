//! Resolves a specification, such as `netmap:eth0-2/R`, to an interface and its rings.

use std::ops::Range;

use netvale_afxdp::iface::Interface;
use netvale_mem::region::RingRanges;
use netvale_portspec::{Directions, PortSpec, Rings};
use rustix::io::Errno;

use crate::refusal::{Refusal, refuse};

/// Finds the interface of that name in the kernel. netmap's persistent ports have names of the same form, but are not
/// found.
///
/// # Errors
/// [`Refusal`] with `ENXIO` if the interface does not exist.
pub(crate) fn find(ifname: &str) -> Result<Interface, Refusal> {
    Interface::find(ifname).map_err(|_| {
        Refusal::new(Errno::NXIO, format!("interface {ifname} does not exist: 'ip link' shows the interfaces"))
    })
}

/// Number of queue rings and number of host rings that an interface has in one direction.
pub(crate) type RingNumbers = (u32, u32);

/// Returns the rings that a specification names in one direction. As in netmap, a ring number that exists only in the
/// other direction means ring 0.
pub(crate) fn wanted(rings: Rings, (queues, host): RingNumbers, other: RingNumbers) -> Result<Range<u32>, Refusal> {
    let one = |i: u32, own: u32, other: u32, what: &str| match i {
        i if i < own => Ok(i),
        i if i < other => Ok(0),
        i => refuse(Errno::INVAL, format!("{what}ring {i} does not exist: the interface has {own}, numbered from 0")),
    };
    match rings {
        Rings::AllNic => Ok(0..queues),
        Rings::NicAndHost => Ok(0..queues + host),
        Rings::AllHost => Ok(queues..queues + host),
        Rings::OneHost(i) => one(i.get().into(), host, other.1, "host ").map(|i| queues + i).map(|i| i..i + 1),
        Rings::OneNic(i) => one(i.get().into(), queues, other.0, "").map(|i| i..i + 1),
    }
}

/// Returns the rings that a specification names in each direction; for a direction that the specification excludes,
/// returns an empty range.
pub(crate) fn wanted_both(spec: &PortSpec, tx: RingNumbers, rx: RingNumbers) -> Result<RingRanges, Refusal> {
    let bound = |own, other, without| match spec.rings {
        _ if spec.flags.directions == without => Ok(0..0),
        rings => wanted(rings, own, other),
    };
    Ok(RingRanges { tx: bound(tx, rx, Directions::Rx)?, rx: bound(rx, tx, Directions::Tx)? })
}
