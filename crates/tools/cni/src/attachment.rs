//! A container's port and what is behind it, for any runtime: made in two steps, with its addresses between them, and
//! removed.

use netvale_control::ErrorCode;
use netvale_control::client::{Client, ClientError};
use netvale_control::types::Mac;
use netvale_netns::Namespace;
use serde_json::{Map, json};

use crate::call::Container;
use crate::config::{CniConfig, InterfaceMode};
use crate::error::{CniError, Code};
use crate::kinds::{tap, vhost};
use crate::result::{ContainerAddresses, ContainerInterface};

/// A container's port.
#[derive(Clone, Copy, Debug)]
pub struct AttachedContainer<'a> {
    /// Its network.
    pub config: &'a CniConfig,
    /// The container.
    pub container: &'a Container,
    /// Its name on the switch.
    pub port: &'a str,
}

impl AttachedContainer<'_> {
    /// Its full name.
    pub fn full(&self) -> String {
        format!("{}:{}", self.config.bridge, self.port)
    }

    /// Whether it is on the switch.
    ///
    /// # Errors
    /// [`CniError`] if the daemon does not answer, or refuses.
    pub fn is_there(&self, daemon: &mut Client) -> Result<bool, CniError> {
        Ok(found(daemon.show(&self.full()))?.is_some())
    }

    /// The error for one that is there already.
    pub fn exists(&self, advice: &str) -> CniError {
        let Container { id, ifname, .. } = self.container;
        let text = format!("container {id} has an interface {ifname} in the network {} already", self.config.name);
        CniError::advised(Code::Exists, text, advice)
    }

    /// Attaches an interface, still down. A failed step undoes the earlier ones.
    ///
    /// # Errors
    /// As [`tap::attach`].
    pub fn begin(&self, namespace: &Namespace) -> Result<(), CniError> {
        match self.config.mode {
            InterfaceMode::Tap => tap::attach(self.config, self.container, self.port, namespace),
            // Its description has the addresses.
            InterfaceMode::VhostUser => Ok(()),
        }
    }

    /// Sets policies and addresses, and brings the interface up; attaches a vhost-user socket. Undoes nothing.
    ///
    /// # Errors
    /// [`CniError`] with the step that failed.
    pub fn complete(
        &self,
        namespace: &Namespace,
        addresses: &ContainerAddresses,
    ) -> Result<ContainerInterface, CniError> {
        let AttachedContainer { config, container, port } = *self;
        let mut daemon = connect(config)?;
        match config.mode {
            InterfaceMode::Tap => {
                // Before the interface is up, so that every frame passes under its policies.
                let mac = tap::address(namespace, &container.ifname)?;
                self.set_policies(mac, addresses, &mut daemon)?;
                tap::configure(namespace, &container.ifname, addresses)
            }
            InterfaceMode::VhostUser => {
                let interface = vhost::attach(config, container, port, addresses, &mut daemon)?;
                self.set_policies(interface.mac, addresses, &mut daemon)?;
                Ok(interface)
            }
        }
    }

    fn set_policies(&self, mac: Mac, addresses: &ContainerAddresses, daemon: &mut Client) -> Result<(), CniError> {
        let set = self.config.policies.options(mac, addresses)?;
        if !set.is_empty() {
            daemon.set(&self.full(), set)?;
        }
        // For people: a container works without it, on a daemon older than this plugin.
        let _ = daemon.set(&self.full(), Map::from_iter([("info".to_owned(), json!(self.container.about))]));
        Ok(())
    }

    /// Removes it with everything that belongs to it, and waits until its interface is gone. Its absence is no error.
    ///
    /// # Errors
    /// [`CniError`] if the daemon does not answer, or refuses.
    pub fn detach(&self, daemon: &mut Client) -> Result<(), CniError> {
        // The daemon answers before it has closed the interface.
        if remove(self.config, self.port, daemon)?
            && let Ok(namespace) = Namespace::open(&self.container.netns)
        {
            tap::wait_gone(&namespace, &self.container.ifname);
        }
        Ok(())
    }

    /// Like [`AttachedContainer::detach`], also where no daemon runs: its ports, and the interfaces behind them, ended
    /// with it.
    ///
    /// # Errors
    /// [`CniError`] if a daemon runs and does not answer, or refuses.
    pub fn end(&self) -> Result<(), CniError> {
        match Client::connect(&self.config.daemon_dir()) {
            Ok(mut daemon) => self.detach(&mut daemon),
            Err(ClientError::NotRunning { .. }) => {
                vhost::remove(self.config, self.port);
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Connects to the network's daemon.
///
/// # Errors
/// [`Code::TryAgain`] if none answers.
pub fn connect(config: &CniConfig) -> Result<Client, CniError> {
    Ok(Client::connect(&config.daemon_dir())?)
}

/// Removes a port and everything that belongs to it. Returns whether it existed; its absence is no error.
///
/// # Errors
/// [`CniError`] if the daemon does not answer, or refuses.
pub fn remove(config: &CniConfig, port: &str, daemon: &mut Client) -> Result<bool, CniError> {
    let done = found(daemon.detach(&config.bridge, port)).map(|done| done.is_some());
    vhost::remove(config, port);
    done
}

/// An answer; `None` if the daemon does not know the object.
///
/// # Errors
/// Every other error of the answer.
pub fn found<T>(answer: Result<T, ClientError>) -> Result<Option<T>, CniError> {
    match answer {
        Err(ClientError::Refused(why)) if why.is(ErrorCode::NotFound) => Ok(None),
        answer => Ok(Some(answer?)),
    }
}
