//! A ptnet device of this virtual machine, opened by the program itself, where no daemon runs.

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use netvale_control::attach::AttachReply;
use netvale_mem::Mapping;
use netvale_mem::notify::Doorbell;
use netvale_nic::passed::Passed;
use netvale_portspec::{Directions, PortSpec, Rings};

use crate::connect::rings;
use crate::error::Error;
use crate::port::{Options, Port};

/// Opens the device.
///
/// # Errors
/// [`Error::Passed`], [`Error::System`]; [`Error::Inconsistent`] when the host says what cannot be.
pub(crate) fn open(spec: &PortSpec, device: &Path, options: &Options) -> Result<Port, Error> {
    let passed = Passed::open(device, options.hdr_len, options.extra_bufs)?;
    let reply = AttachReply::of_device(passed.header());
    let bound = |rings: u32, other: Directions| match spec.rings {
        _ if spec.flags.directions == other => 0..0,
        Rings::OneNic(i) if u32::from(i.get()) < rings => u32::from(i.get())..u32::from(i.get()) + 1,
        Rings::OneNic(_) => 0..0,
        _ => 0..rings,
    };
    let (tx, rx) = (bound(reply.tx_rings, Directions::Rx), bound(reply.rx_rings, Directions::Tx));
    let reply = AttachReply { tx_bound: tx, rx_bound: rx, hdr_len: options.hdr_len, alone: true, ..reply };
    let len = usize::try_from(reply.memsize).map_err(|_| Error::Inconsistent("memory too large for this machine"))?;
    let map = Arc::new(Mapping::of_device(passed.memory(), len).map_err(Error::system("map the device's memory"))?);
    let which = reply.tx_bound.clone().chain(reply.rx_bound.clone().map(|i| reply.tx_rings + i));
    let mut bells = Vec::new();
    for ring in which {
        let bell = passed.bell(ring).ok_or(Error::Inconsistent("a ring without a bell"))?;
        for _ in 0..2 {
            let copy = rustix::io::fcntl_dupfd_cloexec(bell.as_fd(), 0).map_err(Error::system("copy a bell"))?;
            bells.push(Doorbell::from_fd(copy));
        }
    }
    let (mut tx, mut rx) = rings(&reply, &map, &mut bells.into_iter())?;
    tx.iter_mut().for_each(crate::ring::TxRing::resume);
    rx.iter_mut().for_each(crate::ring::RxRing::resume);
    Ok(Port::direct(spec.name.to_string(), (reply, map), (tx, rx), Arc::new(passed)))
}
