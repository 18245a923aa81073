//! An e1000 port: a socket, a card for each hypervisor that connects to it, and the port's two queues for
//! the switch.

mod state;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use netvale_mem::fault::Fault;
use netvale_mem::notify::nap;
use netvale_port::listener::{ListenAddress, Listener, OpenError, RETRY};
use netvale_port::service::{self, Protocol, Service, ServicePeer};
use netvale_port::{Egress, Ingress};
use netvale_vfio_user::Device;
use netvale_vfio_user::ended::ConnectionEnd;
use netvale_vfio_user::serve::serve;
use netvale_vfio_user::session::DeviceSession;
use netvale_vfio_user::state::VfioClient;

pub use self::state::E1000State;
use crate::core::{Crossings, SharedCore};
use crate::device::{Card, E1000};
use crate::egress::E1000Egress;
use crate::ingress::E1000Ingress;
use crate::vfio::E1000Device;

/// Options of an e1000 port.
#[derive(Clone, Debug)]
pub struct E1000Options {
    /// The socket at which hypervisors connect.
    pub site: ListenAddress,
    /// Configuration of the card.
    pub card: Card,
}

/// An e1000 port. Dropping it ends the connection and the control thread, and removes the socket.
pub struct E1000Port {
    options: E1000Options,
    shared: Arc<SharedCore>,
    service: Service<()>,
    listener: Arc<Listener>,
}

/// Name of the control threads.
const THREAD: &str = "netvale-e1000";

/// A port's queues for the switch.
pub type E1000Queues = (Arc<dyn Egress>, Box<dyn Ingress>);

impl E1000Port {
    /// Opens the socket and starts to serve hypervisors.
    ///
    /// # Errors
    /// [`OpenError`] if the socket or the thread cannot be created.
    pub fn new(options: &E1000Options) -> Result<(E1000Port, E1000Queues), OpenError> {
        let failed = OpenError::step(options.site.path(), "create a timer");
        let shared = SharedCore::new(E1000::new(options.card)).map_err(failed)?;
        let (listener, file) = Listener::listen(&options.site)?;
        let listener = Arc::new(listener);
        let server = CardServer::new(options.card, &listener, &shared);
        let service = Service::start(THREAD, options.site.path().display(), Some(file), server)?;
        let queues = queues(&shared);
        Ok((E1000Port { options: options.clone(), shared, service, listener }, queues))
    }

    /// The options with which the port was created.
    pub fn options(&self) -> &E1000Options {
        &self.options
    }

    /// State of the service that serves virtual machines: whether a machine is connected, how many machines have been
    /// connected, and why the last machine was disconnected.
    pub fn state(&self) -> service::ServiceState<()> {
        self.service.state()
    }

    /// Sets the callback that a thread of the port calls after a virtual machine connected or disconnected. Only the
    /// first call has an effect.
    pub fn on_peer(&self, call: impl Fn() + Send + Sync + 'static) {
        self.service.on_peer(call);
    }

    /// Numbers of register accesses and interrupts.
    pub fn crossings(&self) -> &Crossings {
        &self.shared.crossings
    }

    /// Whether the link is up, which the driver decides. Also false if a worker does not return the card in time.
    pub fn is_linked(&self) -> bool {
        self.shared.control(|core| core.e1000.is_linked()).unwrap_or(false)
    }

    /// Like [`E1000Port::is_linked`], but without waiting; `None` if another thread uses the card.
    pub fn is_linked_now(&self) -> Option<bool> {
        self.shared.look(|core| core.e1000.is_linked())
    }
}

fn queues(shared: &Arc<SharedCore>) -> E1000Queues {
    (Arc::new(E1000Egress::new(Arc::clone(shared))), Box::new(E1000Ingress::new(Arc::clone(shared))))
}

/// A guest's session with the card.
type CardSession = DeviceSession<E1000Device>;

/// A hypervisor that has just connected, or a predecessor's hypervisor.
type CardClient = VfioClient<E1000Device>;

