//! In a virtual machine: its ptnet device's rings, opened by programs as `netmap:IF`.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use netvale_control::attach::{AttachReply, AttachRequest, FLAG_SHARED};
use netvale_control::types::{Owner, PortInfo, PortKind, PortState, RegionInfo};
use netvale_guest::passed::{Passed, PassedError};
use netvale_portspec::{Directions, PortSpec, Rings};
use rustix::io::Errno;

use crate::holders::Holders;
use crate::nics::wanted;
use crate::open::{Attachment, Opened, refuse};
use crate::refusal::Refusal;
use crate::state::{Caller, State};

impl From<PassedError> for Refusal {
    fn from(e: PassedError) -> Self {
        Refusal::new(e.errno(), e.to_string())
    }
}

/// A device whose rings programs have. They share it, as they share a port in netmap.
pub struct PassedPort {
    name: String,
    device: Passed,
    hdr_len: u32,
    owner: Caller,
    /// Which connections hold each ring, tx rings first.
    held: Mutex<Vec<Holders>>,
}

impl PassedPort {
    fn holders(&self) -> MutexGuard<'_, Vec<Holders>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a connection have rings. Returns whether it has them: not if somebody has who does not share.
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

/// What one program has of it.
pub struct Held {
    port: Arc<PassedPort>,
    tx: Range<u32>,
    rx: Range<u32>,
    client: u64,
    /// Nobody else had it open when this one came.
    alone: bool,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.port.holders().iter_mut().for_each(|holders| holders.remove(self.client));
    }
}

impl Held {
    /// What its client is told, and the descriptors that go with it.
    ///
    /// # Errors
    /// [`Refusal`] when the daemon is out of descriptors.
    pub fn reply(&self) -> Result<(AttachReply, Vec<OwnedFd>), Refusal> {
        let device = &self.port.device;
        let described = AttachReply::of_device(device.header());
        let mut fds = vec![device.memory().try_clone_to_owned()?];
        for ring in self.tx.clone().chain(self.rx.clone().map(|i| described.tx_rings + i)) {
            let bell = device.bell(ring).ok_or_else(|| Refusal::internal("a ring without a bell"))?;
            fds.extend([bell.try_clone_to_owned()?, bell.try_clone_to_owned()?]);
        }
        let (tx_bound, rx_bound) = (self.tx.clone(), self.rx.clone());
        Ok((AttachReply { tx_bound, rx_bound, hdr_len: self.port.hdr_len, alone: self.alone, ..described }, fds))
    }
}

impl PassedPort {
    /// What the host says of it.
    pub fn described(&self) -> AttachReply {
        AttachReply::of_device(self.device.header())
    }

    /// Bytes of virtio-net header before each frame.
    pub fn hdr_len(&self) -> u32 {
        self.hdr_len
    }

    /// As `netvale show` tells it.
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
                "rings of this virtual machine's ptnet device: the host's switch has their counters".to_owned(),
            ],
            ..PortInfo::default()
        }
    }
}

impl State {
    /// Opens a ptnet device of the virtual machine that this daemon runs in.
    pub(crate) fn open_passed(
        &mut self,
        request: &AttachRequest,
        spec: &PortSpec,
        (ifname, device): (&str, &Path),
        caller: Caller,
    ) -> Result<Opened, Refusal> {
        self.may_take(ifname, caller)?;
        if spec.flags.monitor.is_some() {
            return refuse(Errno::OPNOTSUPP, "interfaces have no monitors: watch the port on the host's switch");
        }
        let known = self.passed.get(ifname).and_then(Weak::upgrade);
        let alone = known.is_none();
        let port = match known {
            Some(port) => port,
            None => {
                let device = Passed::open(device, request.hdr_len, request.extra_bufs)?;
                let name = format!("netmap:{ifname}");
                let (described, hdr_len) = (AttachReply::of_device(device.header()), request.hdr_len);
                let rings = (described.tx_rings + described.rx_rings) as usize;
                let held = Mutex::new(vec![Holders::default(); rings]);
                let port = Arc::new(PassedPort { name, device, hdr_len, owner: caller, held });
                self.passed.insert(ifname.to_owned(), Arc::downgrade(&port));
                port
            }
        };
        let described = AttachReply::of_device(port.device.header());
        if matches!(spec.rings, Rings::AllHost | Rings::NicAndHost | Rings::OneHost(_)) {
            return refuse(Errno::INVAL, "a ptnet device has no host rings");
        }
        let bound = |own: u32, other: u32, without: Directions| match spec.rings {
            _ if spec.flags.directions == without => Ok(0..0),
            which => wanted(which, (own, 0), (other, 0)),
        };
        let (tx_rings, rx_rings) = (described.tx_rings, described.rx_rings);
        let (tx, rx) = (bound(tx_rings, rx_rings, Directions::Rx)?, bound(rx_rings, tx_rings, Directions::Tx)?);
        let rings = tx.clone().chain(rx.clone().map(|i| described.tx_rings + i));
        if !port.take(rings, caller.client, request.flags & FLAG_SHARED != 0) {
            return refuse(
                Errno::BUSY,
                format!("rings of {ifname} are open already, and not to be shared: close them first"),
            );
        }
        let held = Held { port, tx, rx, client: caller.client, alone };
        let (reply, fds) = held.reply()?;
        tracing::info!(interface = ifname, uid = caller.uid, pid = caller.pid, "opened");
        Ok((reply, fds, Attachment::Passed(held)))
    }
}
