//! `virtio:/PATH`, `virtio-pci:ADDRESS`: a virtio-net driver, for a vhost-user back end or a device on the PCI bus.

use netvale_control::types::PortKind;
use netvale_portspec::AttachSpec;
use netvale_vhost::frontend::BackEnd;
use netvale_virtio::driver::port::VirtioPort;
use netvale_virtio::driver::wish::Wish;
use netvale_virtio_pci::OnBus;
use rustix::io::Errno;

use super::kind::Asked;
use super::notes::negotiated;
use super::plug::{NewPort, plug};
use crate::daemon::{Attached, Daemon};
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

/// Attaches a driver.
pub fn attach(d: &mut Daemon, asked: &Asked<'_>) -> Result<(), Refusal> {
    let o = asked.options;
    let usual = Wish::default();
    let wish = Wish {
        pairs: u16::try_from(o.rings.max(1)).unwrap_or(u16::MAX),
        size: if o.slots == 0 { usual.size } else { u16::try_from(o.slots).unwrap_or(u16::MAX) },
        packed: o.packed,
        mergeable: !(o.no_mergeable || o.vector),
        in_order: !o.no_in_order || o.vector,
        vector: o.vector,
        offloads: !o.vector,
        ..usual
    };
    let failed = |errno: Errno, text: String| Refusal::new(errno, text);
    let made = match asked.spec {
        AttachSpec::Virtio(path) => VirtioPort::new(BackEnd(path.as_str().into()), wish),
        AttachSpec::VirtioPci(address) => {
            let device = OnBus::at(&address.to_string()).map_err(|e| failed(e.errno(), e.to_string()))?;
            VirtioPort::new(device, wish)
        }
        _ => return Err(asked.mistaken()),
    };
    let (virtio, queues) = made.map_err(|e| failed(e.errno(), e.to_string()))?;
    plug(d, &asked.at, queues, NewPort::with(DrivenPort(virtio), asked.caller, o))
}
