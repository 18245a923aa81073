//! Interfaces that a privileged program itself opens, without a daemon.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use netvale_afxdp::Nic;
use netvale_afxdp::iface::Interface;
use netvale_afxdp::nic::{NicQueue, SendClaim};
use netvale_afxdp::sizes::{self, RegionNeeds};
use netvale_afxdp::socket::{BufferLayout, XdpSocket};
use netvale_control::attach::{AttachReply, Role};
use netvale_guest::passthrough::device_of;
use netvale_mem::mapping::PageKind;
use netvale_mem::notify::Doorbell;
use netvale_mem::region::{Binding, RingRanges, RingSide};
use netvale_mem::{Mapping, PortMem, PortShape, Region};
use netvale_portspec::{Base, Directions, PortSpec, Rings};

use crate::error::Error;
use crate::port::{Options, Port};
use crate::ring::{RxRing, TxRing};
use crate::{guest, nics};

/// The region that this program's interfaces share (number 1), and the region number that was assigned last.
static SHARED: Mutex<(Weak<Region>, u32)> = Mutex::new((Weak::new(), COMMON_REGION));
/// Number of the shared region, as in netmap.
const COMMON_REGION: u32 = 1;

/// Returns whether a program can open the port without a daemon: the port must be an interface, without host rings,
/// pipe or monitor.
pub(crate) fn is_possible(spec: &PortSpec) -> bool {
    matches!(spec.name.base(), Base::Netmap { .. })
        && spec.name.pipe().is_none()
        && matches!(spec.rings, Rings::AllNic | Rings::OneNic(_))
        && spec.flags.monitor.is_none()
}

/// Returns the specification with its name resolved as a daemon would resolve it: by the interfaces that exist on this
/// host.
pub(crate) fn meant(spec: PortSpec) -> PortSpec {
    let exists = |ifname: &str| Interface::find(ifname).is_ok() || device_of(ifname).is_some();
    spec.settled(|whole| matches!(whole.base(), Base::Netmap { ifname } if exists(ifname.as_str())))
}

/// Opens the interface.
///
/// # Errors
/// [`Error::Nic`], [`Error::Region`] or [`Error::System`] if a step fails.
pub(crate) fn open(spec: &PortSpec, options: &Options) -> Result<Port, Error> {
    let Base::Netmap { ifname } = spec.name.base() else { return Err(Error::Inconsistent("not an interface")) };
    if let Some(device) = device_of(ifname.as_str()) {
        return guest::open_passthrough(spec, &device, options);
    }
    let nic = Nic::open(ifname.as_str())?;
    let queues = nic.interface().queues;
    let (which, rings) = ranges(spec, queues);
    let RingRanges { tx, rx } = &rings;
    let host = PortShape {
        tx_rings: 0,
        rx_rings: 0,
        tx_slots: spec.conf.tx_slots.max(options.slots),
        rx_slots: spec.conf.rx_slots.max(options.slots),
    };
    let shape = sizes::shape(queues, host);
    let used = (tx.len() as u32, rx.len() as u32);
    let needs = RegionNeeds { shape, host: (0, 0), used, buf_size: options.buf_size, extra_bufs: options.extra_bufs };
    let (region, mem_id) = region(&needs)?;
    let mem = Arc::new(region.port_in_part(shape, 0, 0, &rings)?);
    let binding = mem.bind(&spec.name.to_string(), tx.clone(), rx.clone(), options.extra_bufs)?;
    let mut port = PortOpening {
        reply: reply(&nic, &mem, &binding, mem_id, &rings),
        map: Arc::clone(region.mapping()),
        sockets: Vec::new(),
        sending: Vec::new(),
        tx: Vec::new(),
        rx: Vec::new(),
    };
    for queue in which {
        port.queue(&nic, queue, &mem, &rings)?;
    }
    let PortOpening { reply, map, sockets, sending, mut tx, mut rx } = port;
    nics::bind(&reply, ifname.as_str(), &mut tx, &mut rx)?;
    Ok(Port::new(
        spec.name.to_string(),
        None,
        reply,
        map,
        tx,
        rx,
        Some(Arc::new(Mutex::new((sending, sockets, binding, mem)))),
    ))
}

