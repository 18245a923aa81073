//! Rings between a program and a switch: memory, doorbells, and the ingresses and egresses of the switch.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use netvale_control::attach::{AttachReply, Role};
use netvale_fdio::state::Fd;
use netvale_mem::fault::Fault;
use netvale_mem::host::{HostRx, HostTx};
use netvale_mem::notify::{Doorbell, KickCounts};
use netvale_mem::region::RingSide;
use netvale_mem::{PortMem, PortShape, Region};
use netvale_port::HdrLen;
use netvale_port::ring_in::RingIngress;
use netvale_port::ring_out::RingEgress;
use rustix::io::Errno;

use super::reply::{descriptors, region_reply};
use crate::refusal::Refusal;

/// The two doorbells of a ring, one for each direction.
pub struct RingDoorbells {
    /// Rung by the program to notify the daemon.
    pub doorbell: Arc<Doorbell>,
    /// Rung by the daemon to notify the program.
    pub wake: Doorbell,
}

impl RingDoorbells {
    /// Creates the two eventfds. An eventfd that blocks is reported at `fault`.
    ///
    /// # Errors
    /// [`Refusal`] if the daemon is out of descriptors.
    pub fn new(fault: &Fault) -> Result<RingDoorbells, Refusal> {
        Ok(RingDoorbells { doorbell: Arc::new(Doorbell::shared(fault)?), wake: Doorbell::shared(fault)? })
    }

    /// Restores the two eventfds of a ring.
    ///
    /// # Errors
    /// [`Refusal`] if the descriptors are missing, or are not eventfds.
    pub fn restore(fds: Option<[Fd; 2]>, fault: &Fault) -> Result<RingDoorbells, Refusal> {
        let [doorbell, wake] = fds.ok_or_else(|| Refusal::new(Errno::INVAL, "a ring's doorbells are missing"))?;
        let given = |fd: Fd| -> Result<_, Refusal> { Ok(Doorbell::given(fd.take()?, fault)?) };
        Ok(RingDoorbells { doorbell: Arc::new(given(doorbell)?), wake: given(wake)? })
    }

    /// Duplicates both eventfds for another process.
    ///
    /// # Errors
    /// Fails if the daemon is out of descriptors.
    pub fn save(&self) -> std::io::Result<[Fd; 2]> {
        Ok([Fd::shared(&self.doorbell), Fd::copy_of(&self.wake)?])
    }
}

/// Functions that create the switch's ends of a port's rings: either new ends, or ends that another process saved.
#[derive(Clone, Copy)]
struct SwitchEnds {
    tx: fn(RingSide, Doorbell) -> HostTx,
    rx: fn(RingSide, Doorbell) -> HostRx,
}

impl SwitchEnds {
    /// Creates the switch's end of a tx ring: the statistics, which go to the port's record, and the ingress, which
    /// goes to a worker.
    fn sending(
        self,
        side: &RingSide,
        bells: &RingDoorbells,
        mem: &Arc<PortMem>,
        hdr_len: &HdrLen,
    ) -> Result<(TxStats, RingIngress), Refusal> {
        let host = (self.tx)(side.clone(), bells.wake.try_clone()?);
        let stats = TxStats { kicks: host.kicks(), side: side.clone() };
        let doorbell = bells.doorbell.try_clone()?;
        Ok((stats, RingIngress::new(Arc::clone(mem), host, doorbell, hdr_len.clone(), Arc::default())))
    }

    /// Creates the switch's end of an rx ring.
    fn receiving(
        self,
        side: &RingSide,
        bells: &RingDoorbells,
        mem: &Arc<PortMem>,
        hdr_len: &HdrLen,
    ) -> Result<Arc<RingEgress>, Refusal> {
        let host = (self.rx)(side.clone(), bells.wake.try_clone()?);
        let egress = RingEgress::new(Arc::clone(mem), host, hdr_len.clone(), Arc::default());
        // netmap's virtio-net header cannot describe large UDP frames (USO).
        Ok(Arc::new(egress.without_uso().with_room_bell(Arc::clone(&bells.doorbell))))
    }
}

/// The rings of a port in a region, and the daemon's state for these rings.
pub struct PortRings {
    /// The port's part of the region.
    pub mem: Arc<PortMem>,
    /// Number of the region that contains the rings.
    pub mem_id: u32,
    /// Length of the virtio-net header in bytes.
    pub hdr_len: HdrLen,
    /// Doorbells of the tx rings, then of the rx rings.
    pub bells: Vec<RingDoorbells>,
    /// Statistics of each tx ring.
    pub tx: Vec<TxStats>,
    /// The switch's end of each rx ring.
    pub rx: Vec<Arc<RingEgress>>,
    /// Fault of the programs that hold the rings. It is set, with the reason, if the programs must lose the port.
    pub fault: Fault,
}

/// Statistics of a tx ring. They stay with the port when the ring's ingress is given to a worker.
pub struct TxStats {
    /// Counts of kicks that the daemon sends to the program.
    pub kicks: Arc<KickCounts>,
    /// The ring, from which the daemon reads indices for `netvale show`.
    pub side: RingSide,
}

