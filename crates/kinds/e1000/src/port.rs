//! An e1000 port: a socket, a card for each hypervisor that connects to it, and the switch's two queues.

mod state;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use netvale_mem::fault::Fault;
use netvale_mem::notify::nap;
use netvale_port::listener::{Listener, OpenError, RETRY, Site};
use netvale_port::service::{self, Peer, Protocol, Service};
use netvale_port::{Egress, Ingress};
use netvale_vfio_user::Device;
use netvale_vfio_user::ended::Ended;
use netvale_vfio_user::serve::serve;
use netvale_vfio_user::session::Session;

pub use self::state::PortState;
use crate::core::{Crossings, Shared};
use crate::device::{Card, E1000};
use crate::egress::E1000Egress;
use crate::ingress::E1000Ingress;
use crate::vfio::E1000Device;

/// The options of a port.
#[derive(Clone, Debug)]
pub struct E1000Options {
    /// The socket.
    pub site: Site,
    /// The card.
    pub card: Card,
}

/// A port. Dropping it ends the connection and the thread, and removes the socket.
pub struct E1000Port {
    options: E1000Options,
    shared: Arc<Shared>,
    service: Service<()>,
    listener: Arc<Listener>,
}

/// Name of the control threads.
const THREAD: &str = "netvale-e1000";

/// The port's queues for the switch.
pub type Queues = (Arc<dyn Egress>, Box<dyn Ingress>);

impl E1000Port {
    /// Opens the socket and serves it.
    ///
    /// # Errors
    /// [`OpenError`] if the socket or the thread cannot be created.
    pub fn new(options: &E1000Options) -> Result<(E1000Port, Queues), OpenError> {
        let failed = OpenError::step(options.site.path(), "make a timer");
        let shared = Shared::new(E1000::new(options.card)).map_err(failed)?;
        let (listener, file) = Listener::listen(&options.site)?;
        let listener = Arc::new(listener);
        let server = Server::new(options.card, &listener, &shared);
        let service = Service::start(THREAD, options.site.path().display(), Some(file), server)?;
        let queues = queues(&shared);
        Ok((E1000Port { options: options.clone(), shared, service, listener }, queues))
    }

    /// The options of its creation.
    pub fn options(&self) -> &E1000Options {
        &self.options
    }

    /// State of its virtual machines.
    pub fn state(&self) -> service::State<()> {
        self.service.state()
    }

    /// Has a thread of the port call `call` whenever a virtual machine connects or leaves. Only the first registration
    /// counts.
    pub fn on_peer(&self, call: impl Fn() + Send + Sync + 'static) {
        self.service.on_peer(call);
    }

    /// Counts of register accesses and interrupts.
    pub fn crossings(&self) -> &Crossings {
        &self.shared.crossings
    }

    /// Whether the driver has set the link up.
    pub fn is_linked(&self) -> bool {
        self.shared.control(|core| core.e1000.is_linked()).unwrap_or(false)
    }

    /// The same without waiting; `None` if another thread holds the card.
    pub fn is_linked_now(&self) -> Option<bool> {
        self.shared.look(|core| core.e1000.is_linked())
    }
}

fn queues(shared: &Arc<Shared>) -> Queues {
    (Arc::new(E1000Egress::new(Arc::clone(shared))), Box::new(E1000Ingress::new(Arc::clone(shared))))
}

/// A guest's session with the card.
type Guest = Session<E1000Device>;

/// A hypervisor that has just connected, or one restored from another process.
enum Connected {
    New(OwnedFd),
    Continued(OwnedFd, Box<Guest>, Fault),
}

/// State of the control thread.
struct Server {
    listener: Arc<Listener>,
    card: Card,
    shared: Arc<Shared>,
    /// The restored guest, served first.
    first: Option<Connected>,
}

impl Server {
    /// Creates a server without a restored guest.
    fn new(card: Card, listener: &Arc<Listener>, shared: &Arc<Shared>) -> Server {
        Server { listener: Arc::clone(listener), card, shared: Arc::clone(shared), first: None }
    }
}

impl Protocol for Server {
    type Connection = Connected;
    type Detail = ();
    type Kept = ();
    const PEER: &'static str = "virtual machine";

    fn next(&mut self, stop: BorrowedFd<'_>) -> Option<Result<Connected, String>> {
        if let Some(first) = self.first.take() {
            return Some(Ok(first));
        }
        // The previous machine's card is switched off as soon as the last worker has left it, not only when another
        // machine connects.
        while self.shared.power_off().is_err() {
            if nap(stop, RETRY) {
                return None;
            }
        }
        self.listener.accept(stop).map(|connection| Ok(Connected::New(connection)))
    }

    fn fault(&self, connection: &Connected) -> Option<Fault> {
        if let Connected::Continued(.., fault) = connection { Some(fault.clone()) } else { None }
    }

    /// Serves a hypervisor: a new one finds the card in its state after power-up, a restored one as it was.
    fn serve(&mut self, connection: Connected, peer: &Peer<()>) -> Result<(), String> {
        let (connection, mut session) = match connection {
            Connected::New(connection) => {
                let device = E1000Device::new(Arc::clone(&self.shared), self.card.subsystem);
                (connection, Session::new(device, E1000Device::vectors(), peer.fault()))
            }
            Connected::Continued(connection, mut session, _) => {
                // Handles a timer that expired meanwhile.
                session.device().0.tick();
                (connection, *session)
            }
        };
        let ended = loop {
            let ended = serve(connection.as_fd(), peer.ends(), &mut session);
            let pause = if matches!(ended, Ended::Stopped) { peer.asked_to_pause() } else { None };
            let Some(pause) = pause else { break ended };
            pause.with(Box::new(state::say(&connection, &mut session)));
        };
        // If a worker stays inside, this is retried before the next machine.
        let _ = self.shared.power_off();
        ended.reason().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use netvale_mem::fault::LOST;

    use super::*;
    use crate::driver::DriverOptions;
    use crate::driver::ram::GUEST;
    use crate::driver::remote::Guest;

    const LIMIT: Duration = Duration::from_secs(30);

    fn until(what: &str, done: impl FnMut() -> bool) {
        assert!(netvale_harness::until(LIMIT, Duration::ZERO, done), "time is up: {what}");
    }

    fn port_and_guest() -> (tempfile::TempDir, E1000Port, Guest) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let card = Card { mac: [2, 0, 0, 0, 0, 1], subsystem: 0, forced_interval: None };
        let (port, _queues) = E1000Port::new(&E1000Options { site: path.clone().into(), card }).unwrap();
        let guest = Guest::new(&path, DriverOptions::default()).unwrap();
        (dir, port, guest)
    }

    /// Objective: the card of a guest that disconnects while a worker stays in it is powered off when the worker
    /// leaves, even if no other guest connects.
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

    /// Objective: a loss of a driver's memory is attributed to its card.
    #[test]
    fn losses_are_blamed() {
        let (_dir, _port, guest) = port_and_guest();
        guest.ram.mapping().lose();
        assert_eq!(guest.fault.reason().as_deref(), Some(LOST));
    }
}
