//! The two vfio-user sockets of a ptnet port, and their services.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use netvale_port::listener::{OpenError, Site};
use netvale_port::service::{Peer, Service};
use netvale_vfio_user::serve::serve;
use netvale_vfio_user::session::Session;

use crate::backend::Backend;
use crate::guest::{Guest, THREAD};
use crate::header::Config;
use crate::machine::Machine;
use crate::published::{MemoryDevice, PtnetDevice};

/// What the name of the memory device's socket ends with.
const MEMORY: &str = ".mem";

/// The socket of the memory device: beside that of the ptnet device.
pub fn memory_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(MEMORY);
    name.into()
}

/// Serves the ptnet device at `site`, and the memory device beside it.
pub(crate) fn services(
    site: &Site,
    config: Config,
    backend: Arc<dyn Backend>,
) -> Result<(Service<Guest>, Service<()>), OpenError> {
    let machine = Arc::<Machine>::default();
    let shown = Arc::clone(&machine);
    let memory = Service::of_machines(THREAD, &site.beside(MEMORY), move |connection, peer| {
        let device = MemoryDevice::new(&config, &shown).map_err(|e| e.to_string())?;
        let mut session = Session::new(device, MemoryDevice::VECTORS, peer.fault());
        serve(connection.as_fd(), peer.ends(), &mut session).reason().map_or(Ok(()), Err)
    })?;
    let service = Service::of_machines(THREAD, site, move |connection, peer: &Peer<Guest>| {
        let (told, fault) = (peer.told().clone(), peer.fault());
        let tell = Box::new(move |running| told.update(|guest: &mut Guest| guest.obeyed(running)));
        let device = PtnetDevice::new(&config, &machine, &backend, tell, fault).map_err(|e| e.to_string())?;
        let mut session = Session::new(device, PtnetDevice::vectors(&config), fault);
        serve(connection.as_fd(), peer.ends(), &mut session).reason().map_or(Ok(()), Err)
    })?;
    Ok((service, memory))
}
