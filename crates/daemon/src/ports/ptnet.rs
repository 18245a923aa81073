//! `ptnet:/PATH`: a ptnet device, netmap rings that a virtual machine maps.

use std::sync::Arc;

use netvale_control::options::{OptionsOf, kind};
use netvale_control::types::{Direction, Mac, PortInfo, PortKind, PtnetInfo};
use netvale_port::listener::Site;
use netvale_portspec::AttachSpec;
use netvale_ptnet::backend::Backend;
use netvale_ptnet::header::Config;
use netvale_ptnet::instance::sizes;
use netvale_ptnet::keep::{Keeper, take};
use netvale_ptnet::port::{PtnetOptions, PtnetPort, Survival, Transport};
use netvale_ptnet::seats::Seats;
use netvale_ptnet::vfio::memory_path;
use rustix::io::Errno;

use super::kind::Asked;
use super::notes::machine_notes;
use super::plug::{NewPort, plug};
use super::site::site;
use crate::caller::Caller;
use crate::daemon::{Attached, Daemon, Kicks};
use crate::policy::{self, unreached};
use crate::refusal::{Refusal, refuse};
use crate::rings::sizes::DEFAULT_SLOTS;
use crate::system::keep;

/// The ptnet device behind a port.
pub struct DevicePort(pub PtnetPort);

impl Attached for DevicePort {
    fn kind(&self) -> PortKind {
        PortKind::Ptnet
    }

    fn describe(&self, port: &mut PortInfo) {
        port.ptnet = Some(info(&self.0));
    }

    fn notes(&self) -> Vec<String> {
        let state = self.0.state();
        let rings = match state.now.running {
            Some(0) => "rings run",
            Some(_) => "rings run, frames with virtio-net header",
            None => "rings stopped",
        };
        let now = state.connected.then(|| rings.to_owned());
        machine_notes(now, state.connections, state.last_error)
    }

    fn memory(&self) -> u64 {
        self.0.memory()
    }

    /// Interrupts sent and saved, and kicks received.
    fn ring_kicks(&self, dir: Direction, ring: usize) -> Kicks {
        self.0.ring_kicks(dir == Direction::In, ring)
    }

    fn stop(self: Box<Self>, _d: &mut Daemon, _full: &str) {
        self.0.let_go();
    }
}

/// Attaches a device whose rings are a switch's.
pub fn attach(d: &mut Daemon, asked: &Asked<'_>) -> Result<(), Refusal> {
    let AttachSpec::Ptnet(path) = asked.spec else { return Err(asked.mistaken()) };
    let o = asked.options::<kind::Ptnet>()?;
    if o.vnet_hdr() == 10 {
        return refuse(Errno::INVAL, "the virtio-net header of a ptnet device has 12 bytes, not 10");
    }
    let config = config(&o, &asked.at.full());
    check(d, &config, asked.caller)?;
    let (seats, queues) = Seats::new(config.tx_rings, config.rx_rings)?;
    let site = site(&d.config, asked.caller, path.as_str(), &o)?;
    let device = open(d, site, config, o.vfio_user(), Arc::new(seats), true)?;
    plug(d, &asked.at, queues, NewPort::new(device, asked).with_gro(o.gro()))
}

/// Refuses an impossible configuration, and one that takes too much of the caller's memory.
///
/// # Errors
/// [`Refusal`] that says what is wrong with it.
pub fn check(d: &Daemon, config: &Config, caller: Caller) -> Result<(), Refusal> {
    PtnetPort::check(config).map_err(|e| Refusal::new(e.errno(), e.to_string()))?;
    policy::may_have_memory(d, caller, sizes(config))
}

/// Opens a device's socket; `survives`: its guest may outlive this process.
///
/// # Errors
/// [`Refusal`] when that fails.
pub fn open(
    d: &mut Daemon,
    site: Site,
    config: Config,
    vfio_user: bool,
    backend: Arc<dyn Backend>,
    survives: bool,
) -> Result<DevicePort, Refusal> {
    let transport = if vfio_user { Transport::VfioUser } else { Transport::Ivshmem };
    let options = PtnetOptions { site, config, transport };
    let keeps = survives && keep::is_there();
    let survival = Survival {
        keeper: keeps.then(|| Arc::new(keep::Systemd) as Arc<dyn Keeper>),
        // Only a guest with its own memory was kept.
        kept: survives.then(|| take(&mut d.kept, &options.site.place, &config)).flatten(),
    };
    let port = PtnetPort::new(&options, backend, survival);
    port.map(DevicePort).map_err(|e| unreached(&d.config, e.errno(), e.to_string()))
}

/// The configuration of a device; its MAC address is made from the port's name unless the options have one.
pub fn config(o: &OptionsOf<'_, kind::Ptnet>, full: &str) -> Config {
    Config {
        tx_rings: o.rings().max(1),
        rx_rings: o.rings().max(1),
        slots: if o.slots() == 0 { DEFAULT_SLOTS } else { o.slots() },
        buf_size: o.buf_size(),
        vnet_hdr: o.vnet_hdr() != 0,
        mac: o.mac().unwrap_or_else(|| Mac::of_name(b'p', full)).0,
        mtu: o.mtu().unwrap_or(1500),
    }
}

/// The details that `netvale vm` reads.
fn info(port: &PtnetPort) -> PtnetInfo {
    let o = port.options();
    let c = &o.config;
    let memory = (o.transport == Transport::VfioUser).then(|| memory_path(o.site.path()).display().to_string());
    PtnetInfo { path: o.site.path().display().to_string(), memory, vectors: c.vectors(), mac: Mac(c.mac), mtu: c.mtu }
}
