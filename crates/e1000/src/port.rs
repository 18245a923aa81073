//! An e1000 port: a socket, a card for each hypervisor that connects there, and the switch's two queues.

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;

use netvale_port::listener::OpenError;
use netvale_port::service::{self, Service};
use netvale_port::{Egress, Ingress};
use netvale_vfio_user::serve::serve;
use netvale_vfio_user::session::Session;

use crate::core::{Crossings, Shared};
use crate::device::{Card, E1000};
use crate::egress::E1000Egress;
use crate::ingress::E1000Ingress;
use crate::vfio::E1000Device;

/// What a port is made with.
#[derive(Clone, Debug)]
pub struct E1000Options {
    /// The socket.
    pub path: PathBuf,
    /// The card.
    pub card: Card,
}

/// A port. Dropping it ends the connection and the thread, and removes the socket.
pub struct E1000Port {
    options: E1000Options,
    shared: Arc<Shared>,
    service: Service<()>,
}

/// The port's queues for the switch.
pub type Queues = (Arc<dyn Egress>, Box<dyn Ingress>);

impl E1000Port {
    /// Opens the socket and serves it. Each hypervisor finds the card as after power-up.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn new(options: &E1000Options) -> Result<(E1000Port, Queues), OpenError> {
        let shared = Shared::new(E1000::new(options.card)).map_err(OpenError::step(&options.path, "make a timer"))?;
        let (card, subsystem) = (Arc::clone(&shared), options.card.subsystem);
        let service = Service::of_machines("netvale-e1000", &options.path, move |connection, peering| {
            let device = E1000Device::new(Arc::clone(&card), subsystem);
            let mut session = Session::new(device, E1000Device::vectors(), peering.fault());
            let ended = serve(connection.as_fd(), peering.ends(), &mut session);
            session.device().0.power_off();
            ended.reason().map_or(Ok(()), Err)
        })?;
        let egress = Arc::new(E1000Egress::new(Arc::clone(&shared)));
        let ingress = Box::new(E1000Ingress::new(Arc::clone(&shared)));
        Ok((E1000Port { options: options.clone(), shared, service }, (egress, ingress)))
    }

    /// What it was made with.
    pub fn options(&self) -> &E1000Options {
        &self.options
    }

    /// Its virtual machine, and those before.
    pub fn state(&self) -> service::State<()> {
        self.service.state()
    }

    /// Register accesses and interrupts so far.
    pub fn crossings(&self) -> &Crossings {
        &self.shared.crossings
    }

    /// The driver has the link up.
    pub fn is_linked(&self) -> bool {
        self.shared.control(|core| core.e1000.is_linked()).unwrap_or(false)
    }
}
