//! A container's port, with the interface or socket behind it, for both CNI and netavark. A port is attached in two
//! steps, between which the runtime obtains the container's addresses.

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

/// A container's port, which need not exist yet.
#[derive(Clone, Copy, Debug)]
pub struct AttachedContainer<'a> {
    /// The configuration of the container's network.
    pub config: &'a CniConfig,
    /// The container to which the port belongs.
    pub container: &'a Container,
    /// The port's name on the switch.
    pub port: &'a str,
}

impl AttachedContainer<'_> {
    /// Returns the port's full name, `SWITCH:PORT`.
    pub fn full(&self) -> String {
        format!("{}:{}", self.config.bridge, self.port)
    }

    /// Returns whether the port is on the switch.
    ///
    /// # Errors
    /// [`CniError`] if the daemon does not answer, or refuses the request.
    pub fn is_there(&self, daemon: &mut Client) -> Result<bool, CniError> {
        Ok(found(daemon.show(&self.full()))?.is_some())
    }

    /// Returns the error for a container that already has the interface.
    pub fn exists(&self, advice: &str) -> CniError {
        let Container { id, ifname, .. } = self.container;
        let text = format!("container {id} already has an interface {ifname} in the network {}", self.config.name);
        CniError::advised(Code::Exists, text, advice)
    }

    /// In TAP mode, creates and attaches the interface, still down; if a step fails, the earlier steps are undone. In
    /// vhost-user mode, does nothing.
    ///
    /// # Errors
    /// As [`tap::attach`].
    pub fn begin(&self, namespace: &Namespace) -> Result<(), CniError> {
        match self.config.mode {
            InterfaceMode::Tap => tap::attach(self.config, self.container, self.port, namespace),
            // The description of the socket contains the addresses, which are not known yet, so `complete` creates the
            // socket and the description.
            InterfaceMode::VhostUser => Ok(()),
        }
    }

    /// In TAP mode, sets policies and addresses and brings the interface up; in vhost-user mode, attaches the socket
    /// and sets policies. If a step fails, the caller must call [`AttachedContainer::detach`].
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
                // Policies are set while the interface is down, so that they apply to every frame.
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
        // An error is ignored: the port's `info` text only informs users, and a daemon that is older than this plugin
        // may refuse it.
        let _ = daemon.set(&self.full(), Map::from_iter([("info".to_owned(), json!(self.container.about))]));
        Ok(())
    }

    /// Removes the port with everything that belongs to it, and waits until the interface has disappeared. It is no
    /// error if the port does not exist.
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

    /// Like [`AttachedContainer::detach`], but succeeds if no daemon runs: ports and interfaces end with the daemon, so
    /// only the folder of a vhost-user socket remains to be removed.
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

/// Connects to the daemon of the network's switch.
///
/// # Errors
/// [`Code::TryAgain`] if the daemon does not answer.
pub fn connect(config: &CniConfig) -> Result<Client, CniError> {
    Ok(Client::connect(&config.daemon_dir())?)
}

/// Removes a port and everything that belongs to it. Returns whether the port existed; it is no error if it did not.
///
/// # Errors
/// [`CniError`] if the daemon does not answer, or refuses.
pub fn remove(config: &CniConfig, port: &str, daemon: &mut Client) -> Result<bool, CniError> {
    let done = found(daemon.detach(&config.bridge, port)).map(|done| done.is_some());
    vhost::remove(config, port);
    done
}

/// Converts an answer of the daemon: `None` if the daemon reports that the object does not exist.
///
/// # Errors
/// Every other error of the answer.
pub fn found<T>(answer: Result<T, ClientError>) -> Result<Option<T>, CniError> {
    match answer {
        Err(ClientError::Refused(why)) if why.is(ErrorCode::NotFound) => Ok(None),
        answer => Ok(Some(answer?)),
    }
}
