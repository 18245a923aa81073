//! The target of a monitor, and the monitor's rings.

use std::sync::Arc;

use netvale_mem::layout::DEFAULT_BUF_SIZE;
use netvale_mem::region::RingRanges;
use netvale_mem::{PortShape, Region};
use netvale_portspec::{Base, Directions, PortSpec, Rings as RingsSpec};
use rustix::io::Errno;

use crate::caller::Caller;
use crate::daemon::Daemon;
use crate::permission::controls;
use crate::ports::nic::names::find;
use crate::ports::nic::open::switch_port_on;
use crate::refusal::{Refusal, refuse};
use crate::registry::watches::MonitoredPort;
use crate::rings::local::LocalRings;
use crate::rings::pipe::pipe_and_end;
use crate::rings::sizes::DEFAULT_SLOTS;

/// Number of tx rings of a monitor: one, as in netmap. Frames that a program sends on it are ignored.
pub const TX_RINGS: u32 = 1;

/// Properties of a monitored port.
pub struct Parent {
    pub watched: MonitoredPort,
    /// Name of the port for programs.
    pub name: String,
    /// Number of the port's rings in the direction that has more rings.
    pub rings: u32,
    /// Number of host rings that can be monitored.
    pub host: u32,
    pub tx_slots: u32,
    pub rx_slots: u32,
    pub hdr_len: u32,
    pub buf_size: u32,
    /// Region of the port's rings, and the region's number; `None` if the port has no netmap rings in a region.
    pub memory: Option<(Arc<Region>, u32)>,
}

/// The number of the monitor's host rings, and the monitor's rings that a specification names.
pub struct WantedRings {
    pub host: u32,
    pub rings: RingRanges,
}

impl WantedRings {
    pub fn new(spec: &PortSpec, parent: &Parent) -> Result<WantedRings, Refusal> {
        let n = parent.rings;
        let (tx, rx) = match spec.rings {
            RingsSpec::AllNic => (0..TX_RINGS, 0..n),
            RingsSpec::OneNic(i) if u32::from(i.get()) < n => (0..TX_RINGS, u32::from(i.get())..u32::from(i.get()) + 1),
            RingsSpec::OneNic(i) => {
                return refuse(
                    Errno::INVAL,
                    format!("ring {} does not exist: {} has {n}, numbered from 0", i.get(), parent.name),
                );
            }
            _ if parent.host == 0 => return refuse(Errno::INVAL, format!("{} has no host rings", parent.name)),
            RingsSpec::OneHost(i) if u32::from(i.get()) < parent.host => {
                let i = u32::from(i.get());
                (TX_RINGS + i..TX_RINGS + i + 1, n + i..n + i + 1)
            }
            RingsSpec::OneHost(i) => {
                return refuse(
                    Errno::INVAL,
                    format!("host ring {} does not exist: the port has {}, numbered from 0", i.get(), parent.host),
                );
            }
            RingsSpec::AllHost => (TX_RINGS..TX_RINGS + parent.host, n..n + parent.host),
            RingsSpec::NicAndHost => (0..TX_RINGS + parent.host, 0..n + parent.host),
        };
        let host = if tx.end > TX_RINGS { parent.host } else { 0 };
        let rings = match spec.flags.directions {
            Directions::Both => RingRanges { tx, rx },
            Directions::Tx => RingRanges { tx, rx: 0..0 },
            Directions::Rx => RingRanges { tx: 0..0, rx },
        };
        Ok(WantedRings { host, rings })
    }
}

/// Finds the port to monitor. As in netmap, the port must exist and be in use.
pub fn parent(d: &Daemon, spec: &PortSpec, caller: Caller) -> Result<Parent, Refusal> {
    if let Some((pipe, end)) = pipe_and_end(&spec.name) {
        return parent_pipe(d, &spec.name.to_string(), pipe, end);
    }
    match spec.name.base() {
        Base::Vale { switch, port } => parent_port(d, &format!("{switch}:{port}")),
        Base::Netmap { ifname } => match d.persistent.own_place(ifname.as_str()) {
            Some(place) => parent_port(d, &place),
            None => parent_nic(d, ifname.as_str(), caller),
        },
    }
}

