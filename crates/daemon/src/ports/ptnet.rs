//! `ptnet:/PATH`: a ptnet device, whose netmap rings a virtual machine maps.

use std::sync::Arc;

use netvale_control::options::{OptionsOf, kind};
use netvale_control::types::{Direction, Mac, PortInfo, PortKind, PtnetInfo};
use netvale_fdio::state::State;
use netvale_mem::region::RingSide;
use netvale_port::listener::ListenAddress;
use netvale_port::service::AskedToPause;
use netvale_portspec::AttachSpec;
use netvale_ptnet::backend::Backend;
use netvale_ptnet::header::PtnetDeviceConfig;
use netvale_ptnet::instance::sizes;
use netvale_ptnet::port::{PtnetOptions, PtnetPort, PtnetTransport};
use netvale_ptnet::seats::Seats;
use netvale_ptnet::vfio::memory_path;
use rustix::io::Errno;

use super::handed::domain_of_site;
use super::kind::AdmittedRequest;
use super::notes::machine_notes;
use super::plug::{NewPort, plug};
use super::site::site;
use crate::caller::Caller;
use crate::daemon::{Daemon, Kicks, PortBackend, PortPeers};
use crate::handover::items::ParkedPort;
use crate::permission::{self, unreached};
use crate::refusal::{Refusal, refuse};
use crate::rings::sizes::DEFAULT_SLOTS;

/// Backend of a ptnet device's port.
pub struct PtnetDevicePort(pub PtnetPort);

impl PortBackend for PtnetDevicePort {
    fn kind(&self) -> PortKind {
        PortKind::Ptnet
    }

    fn describe(&self, port: &mut PortInfo) {
        port.detail = Some(info(&self.0).into());
    }

    fn peers(&self) -> Option<PortPeers> {
        Some(self.0.state().into())
    }

    fn link(&self) -> Option<bool> {
        Some(self.0.state().now.running.is_some())
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

    /// Returns the number of interrupts sent, of interrupts suppressed, and of kicks received.
    fn ring_kicks(&self, dir: Direction, ring: usize) -> Kicks {
        self.0.ring_kicks(dir == Direction::In, ring)
    }

    fn ring_side(&self, dir: Direction, ring: usize) -> Option<RingSide> {
        self.0.ring_side(dir == Direction::In, ring)
    }

    fn ask_to_pause(&self) -> Vec<AskedToPause> {
        self.0.ask_to_pause()
    }

    fn save(&self) -> std::io::Result<Option<State>> {
        Ok(Some(State::of(&self.0.save())?))
    }

    fn save_parked(&self) -> std::io::Result<Option<ParkedPort>> {
        let (state, paused) = self.0.save_parked()?;
        ParkedPort::of(&state, paused).map(Some)
    }
}

/// Attaches a ptnet device as a port of a switch, or restores such a port.
pub fn attach(d: &mut Daemon, asked: &AdmittedRequest<'_>) -> Result<(), Refusal> {
    let AttachSpec::Ptnet(path) = asked.spec else { return Err(asked.mistaken()) };
    let o = asked.options::<kind::Ptnet>()?;
    if o.vnet_hdr() == 10 {
        return refuse(Errno::INVAL, "invalid virtio-net header length 10: expected 12 for a ptnet device");
    }
    let config = config(&o, &asked.at.full());
    check(d, &config, asked.caller)?;
    let (seats, queues) = Seats::new(config.tx_rings, config.rx_rings)?;
    let site = site(&d.config, asked.caller, path.as_str(), &o)?;
    let domain = domain_of_site(d, asked.caller, &site);
    let device = PtnetConfig { site, config, vfio_user: o.vfio_user(), backend: Arc::new(seats) };
    let device = open(d, device, asked.continued())?;
    plug(d, &asked.at, queues, NewPort::new(device, asked).in_domain(domain).with_gro(o.gro()))
}

/// Refuses a configuration that is impossible or exceeds the caller's memory quota.
///
/// # Errors
/// [`Refusal`] with the fault of the configuration.
pub fn check(d: &Daemon, config: &PtnetDeviceConfig, caller: Caller) -> Result<(), Refusal> {
    PtnetPort::check(config).map_err(|e| Refusal::new(e.errno(), e.to_string()))?;
    permission::may_have_memory(d, caller, sizes(config))
}

/// Parameters of a ptnet device whose socket is to be opened.
pub struct PtnetConfig {
    /// The device's socket.
    pub site: ListenAddress,
    /// The device's configuration.
    pub config: PtnetDeviceConfig,
    /// Whether guests connect by vfio-user.
    pub vfio_user: bool,
    /// The backend of the device's rings.
    pub backend: Arc<dyn Backend>,
}

/// Opens a device's socket, or restores a device that another process saved.
///
/// # Errors
/// [`Refusal`] if the socket cannot be opened, or the state is invalid.
pub fn open(d: &mut Daemon, device: PtnetConfig, continued: Option<State>) -> Result<PtnetDevicePort, Refusal> {
    let PtnetConfig { site, config, vfio_user, backend } = device;
    let transport = if vfio_user { PtnetTransport::VfioUser } else { PtnetTransport::Ivshmem };
    let options = PtnetOptions { site, config, transport };
    if let Some(state) = continued {
        let (port, paused) = PtnetPort::restore(&options, backend, state.read()?)?;
        paused.into_iter().for_each(|paused| d.held.push(Box::new(paused)));
        return Ok(watched(d, port));
    }
    let port = PtnetPort::new(&options, backend);
    let port = port.map_err(|e| unreached(&d.config, e.errno(), e.to_string()))?;
    Ok(watched(d, port))
}

/// Makes the device notify the main thread when its guest connects, changes its state, or disconnects.
fn watched(d: &Daemon, port: PtnetPort) -> PtnetDevicePort {
    port.on_change(d.on_news());
    port.on_peer(d.on_news());
    PtnetDevicePort(port)
}

/// Returns the configuration of a device. The device's MAC address is derived from the port's name, unless an option
/// sets the address.
pub fn config(o: &OptionsOf<'_, kind::Ptnet>, full: &str) -> PtnetDeviceConfig {
    PtnetDeviceConfig {
        tx_rings: o.rings().max(1),
        rx_rings: o.rings().max(1),
        slots: if o.slots() == 0 { DEFAULT_SLOTS } else { o.slots() },
        buf_size: o.buf_size(),
        vnet_hdr: o.vnet_hdr() != 0,
        mac: o.mac().unwrap_or_else(|| Mac::of_name(b'p', full)).0,
        mtu: o.mtu().unwrap_or(1500),
    }
}

/// Returns details of the device for `netvale vm`.
fn info(port: &PtnetPort) -> PtnetInfo {
    let o = port.options();
    let c = &o.config;
    let memory = (o.transport == PtnetTransport::VfioUser).then(|| memory_path(o.site.path()).display().to_string());
    PtnetInfo { path: o.site.path().display().to_string(), memory, vectors: c.vectors(), mac: Mac(c.mac), mtu: c.mtu }
}