impl PortRings {
    /// Creates a port's rings in `region`. Returns the rings, and the ingresses of the tx rings, which are for workers.
    ///
    /// # Errors
    /// [`Refusal`] if the region is full or the daemon is out of descriptors.
    pub fn new(
        region: &Arc<Region>,
        mem_id: u32,
        shape: PortShape,
        hdr_len: impl Into<HdrLen>,
        fault: Fault,
    ) -> Result<(PortRings, Vec<RingIngress>), Refusal> {
        PortRings::of(Arc::new(region.port(shape)?), mem_id, hdr_len, fault)
    }

    /// Like [`PortRings::new`], for rings whose memory already exists.
    ///
    /// # Errors
    /// Like [`PortRings::new`].
    pub fn of(
        mem: Arc<PortMem>,
        mem_id: u32,
        hdr_len: impl Into<HdrLen>,
        fault: Fault,
    ) -> Result<(PortRings, Vec<RingIngress>), Refusal> {
        let ends = SwitchEnds { tx: |side, wake| HostTx::new(side, wake), rx: |side, wake| HostRx::new(side, wake) };
        let count = mem.tx.len() + mem.rx.len();
        let bells = (0..count).map(|_| RingDoorbells::new(&fault)).collect::<Result<_, _>>()?;
        PortRings::with(mem, mem_id, hdr_len.into(), fault, bells, ends)
    }

    /// Duplicates the doorbells of all rings for another process.
    ///
    /// # Errors
    /// Fails if the daemon is out of descriptors.
    pub fn bells(&self) -> std::io::Result<Vec<[Fd; 2]>> {
        self.bells.iter().map(RingDoorbells::save).collect()
    }

    /// Restores rings that another process saved; `bells` is the result of [`PortRings::bells`] in that process.
    ///
    /// # Errors
    /// [`Refusal`] if doorbells are missing, or are not eventfds.
    pub fn continued(
        mem: Arc<PortMem>,
        mem_id: u32,
        hdr_len: HdrLen,
        fault: Fault,
        bells: Vec<[Fd; 2]>,
    ) -> Result<(PortRings, Vec<RingIngress>), Refusal> {
        let ends = SwitchEnds {
            tx: |side, wake| HostTx::continued(side, wake),
            rx: |side, wake| HostRx::continued(side, wake),
        };
        let mut given = bells.into_iter();
        let count = mem.tx.len() + mem.rx.len();
        let bells = (0..count).map(|_| RingDoorbells::restore(given.next(), &fault));
        let bells = bells.collect::<Result<_, _>>()?;
        PortRings::with(mem, mem_id, hdr_len, fault, bells, ends)
    }

    fn with(
        mem: Arc<PortMem>,
        mem_id: u32,
        hdr_len: HdrLen,
        fault: Fault,
        bells: Vec<RingDoorbells>,
        ends: SwitchEnds,
    ) -> Result<(PortRings, Vec<RingIngress>), Refusal> {
        let region = Arc::clone(mem.region());
        // Creating the ends accesses the user's memory, which may block; `touch` bounds the wait.
        region.touch(move || {
            let (of_tx, of_rx) = bells.split_at(mem.tx.len());
            let tx = mem.tx.iter().zip(of_tx).map(|(side, bells)| ends.sending(side, bells, &mem, &hdr_len));
            let (tx, ingresses) = tx.collect::<Result<Vec<_>, Refusal>>()?.into_iter().unzip();
            let rx = mem.rx.iter().zip(of_rx).map(|(side, bells)| ends.receiving(side, bells, &mem, &hdr_len));
            let rx = rx.collect::<Result<_, Refusal>>()?;
            Ok((PortRings { mem, mem_id, hdr_len, bells, tx, rx, fault }, ingresses))
        })?
    }

    /// Returns the reply to a client that is bound to these rings, and the descriptors to send with it.
    ///
    /// # Errors
    /// [`Refusal`] if the daemon is out of descriptors.
    pub fn reply(
        &self,
        nifp: u64,
        extra_bufs: u32,
        tx: Range<u32>,
        rx: Range<u32>,
    ) -> Result<(AttachReply, Vec<OwnedFd>), Refusal> {
        let n_tx = self.mem.shape().tx_rings;
        let bound = tx.clone().chain(rx.clone().map(|i| n_tx + i));
        let bells = bound.filter_map(|i| self.bells.get(i as usize)).map(|b| (&*b.doorbell, &b.wake));
        let fds = descriptors(self.mem.region(), bells)?;
        let reply = AttachReply {
            role: Role::Switch,
            nifp,
            csb_first: self.mem.csb_first(),
            extra_bufs,
            hdr_len: self.hdr_len.get(),
            mem_id: self.mem_id,
            tx_bound: tx,
            rx_bound: rx,
            host_tx_rings: self.mem.host_rings().0,
            host_rx_rings: self.mem.host_rings().1,
            ..region_reply(&self.mem)
        };
        Ok((reply, fds))
    }
}