/// State of the control thread, which serves hypervisors.
struct CardServer {
    listener: Arc<Listener>,
    card: Card,
    shared: Arc<SharedCore>,
    /// A restored guest, which is served before all other guests; `None` if there is none.
    first: Option<CardClient>,
}

impl CardServer {
    /// Creates a server without a restored guest.
    fn new(card: Card, listener: &Arc<Listener>, shared: &Arc<SharedCore>) -> CardServer {
        CardServer { listener: Arc::clone(listener), card, shared: Arc::clone(shared), first: None }
    }
}

impl Protocol for CardServer {
    type Connection = CardClient;
    type Detail = ();
    type Kept = ();
    const PEER: &'static str = "virtual machine";

    fn next(&mut self, stop: BorrowedFd<'_>) -> Option<Result<CardClient, String>> {
        if let Some(first) = self.first.take() {
            return Some(Ok(first));
        }
        // Power off the previous machine's card as soon as no worker uses it, and not only when another machine
        // connects.
        while self.shared.power_off().is_err() {
            if nap(stop, RETRY) {
                return None;
            }
        }
        self.listener.accept(stop).map(|connection| Ok(CardClient::New(connection)))
    }

    fn fault(&self, connection: &CardClient) -> Option<Fault> {
        connection.fault()
    }

    /// Serves a hypervisor. For a new hypervisor, the card is in its state after power-up; for a restored hypervisor,
    /// the card is unchanged.
    fn serve(&mut self, connection: CardClient, peer: &ServicePeer<()>) -> Result<(), String> {
        let (connection, mut session) = match connection {
            CardClient::New(connection) => {
                let device = E1000Device::new(Arc::clone(&self.shared), self.card.subsystem);
                (connection, DeviceSession::new(device, E1000Device::vectors(), peer.fault()))
            }
            CardClient::Continued(connection, mut session, _) => {
                // The timer may have expired during the handover.
                session.device().0.tick();
                (connection, *session)
            }
        };
        let ended = loop {
            let ended = serve(connection.as_fd(), peer.ends(), &mut session);
            let pause = if matches!(ended, ConnectionEnd::Stopped) { peer.asked_to_pause() } else { None };
            let Some(pause) = pause else { break ended };
            pause.with(Box::new(state::say(&connection, &mut session)));
        };
        // If a worker still uses the card, `next` tries again.
        let _ = self.shared.power_off();
        ended.reason().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use netvale_mem::fault::LOST;

    use super::*;
    use crate::driver::CardDriverOptions;
    use crate::driver::ram::GUEST;
    use crate::driver::remote::SimulatedGuest;

    const LIMIT: Duration = Duration::from_secs(30);

    fn until(what: &str, done: impl FnMut() -> bool) {
        assert!(netvale_harness::until(LIMIT, Duration::ZERO, done), "timed out: {what}");
    }

    fn port_and_guest() -> (tempfile::TempDir, E1000Port, SimulatedGuest) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let card = Card { mac: [2, 0, 0, 0, 0, 1], subsystem: 0, forced_interval: None };
        let (port, _queues) = E1000Port::new(&E1000Options { site: path.clone().into(), card }).unwrap();
        let guest = SimulatedGuest::new(&path, CardDriverOptions::default()).unwrap();
        (dir, port, guest)
    }

    /// Objective: if a guest disconnects while a worker uses its card, the card is powered off when the worker has
    /// finished, even if no other guest connects.
    #[test]
    fn off_when_the_worker_leaves() {
        let (_dir, port, guest) = port_and_guest();
        assert!(port.is_linked());
        let worker = port.shared.enter();
        drop(guest);
        until("the guest is given up", || !port.state().connected);
        drop(worker);
        let is_off =
            || port.shared.control(|core| core.memory.finder().at(GUEST, 1).is_none() && !core.e1000.is_linked());
        until("the card is off", || is_off() == Ok(true));
    }

    /// Objective: the loss of a driver's memory sets the fault of its card.
    #[test]
    fn losses_are_blamed() {
        let (_dir, _port, guest) = port_and_guest();
        guest.ram.mapping().lose();
        assert_eq!(guest.fault.reason().as_deref(), Some(LOST));
    }
}
