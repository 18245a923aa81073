//! The part of a reply that describes a port's memory, and the descriptors of that memory.

use std::os::fd::{AsFd, OwnedFd};

use netvale_control::attach::{AttachReply, IN_FILE};
use netvale_mem::notify::Doorbell;
use netvale_mem::{PortMem, Region};

use crate::refusal::Refusal;

/// Duplicates the region's descriptors for a client, followed by two descriptors for each ring: the doorbell that the
/// client rings, and the doorbell that wakes the client.
///
/// # Errors
/// [`Refusal`] if the daemon is out of descriptors.
pub fn descriptors<'a>(
    region: &Region,
    bells: impl Iterator<Item = (&'a Doorbell, &'a Doorbell)>,
) -> Result<Vec<OwnedFd>, Refusal> {
    let mut fds = region_descriptors(region)?;
    for (doorbell, wake) in bells {
        fds.push(doorbell.as_fd().try_clone_to_owned()?);
        fds.push(wake.as_fd().try_clone_to_owned()?);
    }
    Ok(fds)
}

/// Duplicates the descriptors that a client maps: the region's memfd, or a user's file and the memfd with the region's
/// CSB arrays.
///
/// # Errors
/// [`Refusal`] if the daemon is out of descriptors.
pub fn region_descriptors(region: &Region) -> Result<Vec<OwnedFd>, Refusal> {
    let memory = region.fd().ok_or_else(|| Refusal::internal("a region without a memfd"))?;
    let mut fds = vec![memory.try_clone_to_owned()?];
    if let Some((_, csb)) = region.apart() {
        fds.push(csb.try_clone_to_owned()?);
    }
    Ok(fds)
}

/// Returns the part of a reply that depends on the port's memory.
pub fn region_reply(mem: &PortMem) -> AttachReply {
    let layout = mem.region().layout();
    let shape = mem.shape();
    let (port_flags, file_offset) = mem.region().apart().map_or((0, 0), |(offset, _)| (IN_FILE, offset));
    AttachReply {
        port_flags,
        file_offset,
        memsize: layout.total,
        if_pool: layout.if_pool,
        if_size: layout.sizes.ifs.size,
        num_ifs: layout.sizes.ifs.num,
        num_rings: layout.sizes.rings.num,
        csb_atok: layout.csb_atok,
        csb_ktoa: layout.csb_ktoa,
        ring_pool: layout.ring_pool,
        ring_size: layout.sizes.rings.size,
        buf_pool: layout.buf_pool,
        num_bufs: layout.sizes.bufs.num,
        buf_size: layout.sizes.bufs.size,
        tx_rings: shape.tx_rings,
        rx_rings: shape.rx_rings,
        tx_slots: shape.tx_slots,
        rx_slots: shape.rx_slots,
        ..AttachReply::default()
    }
}