/// Returns the range of queues that must be opened, and the ranges of the tx and rx rings that the specification
/// requests for these queues.
fn ranges(spec: &PortSpec, queues: u32) -> (Range<u32>, RingRanges) {
    let which = match spec.rings {
        Rings::OneNic(i) => u32::from(i.get())..u32::from(i.get()) + 1,
        _ => 0..queues,
    };
    let bound = |other: Directions| if spec.flags.directions == other { 0..0 } else { which.clone() };
    let rings = RingRanges { tx: bound(Directions::Rx), rx: bound(Directions::Tx) };
    (which, rings)
}

/// Returns the reply that a daemon would send.
fn reply(nic: &Nic, mem: &PortMem, binding: &Binding, mem_id: u32, rings: &RingRanges) -> AttachReply {
    let layout = mem.region().layout();
    let shape = mem.shape();
    let bufs = layout.sizes.bufs;
    AttachReply {
        role: Role::Switch,
        memsize: layout.total,
        nifp: binding.nifp(),
        csb_first: mem.csb_first(),
        buf_pool: layout.buf_pool,
        num_bufs: bufs.num,
        buf_size: bufs.size,
        tx_rings: shape.tx_rings,
        rx_rings: shape.rx_rings,
        tx_slots: shape.tx_slots,
        rx_slots: shape.rx_slots,
        extra_bufs: binding.extra_bufs(),
        mem_id,
        tx_bound: rings.tx.clone(),
        rx_bound: rings.rx.clone(),
        nic_entries: sizes::entries(shape),
        nic_ifindex: nic.interface().index,
        nic_mtu: nic.interface().mtu,
        alone: true,
        ..AttachReply::default()
    }
}

/// Returns a region and its number: the region that this program's interfaces share if that region has room, otherwise
/// a new region.
fn region(needs: &RegionNeeds) -> Result<(Arc<Region>, u32), Error> {
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if needs.is_usual() {
        let common = match shared.0.upgrade() {
            Some(common) => common,
            None => Region::shared("netvale-direct", needs.common(), PageKind::Ordinary)?,
        };
        if needs.fit(&common) {
            shared.0 = Arc::downgrade(&common);
            return Ok((common, COMMON_REGION));
        }
    }
    let region = Region::shared("netvale-direct", needs.region(), PageKind::Ordinary)?;
    shared.1 = shared.1.checked_add(1).unwrap_or(COMMON_REGION + 1);
    Ok((region, shared.1))
}

/// The parts of a port that is being opened.
struct PortOpening {
    reply: AttachReply,
    map: Arc<Mapping>,
    sockets: Vec<(Arc<XdpSocket>, Arc<NicQueue>)>,
    sending: Vec<SendClaim>,
    tx: Vec<TxRing>,
    rx: Vec<RxRing>,
}

impl PortOpening {
    /// Opens a queue and creates its rings in the bound directions.
    fn queue(&mut self, nic: &Arc<Nic>, queue: u32, mem: &PortMem, rings: &RingRanges) -> Result<(), Error> {
        let buffers =
            BufferLayout { first: self.reply.buf_pool, stride: self.reply.buf_size, count: self.reply.num_bufs };
        let opened = nic.queue(queue, self.reply.nic_entries, &self.map, buffers)?;
        if rings.rx.contains(&queue) {
            opened.receive()?;
        }
        let copy = || -> Result<Doorbell, Error> {
            let copy = rustix::io::fcntl_dupfd_cloexec(&*opened.socket, 0).map_err(Error::system("copy a socket"))?;
            Ok(Doorbell::from_fd(copy))
        };
        let side = |sides: &[RingSide]| sides.get(queue as usize).cloned();
        if let Some(side) = side(&mem.tx).filter(|_| rings.tx.contains(&queue)) {
            self.sending.push(nic.send_on(queue)?);
            self.tx.push(nics::tx(&self.reply, &self.map, side, copy()?)?);
        }
        if let Some(side) = side(&mem.rx).filter(|_| rings.rx.contains(&queue)) {
            self.rx.push(nics::rx(&self.reply, &self.map, side, copy()?, copy()?)?);
        }
        self.sockets.push((opened.socket, opened.queue));
        Ok(())
    }
}
