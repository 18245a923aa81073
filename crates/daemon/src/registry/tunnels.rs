//! The endpoints (UDP sockets) that tunnels share, and the connections that wait for changes of the addresses on a
//! tunnel's local side.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::Duration;

use netvale_mem::notify::Doorbell;
use netvale_vxlan::{Endpoint, EndpointError};

/// Maximum number of attempts, after the first, to bind a UDP port whose former socket is about to be closed.
const LOOKS: u32 = 20;
/// Pause between two attempts to bind a UDP port.
const PAUSE: Duration = Duration::from_millis(1);

/// Endpoints, by IP address and UDP port, and watchers, by tunnel port and connection. Each watcher has a generation:
/// the number of changes that its connection has seen.
pub struct Tunnels {
    endpoints: BTreeMap<(IpAddr, u16), Weak<Endpoint>>,
    watchers: BTreeMap<(String, u64), u64>,
    news: Arc<Doorbell>,
}

impl Tunnels {
    /// Creates an empty registry.
    ///
    /// # Errors
    /// Fails if no descriptors are left.
    pub fn new() -> std::io::Result<Tunnels> {
        let (endpoints, watchers) = Default::default();
        Ok(Tunnels { endpoints, watchers, news: Arc::new(Doorbell::new()?) })
    }

    /// Returns the endpoint of that address and port. If the endpoint does not exist, opens it, or restores it from a
    /// socket that another process saved.
    ///
    /// # Errors
    /// [`EndpointError`] if the endpoint cannot be opened or restored.
    pub fn endpoint(
        &mut self,
        local: IpAddr,
        port: u16,
        socket: Option<OwnedFd>,
    ) -> Result<Arc<Endpoint>, EndpointError> {
        let at = (local, port);
        let before = self.endpoints.get(&at);
        if let Some(known) = before.and_then(Weak::upgrade) {
            return Ok(known);
        }
        let endpoint = Arc::new(match socket {
            Some(socket) => Endpoint::continued(local, port, socket)?,
            None => open(local, port, before.is_some())?,
        });
        self.endpoints.retain(|_, known| known.strong_count() > 0);
        self.endpoints.insert(at, Arc::downgrade(&endpoint));
        Ok(endpoint)
    }

    /// Returns the doorbell that is rung when a watched tunnel changes.
    pub fn news(&self) -> &Arc<Doorbell> {
        &self.news
    }

    /// Returns the descriptor that is readable when a watched tunnel has changed.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.news.as_fd()
    }

    /// Registers a connection, which will be notified when the tunnel's count of changes differs from `generation`.
    pub fn watch(&mut self, port: &str, client: u64, generation: u64) {
        self.watchers.insert((port.to_owned(), client), generation);
    }

    /// Forgets a closed connection.
    pub fn forget(&mut self, client: u64) {
        self.watchers.retain(|(_, watcher), _| *watcher != client);
    }

    /// Returns the name of each watched port, the connection that watches it, and the generation that this connection
    /// has seen.
    pub fn watchers(&self) -> Vec<(String, u64, u64)> {
        self.watchers.iter().map(|((port, client), generation)| (port.clone(), *client, *generation)).collect()
    }

    /// Ends the watch of a connection that has been notified.
    pub fn told(&mut self, port: &str, client: u64) {
        self.watchers.remove(&(port.to_owned(), client));
    }
}

/// Opens an endpoint. If `was_here` is set, an endpoint with this address has just been dropped. A worker may still be
/// closing that endpoint's socket, so binding is retried.
fn open(local: IpAddr, port: u16, was_here: bool) -> Result<Endpoint, EndpointError> {
    let mut looks = if was_here { LOOKS } else { 0 };
    loop {
        match Endpoint::new(local, port) {
            Err(EndpointError::InUse(..)) if looks > 0 => {
                looks -= 1;
                std::thread::sleep(PAUSE);
            }
            result => return result,
        }
    }
}
