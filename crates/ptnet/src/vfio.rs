//! A ptnet port's two vfio-user sockets, and what is served there.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use netvale_port::listener::Listener;
use netvale_port::service::{Peering, Protocol};
use netvale_vfio_user::serve::serve;
use netvale_vfio_user::session::Session;

use crate::backend::Backend;
use crate::header::Config;
use crate::machine::Machine;
use crate::port::Guest;
use crate::published::{MemoryDevice, PtnetDevice};

/// Where the memory device listens: beside the ptnet device.
pub fn memory_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".mem");
    name.into()
}

/// The ptnet device's.
pub(crate) struct PtnetServer {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) config: Config,
    pub(crate) listener: Listener,
    pub(crate) machine: Arc<Machine>,
}

impl Protocol for PtnetServer {
    type Connection = OwnedFd;
    type Detail = Guest;
    const PEER: &'static str = "virtual machine";

    fn next(&mut self, stop: BorrowedFd<'_>) -> Option<Result<OwnedFd, String>> {
        self.listener.accept(stop).map(Ok)
    }

    fn serve(&mut self, connection: OwnedFd, peering: &Peering<Guest>) -> Result<(), String> {
        let (told, fault) = (peering.told().clone(), peering.fault());
        let tell = Box::new(move |running| told.update(|guest| guest.obeyed(running)));
        let device = PtnetDevice::new(&self.config, &self.machine, &self.backend, tell, fault);
        let device = device.map_err(|e| e.to_string())?;
        let mut session = Session::new(device, PtnetDevice::vectors(&self.config), fault);
        serve(connection.as_fd(), peering.ends(), &mut session).reason().map_or(Ok(()), Err)
    }
}

/// The memory device's.
pub(crate) struct MemoryServer {
    pub(crate) config: Config,
    pub(crate) listener: Listener,
    pub(crate) machine: Arc<Machine>,
}

impl Protocol for MemoryServer {
    type Connection = OwnedFd;
    type Detail = ();
    const PEER: &'static str = "virtual machine";

    fn next(&mut self, stop: BorrowedFd<'_>) -> Option<Result<OwnedFd, String>> {
        self.listener.accept(stop).map(Ok)
    }

    fn serve(&mut self, connection: OwnedFd, peering: &Peering<()>) -> Result<(), String> {
        let device = MemoryDevice::new(&self.config, &self.machine).map_err(|e| e.to_string())?;
        let mut session = Session::new(device, MemoryDevice::VECTORS, peering.fault());
        serve(connection.as_fd(), peering.ends(), &mut session).reason().map_or(Ok(()), Err)
    }
}
