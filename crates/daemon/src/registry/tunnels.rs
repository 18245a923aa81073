//! UDP sockets that tunnels share, and who waits for changes of what is on this side of a tunnel.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::Duration;

use netvale_mem::notify::Doorbell;
use netvale_vxlan::{Endpoint, EndpointError};

/// How often, and how long, the socket of a tunnel that has just gone is waited for.
const LOOKS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(1);

/// Endpoints by address and port, and watchers by port and connection: each with the generation that it knows.
pub struct Tunnels {
    endpoints: BTreeMap<(IpAddr, u16), Weak<Endpoint>>,
    watchers: BTreeMap<(String, u64), u64>,
    news: Arc<Doorbell>,
}

impl Tunnels {
    /// None.
    ///
    /// # Errors
    /// Fails if no descriptors are left.
    pub fn new() -> std::io::Result<Tunnels> {
        let (endpoints, watchers) = Default::default();
        Ok(Tunnels { endpoints, watchers, news: Arc::new(Doorbell::new()?) })
    }

    /// The endpoint at that address and port; opened, or continued with a socket of another process, if there is none.
    ///
    /// # Errors
    /// [`EndpointError`] if it cannot be.
    pub fn endpoint(&mut self, at: (IpAddr, u16), socket: Option<OwnedFd>) -> Result<Arc<Endpoint>, EndpointError> {
        let before = self.endpoints.get(&at);
        if let Some(known) = before.and_then(Weak::upgrade) {
            return Ok(known);
        }
        let (local, port) = at;
        let endpoint = Arc::new(match socket {
            Some(socket) => Endpoint::continued(local, port, socket)?,
            None => open(local, port, before.is_some())?,
        });
        self.endpoints.retain(|_, known| known.strong_count() > 0);
        self.endpoints.insert(at, Arc::downgrade(&endpoint));
        Ok(endpoint)
    }

    /// Rung when something that is watched has changed.
    pub fn news(&self) -> &Arc<Doorbell> {
        &self.news
    }

    /// Readable when something that is watched has changed.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.news.as_fd()
    }

    /// A connection wants to be told when a port's generation is no longer this one.
    pub fn watch(&mut self, port: &str, client: u64, generation: u64) {
        self.watchers.insert((port.to_owned(), client), generation);
    }

    /// A connection is gone.
    pub fn forget(&mut self, client: u64) {
        self.watchers.retain(|(_, watcher), _| *watcher != client);
    }

    /// Ports that are watched, by whom, and the generation that they know.
    pub fn watchers(&self) -> Vec<(String, u64, u64)> {
        self.watchers.iter().map(|((port, client), generation)| (port.clone(), *client, *generation)).collect()
    }

    /// A connection has been told.
    pub fn told(&mut self, port: &str, client: u64) {
        self.watchers.remove(&(port.to_owned(), client));
    }
}

/// Opens an endpoint. If there was one before, a worker may be about to close its socket.
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
