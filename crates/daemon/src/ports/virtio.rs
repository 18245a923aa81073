//! `virtio:/PATH`, `virtio-pci:ADDRESS`: a virtio-net driver, for a vhost-user back end or a device on the PCI bus.

use std::path::Path;

use netvale_control::options::OptionsOf;
use netvale_control::options::kind::{self, KindType};
use netvale_control::types::{PortInfo, PortKind, VhostInfo};
use netvale_fdio::state::State;
use netvale_port::domain::TimeDomain;
use netvale_port::service::AskedToPause;
use netvale_portspec::AttachSpec;
use netvale_vhost::frontend::BackEnd;
use netvale_virtio::VirtioPortError;
use netvale_virtio::driver::options::DriverOptions;
use netvale_virtio::driver::port::{Transport, VirtioPort};
use netvale_virtio_pci::BusAddress;
use rustix::io::Errno;

use super::handed::{domain_of, domain_of_listener};
use super::kind::AdmittedRequest;
use super::notes::negotiated;
use super::plug::{NewPort, plug};
use crate::daemon::{Daemon, DaemonPort, PortBackend, PortPeers};
use crate::handover::items::ParkedPort;
use crate::permission;
use crate::refusal::{Refusal, refuse};
use crate::system::sandbox::KernelNeeds;

/// Backend of a port with a virtio-net driver.
struct VirtioDriverPort(VirtioPort);

impl PortBackend for VirtioDriverPort {
    fn kind(&self) -> PortKind {
        PortKind::Virtio
    }

    fn peers(&self) -> Option<PortPeers> {
        Some(self.0.state().into())
    }

    fn link(&self) -> Option<bool> {
        let device = self.0.state().now;
        Some(device.running && !device.link_down)
    }

    fn notes(&self) -> Vec<String> {
        let state = self.0.state();
        let device = state.now;
        if device.running {
            let mut notes = vec![format!("device runs, {} queue pairs: {}", device.pairs, negotiated(device.features))];
            notes.extend(device.path.map(|path| format!("path: {}", path.words())));
            notes.extend(device.link_down.then(|| "the device's link is down".to_owned()));
            notes
        } else {
            vec![format!("no device: {}", state.last_error.as_deref().unwrap_or("connecting"))]
        }
    }

    fn ask_to_pause(&self) -> Vec<AskedToPause> {
        vec![self.0.ask_to_pause()]
    }

    fn save(&self) -> std::io::Result<Option<State>> {
        Ok(self.0.save().map(|state| State::of(&state)).transpose()?)
    }

    fn save_parked(&self) -> std::io::Result<Option<ParkedPort>> {
        self.0.save_parked()?.map(|(state, paused)| ParkedPort::of(&state, [paused])).transpose()
    }
}

/// System calls and devices that the sandbox permits for drivers of PCI devices.
pub const KERNEL: KernelNeeds = KernelNeeds {
    values: &[(libc::SYS_ioctl, 1, &netvale_virtio_pci::IOCTLS)],
    devices: || vec!["/dev/vfio".into()],
    ..KernelNeeds::NOTHING
};

/// Attaches a virtio-net driver that connects to a vhost-user back end.
pub fn attach(d: &mut Daemon, asked: &AdmittedRequest<'_>) -> Result<(), Refusal> {
    let AttachSpec::Virtio(path) = asked.spec else { return Err(asked.mistaken()) };
    let o = asked.options::<kind::Virtio>()?;
    if let Some(other) = back_end_here(d, &asked.at.switch, path.as_str()) {
        let text = format!("port {other} of the same switch serves the device at {path}: frames would loop");
        return refuse(Errno::LOOP, format!("{text}; use another switch"));
    }
    let place = permission::place(&d.config, asked.caller, Path::new(path.as_str()))?;
    let domain = domain_of_listener(d, asked.caller, place.path());
    plug_in(d, asked, BackEnd(place), o, domain)
}

/// Returns the full name of the port on that switch whose device listens at `path`; `None` if there is none.
fn back_end_here(d: &Daemon, switch: &str, path: &str) -> Option<String> {
    let listens = |record: &DaemonPort| {
        let mut info = PortInfo::default();
        record.behind.describe(&mut info);
        info.detail::<VhostInfo>().is_some_and(|device| device.path == path)
    };
    let on = |record: &DaemonPort| record.switch.as_ref().is_some_and(|on| on.name() == switch);
    d.ports.iter().find(|(_, record)| on(record) && listens(record)).map(|(full, _)| full.to_owned())
}

/// Attaches a virtio-net driver for a PCI device.
pub fn attach_pci(d: &mut Daemon, asked: &AdmittedRequest<'_>) -> Result<(), Refusal> {
    let AttachSpec::VirtioPci(address) = asked.spec else { return Err(asked.mistaken()) };
    let o = asked.options::<kind::VirtioPci>()?;
    let device = BusAddress::at(&address.to_string()).map_err(|e| Refusal::new(e.errno(), e.to_string()))?;
    plug_in(d, asked, device, o, domain_of(asked.caller))
}

fn plug_in<K: KindType>(
    d: &mut Daemon,
    asked: &AdmittedRequest<'_>,
    device: impl Transport,
    o: OptionsOf<'_, K>,
    domain: TimeDomain,
) -> Result<(), Refusal> {
    let refused = |e: VirtioPortError| Refusal::new(e.errno(), e.to_string());
    let (virtio, queues) = match asked.continued() {
        None => VirtioPort::new(device, driver_options(&o)).map_err(refused)?,
        Some(state) => {
            let (virtio, queues, paused) = VirtioPort::restore(device, driver_options(&o), state.read()?)?;
            d.held.push(Box::new(paused));
            (virtio, queues)
        }
    };
    virtio.on_change(d.on_news());
    virtio.on_peer(d.on_news());
    plug(d, &asked.at, queues, NewPort::new(VirtioDriverPort(virtio), asked).in_domain(domain).with_gro(o.gro()))
}

fn driver_options<K: KindType>(o: &OptionsOf<'_, K>) -> DriverOptions {
    let usual = DriverOptions::default();
    DriverOptions {
        pairs: u16::try_from(o.rings().max(1)).unwrap_or(u16::MAX),
        size: if o.slots() == 0 { usual.size } else { u16::try_from(o.slots()).unwrap_or(u16::MAX) },
        packed: o.packed(),
        mergeable: !(o.no_mergeable() || o.vector()),
        in_order: !o.no_in_order() || o.vector(),
        vector: o.vector(),
        offloads: !o.vector(),
        ..usual
    }
}
