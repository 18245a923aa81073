//! The rings of a virtual machine's own ptnet device, for a daemon inside the machine. Programs open these rings as
//! `netmap:IF`.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use netvale_control::attach::AttachReply;
use netvale_control::types::{Owner, PortInfo, PortKind, PortState, RegionInfo};
use netvale_guest::passthrough::Passthrough;
use netvale_mem::region::RingRanges;

use super::holders::Holders;
use crate::caller::Caller;
use crate::refusal::Refusal;

/// A ptnet device with open rings. Programs share the device as they share a port in netmap.
pub struct GuestPort {
    name: String,
    device: Passthrough,
    hdr_len: u32,
    owner: Caller,
    /// Holders of each ring, tx rings first.
    held: Mutex<Vec<Holders>>,
}

impl GuestPort {
    /// Creates a device without holders.
    pub fn new(name: String, device: Passthrough, hdr_len: u32, owner: Caller) -> GuestPort {
        let described = AttachReply::of_device(device.header());
        let held = vec![Holders::default(); (described.tx_rings + described.rx_rings) as usize];
        GuestPort { name, device, hdr_len, owner, held: Mutex::new(held) }
    }

    /// Returns the user and process that opened the device first.
    pub fn owner(&self) -> Caller {
        self.owner
    }

    /// Adds a connection to the holders of rings. When the result is dropped, the connection is removed again. Returns
    /// `None` if one of the rings may not be shared: it has an exclusive holder, or it has a holder and the connection
    /// wants it exclusively.
    pub fn hold(
        self: Arc<Self>,
        RingRanges { tx, rx }: RingRanges,
        client: u64,
        shares: bool,
        alone: bool,
    ) -> Option<HeldRings> {
        let first_rx = self.described().tx_rings;
        let rings = tx.clone().chain(rx.clone().map(|i| first_rx + i));
        self.take(rings, client, shares).then(|| HeldRings { port: self, tx, rx, client, alone })
    }

    fn holders(&self) -> MutexGuard<'_, Vec<Holders>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection to the holders of rings. Returns false, and changes nothing, if one of the rings does not
    /// admit the connection.
    fn take(&self, rings: impl Iterator<Item = u32> + Clone, client: u64, shares: bool) -> bool {
        let mut held = self.holders();
        let free = rings.clone().all(|ring| held.get(ring as usize).is_some_and(|holders| holders.admits(shares)));
        if free {
            for ring in rings {
                if let Some(holders) = held.get_mut(ring as usize) {
                    holders.add(client, shares);
                }
            }
        }
        free
    }
}

/// The rings of a device that one program holds.
pub struct HeldRings {
    port: Arc<GuestPort>,
    tx: Range<u32>,
    rx: Range<u32>,
    client: u64,
    /// Whether no other program had opened the device when this program opened it.
    alone: bool,
}

impl Drop for HeldRings {
    fn drop(&mut self) {
        self.port.holders().iter_mut().for_each(|holders| holders.remove(self.client));
    }
}

impl HeldRings {
    /// Returns the reply to the client, and the descriptors to send with it.
    ///
    /// # Errors
    /// [`Refusal`] if the daemon is out of descriptors.
    pub fn reply(&self) -> Result<(AttachReply, Vec<OwnedFd>), Refusal> {
        let device = &self.port.device;
        let described = AttachReply::of_device(device.header());
        let mut fds = vec![device.memory().try_clone_to_owned()?];
        for ring in self.tx.clone().chain(self.rx.clone().map(|i| described.tx_rings + i)) {
            let bell = device.bell(ring).ok_or_else(|| Refusal::internal("a ring without a doorbell"))?;
            fds.extend([bell.try_clone_to_owned()?, bell.try_clone_to_owned()?]);
        }
        let tx_bound = self.tx.clone();
        let rx_bound = self.rx.clone();
        Ok((AttachReply { tx_bound, rx_bound, hdr_len: self.port.hdr_len, alone: self.alone, ..described }, fds))
    }
}

impl GuestPort {
    /// Returns the description of the device's memory and rings, from the host's header page.
    pub fn described(&self) -> AttachReply {
        AttachReply::of_device(self.device.header())
    }

    /// Returns the length in bytes of the virtio-net header that precedes each frame.
    pub fn hdr_len(&self) -> u32 {
        self.hdr_len
    }

    /// Describes the rings for `netvale show`.
    pub fn info(&self) -> PortInfo {
        let described = self.described();
        PortInfo {
            name: self.name.clone(),
            kind: PortKind::Nic,
            state: PortState::Open,
            owner: Some(Owner { uid: self.owner.uid, pid: self.owner.pid }),
            region: Some(RegionInfo {
                id: 0,
                bytes: described.memsize,
                buf_size: described.buf_size,
                bufs: described.num_bufs,
                huge: false,
            }),
            vnet_hdr: self.hdr_len,
            notes: vec![
                "rings of this virtual machine's ptnet device; the host's switch counts their frames".to_owned(),
            ],
            ..PortInfo::default()
        }
    }
}
