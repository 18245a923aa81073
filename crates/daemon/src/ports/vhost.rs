//! `vhost:/PATH`: a virtio-net device that a driver in a virtual machine uses by vhost-user.

use netvale_control::options::kind;
use netvale_control::types::{Mac, PortInfo, PortKind, VhostInfo};
use netvale_fdio::state::{BadState, State};
use netvale_port::service::AskedToPause;
use netvale_portspec::AttachSpec;
use netvale_vhost::port::{VhostMode, VhostOptions, VhostPort};
use netvale_virtio::VirtioPortError;

use super::handed::{domain_of_listener, domain_of_site};
use super::kind::AdmittedRequest;
use super::notes::negotiated;
use super::plug::{NewPort, plug};
use super::site::site;
use crate::daemon::{Daemon, PortBackend, PortPeers};
use crate::handover::items::ParkedPort;
use crate::permission::unreached;
use crate::refusal::Refusal;

/// Backend of a port with a vhost-user device.
struct VhostDevicePort(VhostPort);

impl PortBackend for VhostDevicePort {
    fn kind(&self) -> PortKind {
        PortKind::Vhost
    }

    fn describe(&self, port: &mut PortInfo) {
        port.detail = Some(info(&self.0).into());
    }

    fn peers(&self) -> Option<PortPeers> {
        Some(self.0.state().into())
    }

    fn link(&self) -> Option<bool> {
        Some(self.0.state().now.queues > 0)
    }

    fn notes(&self) -> Vec<String> {
        let state = self.0.state();
        let (calls, kicks) = self.0.notifications();
        let mut notes = vec![if state.connected {
            format!(
                "front end connected, {} queues running, {calls} calls to it, {kicks} kicks from it",
                state.now.queues
            )
        } else {
            format!("waits for a front end; connections: {}", state.connections)
        }];
        if state.connected && state.connections > 1 {
            notes.push(format!("earlier front ends: {}", state.connections - 1));
        }
        if state.now.queues > 0 {
            notes.push(format!("driver: {}", negotiated(state.now.features)));
        }
        notes.extend(state.last_error.map(|why| format!("the last front end was disconnected: {why}")));
        notes
    }

    /// Returns the number of calls (interrupts to the guest) sent, and of kicks received.
    fn kicks(&self) -> Option<(u64, u64)> {
        Some(self.0.notifications())
    }

    /// Sets the MTU that drivers are offered. A new value takes effect when a driver starts and reads it.
    fn set_mtu(&self, mtu: Option<u32>) -> Result<(), Refusal> {
        self.0.mtu().set(offered(mtu));
        Ok(())
    }

    fn ask_to_pause(&self) -> Vec<AskedToPause> {
        vec![self.0.ask_to_pause()]
    }

    fn save(&self) -> std::io::Result<Option<State>> {
        Ok(self.0.save().map(|state| State::of(&state)).transpose()?)
    }

    fn save_parked(&self) -> std::io::Result<Option<ParkedPort>> {
        self.0.save_parked()?.map(|(state, paused)| ParkedPort::of(&state, [paused])).transpose()
    }
}

/// Attaches a port with a vhost-user device, or restores such a port.
pub fn attach(d: &mut Daemon, asked: &AdmittedRequest<'_>) -> Result<(), Refusal> {
    let AttachSpec::Vhost(path) = asked.spec else { return Err(asked.mistaken()) };
    let o = asked.options::<kind::Vhost>()?;
    let site = site(&d.config, asked.caller, path.as_str(), &o)?;
    let mode = if o.client() { VhostMode::Client } else { VhostMode::Server };
    let domain = match mode {
        VhostMode::Client => domain_of_listener(d, asked.caller, site.path()),
        VhostMode::Server => domain_of_site(d, asked.caller, &site),
    };
    let options = VhostOptions {
        site,
        mode,
        pairs: u16::try_from(o.rings().max(1)).unwrap_or(u16::MAX),
        mac: o.mac().unwrap_or_else(|| Mac::of_name(b'v', &asked.at.full())).0,
        mtu: offered(o.mtu()),
    };
    let refused = |e: VirtioPortError| unreached(&d.config, e.errno(), e.to_string());
    let (vhost, queues) = match asked.continued() {
        None => VhostPort::new(&options).map_err(refused)?,
        Some(state) => {
            let restored = VhostPort::restore(&options, state.read()?);
            let unreached = |bad: BadState| unreached(&d.config, bad.errno, bad.to_string());
            let (vhost, queues, paused) = restored.map_err(unreached)?;
            d.held.push(Box::new(paused));
            (vhost, queues)
        }
    };
    vhost.on_change(d.on_news());
    vhost.on_peer(d.on_news());
    plug(d, &asked.at, queues, NewPort::new(VhostDevicePort(vhost), asked).in_domain(domain).with_gro(o.gro()))
}

/// Returns the MTU that drivers are offered.
fn offered(asked: Option<u32>) -> u16 {
    asked.map_or(1500, |mtu| u16::try_from(mtu).unwrap_or(u16::MAX))
}

/// Returns details of the device for `netvale vm`.
fn info(port: &VhostPort) -> VhostInfo {
    let o = port.options();
    VhostInfo {
        path: o.site.path().display().to_string(),
        client: o.mode == VhostMode::Client,
        pairs: o.pairs.into(),
        mac: Mac(o.mac),
        mtu: port.mtu().get().into(),
    }
}