fn parent_port(d: &Daemon, full: &str) -> Result<Parent, Refusal> {
    let idle = || {
        format!("cannot monitor {full}: the port does not exist; attach the port, or start the program that opens it")
    };
    let record = d.ports.get(full).ok_or_else(|| Refusal::new(Errno::INVAL, idle()))?;
    let watched = MonitoredPort::Port(full.to_owned());
    let hdr_len = record.hdr_len();
    if let Some(local) = record.behind.get::<LocalRings>() {
        if local.is_unheld() && !d.persistent.is_joined(full) {
            return refuse(Errno::INVAL, idle());
        }
        let shape = local.rings.mem.shape();
        let region = local.rings.mem.region();
        let memory = Some((Arc::clone(region), local.rings.mem_id));
        return Ok(Parent { hdr_len, memory, ..Parent::of_rings(watched, full, region, shape) });
    }
    if record.behind.programs().is_some() {
        return refuse(Errno::INVAL, format!("cannot monitor {full}, which is a monitor: name its port instead"));
    }
    Ok(Parent {
        watched,
        name: full.to_owned(),
        rings: record.ingress.len().max(record.egress.len()).max(1) as u32,
        host: 0,
        tx_slots: DEFAULT_SLOTS,
        rx_slots: DEFAULT_SLOTS,
        hdr_len,
        buf_size: DEFAULT_BUF_SIZE,
        memory: None,
    })
}

fn parent_pipe(d: &Daemon, name: &str, key: String, end: usize) -> Result<Parent, Refusal> {
    let Some(pipe) = d.pipes.get(&key).filter(|pipe| pipe.is_in_use(end)) else {
        return refuse(Errno::INVAL, format!("cannot monitor {name}: no program has this end of the pipe open"));
    };
    if pipe.guest_end().is_some() {
        return refuse(
            Errno::OPNOTSUPP,
            format!("cannot monitor pipe {key}: one of its ends belongs to a virtual machine"),
        );
    }
    let mem = pipe.end(end);
    let mem_id = pipe.mem_id;
    Ok(Parent {
        memory: Some((Arc::clone(mem.region()), mem_id)),
        ..Parent::of_rings(MonitoredPort::Pipe(key, end), name, mem.region(), mem.shape())
    })
}

fn parent_nic(d: &Daemon, ifname: &str, caller: Caller) -> Result<Parent, Refusal> {
    if netvale_guest::passthrough::device_of(ifname).is_some() {
        return refuse(Errno::OPNOTSUPP, format!("{ifname} is a ptnet device; monitor its port on the host"));
    }
    find(ifname)?;
    let mut open = d.interfaces.ports_on(ifname).map(|(_, port)| port);
    if let Some(port) = open.find(|port| controls(caller, port.owner.uid)) {
        let mem = &port.mem;
        let queues = port.nic.interface().queues;
        let watched = MonitoredPort::Nic(ifname.to_owned());
        let parent = Parent::of_rings(watched, &format!("netmap:{ifname}"), mem.region(), mem.shape());
        let memory = Some((Arc::clone(mem.region()), port.mem_id));
        let (host_tx, host_rx) = mem.host_rings();
        return Ok(Parent { rings: queues, host: host_tx.max(host_rx).max(1), memory, ..parent });
    }
    let Some(full) = switch_port_on(d, ifname) else {
        return refuse(Errno::INVAL, format!("cannot monitor {ifname}: no program has the interface open"));
    };
    Ok(Parent { watched: MonitoredPort::Wire(full.to_owned()), ..parent_port(d, full)? })
}

impl Parent {
    /// Returns the properties of a port with rings in a region.
    fn of_rings(watched: MonitoredPort, name: &str, region: &Region, shape: PortShape) -> Parent {
        Parent {
            watched,
            name: name.to_owned(),
            rings: shape.tx_rings.max(shape.rx_rings),
            host: 0,
            tx_slots: shape.tx_slots,
            rx_slots: shape.rx_slots,
            hdr_len: 0,
            buf_size: region.layout().sizes.bufs.size.max(DEFAULT_BUF_SIZE),
            memory: None,
        }
    }
}
