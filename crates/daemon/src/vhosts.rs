//! Ports that are virtio-net by vhost-user: the device for a virtual machine's driver, or the driver.

use std::path::{Path, PathBuf};

use netvale_control::types::{Mac, PortKind, PortOptions, VhostInfo};
use netvale_vhost::frontend::BackEnd;
use netvale_vhost::port::{Mode, VhostOptions, VhostPort};
use netvale_virtio::driver::port::VirtioPort;
use netvale_virtio::driver::wish::Wish;
use netvale_virtio::features as bits;
use netvale_virtio_pci::OnBus;

use rustix::io::Errno;

use crate::devices::Device;
use crate::refusal::Refusal;
use crate::state::{Caller, NewPort, State};

/// What there is to drive.
pub(crate) enum Target {
    /// The vhost-user back end at this socket.
    Socket(PathBuf),
    /// The PCI function at this address.
    Pci(String),
}

impl State {
    /// Attaches a vhost-user device.
    pub(crate) fn attach_vhost(
        &mut self,
        (switch, port): (&str, &str),
        path: &str,
        o: &PortOptions,
        caller: Caller,
    ) -> Result<(), Refusal> {
        self.check_free(switch, port)?;
        self.may_name(Path::new(path), caller)?;
        let options = VhostOptions {
            path: path.into(),
            mode: if o.client { Mode::Client } else { Mode::Server },
            pairs: u16::try_from(o.rings.max(1)).unwrap_or(u16::MAX),
            mac: o.mac.unwrap_or_else(|| Mac::of_name(b'v', &format!("{switch}:{port}"))).0,
            mtu: o.mtu.map_or(1500, |mtu| u16::try_from(mtu).unwrap_or(u16::MAX)),
        };
        let (vhost, (egress, ingresses)) =
            VhostPort::new(&options).map_err(|e| self.unreached(e.errno(), e.to_string()))?;
        let device = Device { kind: PortKind::Vhost, vhost: Some(vhost), ..Device::default() };
        let new = NewPort::device(device, caller, o);
        self.plug(switch, port, egress, ingresses, new).map(|_| ())
    }
}

impl State {
    /// Attaches a virtio-net driver, for a vhost-user back end or a device on the bus.
    pub(crate) fn attach_virtio(
        &mut self,
        (switch, port): (&str, &str),
        target: Target,
        o: &PortOptions,
        caller: Caller,
    ) -> Result<(), Refusal> {
        self.check_free(switch, port)?;
        match &target {
            Target::Socket(path) => self.may_name(path, caller)?,
            Target::Pci(_) => may_take_devices(caller)?,
        }
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
        let port_made = match target {
            Target::Socket(path) => VirtioPort::new(BackEnd(path), wish),
            Target::Pci(address) => {
                let device = OnBus::at(&address).map_err(|e| Refusal::new(e.errno(), e.to_string()))?;
                VirtioPort::new(device, wish)
            }
        };
        let (virtio, (egress, ingresses)) = port_made.map_err(|e| Refusal::new(e.errno(), e.to_string()))?;
        let device = Device { kind: PortKind::Virtio, virtio: Some(virtio), ..Device::default() };
        let new = NewPort::device(device, caller, o);
        self.plug(switch, port, egress, ingresses, new).map(|_| ())
    }
}

/// Who may have the daemon take a device out of the kernel's hands: who could do so without it.
pub(crate) fn may_take_devices(caller: Caller) -> Result<(), Refusal> {
    if caller.uid == 0 || caller.uid == rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    Err(Refusal::new(Errno::ACCESS, "only root and the daemon's own user attach devices of the machine"))
}

/// What `netvale vm` goes by.
pub fn info(port: &VhostPort) -> VhostInfo {
    let o = port.options();
    VhostInfo {
        path: o.path.display().to_string(),
        client: o.mode == Mode::Client,
        pairs: o.pairs.into(),
        mac: Mac(o.mac),
        mtu: o.mtu.into(),
    }
}

/// Sentences for `netvale show`.
pub fn notes(port: &VhostPort) -> Vec<String> {
    let state = port.state();
    let (calls, kicks) = port.notifications();
    let mut notes = vec![if state.connected {
        format!("front end connected, {} queues running, {calls} calls to it, {kicks} kicks from it", state.now.queues)
    } else {
        format!("waits for a front end; there were {}", state.connections)
    }];
    if state.now.queues > 0 {
        notes.push(format!("driver: {}", negotiated(state.now.features)));
    }
    notes.extend(state.last_error.map(|why| format!("the last front end was disconnected: {why}")));
    notes
}

/// The same for a driver.
pub fn driver_notes(port: &VirtioPort) -> Vec<String> {
    let state = port.state();
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

/// What was negotiated, in words.
fn negotiated(features: u64) -> String {
    let has = |bit: u64| features & bit != 0;
    let layout = if has(bits::RING_PACKED) { "packed ring" } else { "split ring" };
    let words = [
        (true, layout),
        (has(bits::MRG_RXBUF), "mergeable buffers"),
        (has(bits::IN_ORDER), "in order"),
        (has(bits::EVENT_IDX), "event index"),
        (has(bits::INDIRECT_DESC), "indirect descriptors"),
        (has(bits::CSUM), "sends without checksums"),
        (has(bits::HOST_TSO4), "sends TCP segments whole"),
        (has(bits::GUEST_CSUM), "takes frames without checksums"),
        (has(bits::GUEST_TSO4), "takes TCP segments whole"),
        (has(bits::MQ), "several queues"),
    ];
    words.iter().filter(|(on, _)| *on).map(|(_, word)| *word).collect::<Vec<_>>().join(", ")
}
