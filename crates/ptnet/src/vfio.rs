//! A ptnet port's two vfio-user sockets, and who knocks there.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use netvale_port::door::{Door, nap};
use netvale_vfio_user::Device;
use netvale_vfio_user::serve::serve;
use netvale_vfio_user::session::Session;

use crate::backend::Backend;
use crate::header::Config;
use crate::instance::InstanceError;
use crate::machine::Machine;
use crate::port::{PtnetState, RETRY, Shared};
use crate::published::{MemoryDevice, PtnetDevice};

/// Where the memory device listens: beside the ptnet device.
pub fn memory_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".mem");
    name.into()
}

/// The thread of the ptnet device.
pub(crate) struct PtnetServer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) config: Config,
    pub(crate) door: Door,
    pub(crate) machine: Arc<Machine>,
}

impl PtnetServer {
    pub(crate) fn run(&self) {
        let make = || {
            let shared = Arc::clone(&self.shared);
            let tell = Box::new(move |running| {
                shared.update(|s| (s.commands, s.running) = (s.commands + 1, running));
            });
            let device = PtnetDevice::new(&self.config, &self.machine, &self.backend, tell)?;
            Ok(Session::new(device, PtnetDevice::vectors(&self.config)))
        };
        serve_all(&self.shared, &self.door, true, make);
    }
}

/// The thread of the memory device.
pub(crate) struct MemoryServer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) config: Config,
    pub(crate) door: Door,
    pub(crate) machine: Arc<Machine>,
}

impl MemoryServer {
    pub(crate) fn run(&self) {
        let make = || {
            let device = MemoryDevice::new(&self.config, &self.machine)?;
            Ok(Session::new(device, MemoryDevice::VECTORS))
        };
        serve_all(&self.shared, &self.door, false, make);
    }
}

/// Serves one client after the other until the port ends; `told`: the port's state is this device's.
fn serve_all<D: Device>(
    shared: &Shared,
    door: &Door,
    told: bool,
    make: impl Fn() -> Result<Session<D>, InstanceError>,
) {
    let stop = shared.stop.as_fd();
    while let Some(connection) = door.meet(stop) {
        if told {
            shared.update(PtnetState::begin);
        }
        let ended = match make() {
            Ok(mut session) => serve(connection.as_fd(), stop, &mut session).reason(),
            Err(e) => Some(e.to_string()),
        };
        let path = door.path().display();
        match &ended {
            None => tracing::info!(%path, "virtual machine gone"),
            Some(why) => tracing::warn!(%path, why, "virtual machine disconnected"),
        }
        let failed = ended.is_some();
        if told {
            shared.update(|s| s.end(ended));
        }
        // One that comes back at once with the same mistake is not worth a core.
        if failed && nap(stop, RETRY) {
            return;
        }
    }
}
