//! What netmap's control requests are told of network interfaces, open or not. To ask takes no privilege.

use std::sync::Weak;

use netvale_afxdp::iface::Interface;
use netvale_afxdp::sizes::{self, Needs};
use netvale_control::attach::{AttachReply, AttachRequest};
use netvale_mem::layout::{DEFAULT_BUF_SIZE, Layout, PoolSize, RegionSizes};
use netvale_mem::{PortShape, RegionError};
use rustix::io::Errno;

use crate::devices::Device;
use crate::netmap::Facts;
use crate::open::refuse;
use crate::passed::PassedPort;
use crate::refusal::Refusal;
use crate::state::{COMMON_REGION, Caller, Kind, PortRecord, State};

/// The interface of that name, which the kernel knows; persistent ports are none.
///
/// # Errors
/// [`Refusal`] with `ENXIO` where there is none.
pub(crate) fn find(ifname: &str) -> Result<Interface, Refusal> {
    Interface::find(ifname)
        .map_err(|_| Refusal::new(Errno::NXIO, format!("there is no interface {ifname}: 'ip link' shows them")))
}

impl PortRecord {
    /// The interface that is this port of a switch.
    pub(crate) fn interface(&self) -> Option<&Interface> {
        self.device().and_then(|device| device.nic.as_ref()).map(|nic| nic.interface())
    }

    /// The device that is this port.
    pub(crate) fn device(&self) -> Option<&Device> {
        match &self.kind {
            Kind::Device(device) => Some(device),
            _ => None,
        }
    }

    /// How many queues stand behind a port that netmap has a bridge wrapper around: an interface's, a persistent port's on its second switch.
    pub(crate) fn wrapped(&self) -> Option<u32> {
        let joined = self.joined().map(|_| self.egress.len() as u32);
        self.interface().map(|interface| interface.queues).or(joined)
    }
}

impl State {
    /// What an interface is, or would be if it were opened with `request`.
    pub(crate) fn interface_facts(
        &mut self,
        ifname: &str,
        request: &AttachRequest,
        caller: Caller,
    ) -> Result<Facts, Refusal> {
        // Whatever becomes of it: a region that is not there is refused first.
        let named = match request.mem_id {
            0 | COMMON_REGION => None,
            id => Some((*self.region(id, caller.uid)?.layout(), id)),
        };
        if let Some(port) = self.passed.get(ifname).and_then(Weak::upgrade) {
            return passed_facts(&port);
        }
        let interface = find(ifname)?;
        if let Some(port) = self.nics.port_on(ifname) {
            let (shape, host, own) = (port.mem.shape(), port.mem.host_rings(), port.owner.uid == caller.uid);
            let (layout, mem_id) = (*port.mem.region().layout(), port.mem_id);
            let (layout, mem_id) = if own { (layout, mem_id) } else { self.common_facts(&needs(shape, host), caller)? };
            return Ok(Facts { shape, host, layout, mem_id });
        }
        if netvale_guest::passed::device_of(ifname).is_some() {
            return closed_passed_facts(&interface);
        }
        let host = match self.switch_port_on(ifname) {
            Some(_) => (1, 1),
            None => (request.host_tx_rings.max(1), request.host_rx_rings.max(1)),
        };
        let shape = sizes::shape(interface.queues, host, (request.tx_slots, request.rx_slots));
        let (layout, mem_id) = match named {
            Some(named) => named,
            None => self.common_facts(&needs(shape, host), caller)?,
        };
        Ok(Facts { shape, host, layout, mem_id })
    }

    /// The region that the caller's interfaces share, as it is, or as it would be made for the first of them.
    fn common_facts(&self, needs: &Needs, caller: Caller) -> Result<(Layout, u32), Refusal> {
        let layout = match self.known_common_region(caller.uid) {
            Some(region) => *region.layout(),
            // More rings than any region holds are refused when they are opened.
            None => {
                Layout::new(needs.common()).or_else(|_| Layout::new(RegionSizes::COMMON)).map_err(RegionError::from)?
            }
        };
        Ok((layout, COMMON_REGION))
    }

    /// Number of the region that an interface lies in, open or not: its pipes do so, too.
    pub(crate) fn region_of_interface(&self, name: &str) -> Option<u32> {
        let ifname = name.strip_prefix("netmap:").filter(|ifname| !self.newifs.contains_key(*ifname))?;
        match self.nics.port_on(ifname) {
            Some(port) => Some(port.mem_id),
            None => Interface::find(ifname).ok().map(|_| COMMON_REGION),
        }
    }

    /// Bytes of virtio-net header before an interface's frames.
    pub(crate) fn interface_header(&self, ifname: &str) -> Result<u32, Refusal> {
        match self.passed.get(ifname).and_then(Weak::upgrade) {
            Some(port) => Ok(port.hdr_len()),
            None => find(ifname).map(|_| 0),
        }
    }

    /// Refuses to make a port of a switch that has the name of an interface which is not attached to it, as netmap does.
    pub(crate) fn refuse_interface_name(&self, full: &str, port: &str) -> Result<(), Refusal> {
        if self.ports.contains_key(full) || Interface::find(port).is_err() {
            return Ok(());
        }
        refuse(
            Errno::INVAL,
            format!("{port} is an interface: attach it, and open netmap:{port}, or choose another name"),
        )
    }
}

fn needs(shape: PortShape, host: (u32, u32)) -> Needs {
    Needs { shape, host, used: (shape.tx_rings, shape.rx_rings), buf_size: 0, extra_bufs: 0 }
}

/// Of a ptnet device that programs have open: the host's header says it.
fn passed_facts(port: &PassedPort) -> Result<Facts, Refusal> {
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
    Ok(Facts { shape: shape_of(&d), host: (0, 0), layout, mem_id: d.mem_id })
}

fn shape_of(d: &AttachReply) -> PortShape {
    PortShape { tx_rings: d.tx_rings, rx_rings: d.rx_rings, tx_slots: d.tx_slots, rx_slots: d.rx_slots }
}

/// Of one that nobody has open: its driver tells rings and slots; its memory is the host's, and as large as this many buffers take.
fn closed_passed_facts(interface: &Interface) -> Result<Facts, Refusal> {
    let slots = interface.slots().unwrap_or((sizes::SLOTS, sizes::SLOTS));
    let shape = sizes::shape(interface.queues, (0, 0), slots);
    let sizes = RegionSizes::for_port(shape.tx_rings + shape.rx_rings, slots.0.max(slots.1), DEFAULT_BUF_SIZE, 0, 0);
    let layout = Layout::device(sizes).map_err(RegionError::from)?;
    Ok(Facts { shape, host: (0, 0), layout, mem_id: 0 })
}
