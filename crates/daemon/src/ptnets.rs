//! Ports that are ptnet devices: netmap rings that a virtual machine maps.

use std::path::Path;
use std::sync::Arc;

use netvale_control::types::{Mac, PortKind, PortOptions, PtnetInfo};
use netvale_ptnet::backend::Backend;
use netvale_ptnet::header::Config;
use netvale_ptnet::keep::Keeper;
use netvale_ptnet::port::{PtnetOptions, PtnetPort, Survival, Way};
use netvale_ptnet::seats::Seats;
use netvale_ptnet::vfio::memory_path;
use rustix::io::Errno;

use crate::devices::{Device, machine_notes};
use crate::refusal::Refusal;
use crate::sizes::DEFAULT_SLOTS;
use crate::state::{Caller, NewPort, State};

impl State {
    /// Attaches a ptnet device.
    pub(crate) fn attach_ptnet(
        &mut self,
        (switch, port): (&str, &str),
        path: &str,
        o: &PortOptions,
        caller: Caller,
    ) -> Result<(), Refusal> {
        self.check_free(switch, port)?;
        self.may_name(Path::new(path), caller)?;
        if o.vnet_hdr == 10 {
            return Err(Refusal::new(Errno::INVAL, "the virtio-net header of a ptnet device has 12 bytes, not 10"));
        }
        let config = config(o, Mac::of_name(b'p', &format!("{switch}:{port}")));
        PtnetPort::check(&config).map_err(|e| Refusal::new(e.errno(), e.to_string()))?;
        let (seats, (egress, ingresses)) = Seats::new(config.tx_rings, config.rx_rings)?;
        let ptnet = self.ptnet_port(path, config, o.vfio_user, Arc::new(seats), true)?;
        let device = Device { kind: PortKind::Ptnet, ptnet: Some(ptnet), ..Device::default() };
        let new = NewPort::device(device, caller, o);
        self.plug(switch, port, egress, ingresses, new).map(|_| ())
    }

    /// Opens a device's socket; `survives`: its guest may outlive this process.
    pub(crate) fn ptnet_port(
        &mut self,
        path: &str,
        config: Config,
        vfio_user: bool,
        backend: Arc<dyn Backend>,
        survives: bool,
    ) -> Result<PtnetPort, Refusal> {
        let way = if vfio_user { Way::VfioUser } else { Way::Ivshmem };
        let options = PtnetOptions { path: path.into(), config, way };
        let keeps = survives && crate::keep::is_there();
        let survival = Survival {
            keeper: keeps.then(|| Arc::new(crate::keep::Systemd) as Arc<dyn Keeper>),
            // What was kept is a guest's with memory of its own.
            kept: survives.then(|| netvale_ptnet::keep::take(&mut self.kept, Path::new(path), &config)).flatten(),
        };
        PtnetPort::new(&options, backend, survival).map_err(|e| self.unreached(e.errno(), e.to_string()))
    }
}

/// A device as the options say.
pub fn config(o: &PortOptions, mac: Mac) -> Config {
    Config {
        tx_rings: o.rings.max(1),
        rx_rings: o.rings.max(1),
        slots: if o.slots == 0 { DEFAULT_SLOTS } else { o.slots },
        buf_size: o.buf_size,
        vnet_hdr: o.vnet_hdr != 0,
        mac: o.mac.unwrap_or(mac).0,
        mtu: o.mtu.unwrap_or(1500),
    }
}

/// What `netvale vm` goes by.
pub fn info(port: &PtnetPort) -> PtnetInfo {
    let o = port.options();
    let c = &o.config;
    let memory = (o.way == Way::VfioUser).then(|| memory_path(&o.path).display().to_string());
    PtnetInfo { path: o.path.display().to_string(), memory, vectors: c.vectors(), mac: Mac(c.mac), mtu: c.mtu }
}

/// Sentences for `netvale show`.
pub fn notes(port: &PtnetPort) -> Vec<String> {
    let state = port.state();
    let rings = match state.now.running {
        Some(0) => "rings run",
        Some(_) => "rings run, frames with virtio-net header",
        None => "rings stopped",
    };
    let now = state.connected.then(|| rings.to_owned());
    machine_notes(now, state.connections, state.last_error)
}
