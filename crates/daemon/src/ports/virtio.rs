//! `virtio:/PATH`, `virtio-pci:ADDRESS`: a virtio-net driver, for a vhost-user back end or a device on the PCI bus.

use std::path::Path;

use netvale_control::options::{OptionsOf, kind, takes};
use netvale_control::types::PortKind;
use netvale_portspec::AttachSpec;
use netvale_vhost::frontend::BackEnd;
use netvale_virtio::driver::options::DriverOptions;
use netvale_virtio::driver::port::{Transport, VirtioPort};
use netvale_virtio_pci::OnBus;

use super::kind::Asked;
use super::notes::negotiated;
use super::plug::{NewPort, plug};
use crate::daemon::{Attached, Daemon};
use crate::policy;
use crate::refusal::Refusal;

/// A driver behind a port.
struct DrivenPort(VirtioPort);

impl Attached for DrivenPort {
    fn kind(&self) -> PortKind {
        PortKind::Virtio
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
}

/// Attaches a driver for a back end.
pub fn attach(d: &mut Daemon, asked: &Asked<'_>) -> Result<(), Refusal> {
    let AttachSpec::Virtio(path) = asked.spec else { return Err(asked.mistaken()) };
    let o = asked.options::<kind::Virtio>()?;
    let place = policy::place(&d.config, asked.caller, Path::new(path.as_str()))?;
    plug_in(d, asked, BackEnd(place), o)
}

/// Attaches a driver for a device on the bus.
pub fn attach_pci(d: &mut Daemon, asked: &Asked<'_>) -> Result<(), Refusal> {
    let AttachSpec::VirtioPci(address) = asked.spec else { return Err(asked.mistaken()) };
    let o = asked.options::<kind::VirtioPci>()?;
    let device = OnBus::at(&address.to_string()).map_err(|e| Refusal::new(e.errno(), e.to_string()))?;
    plug_in(d, asked, device, o)
}

fn plug_in<K: Driver>(
    d: &mut Daemon,
    asked: &Asked<'_>,
    device: impl Transport,
    o: OptionsOf<'_, K>,
) -> Result<(), Refusal> {
    let made = VirtioPort::new(device, driver_options(&o));
    let (virtio, queues) = made.map_err(|e| Refusal::new(e.errno(), e.to_string()))?;
    plug(d, &asked.at, queues, NewPort::new(DrivenPort(virtio), asked).with_gro(o.gro()))
}

fn driver_options<K: Driver>(o: &OptionsOf<'_, K>) -> DriverOptions {
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

/// The options that both kinds of drivers take.
trait Driver:
    takes::rings + takes::slots + takes::packed + takes::no_mergeable + takes::no_in_order + takes::vector + takes::gro
{
}

impl Driver for kind::Virtio {}
impl Driver for kind::VirtioPci {}
