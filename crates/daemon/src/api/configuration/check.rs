//! Checks the ports of a configuration file before anything changes.

use std::collections::BTreeMap;
use std::path::Path;

use netvale_afxdp::iface::Interface;
use netvale_portspec::{AttachNeeds, AttachSpec, Base};
use netvale_switch::MAX_PORTS;
use rustix::io::Errno;

use super::difference::{ConfigPort, PortStep};
use crate::caller::Caller;
use crate::daemon::Daemon;
use crate::naming;
use crate::permission::{self, MAX_SWITCHES};
use crate::refusal::{Refusal, refuse};
use crate::system::sockets::{group_id, user_id};

/// A port of the file that cannot be attached.
pub(super) struct ConfigPortFault {
    /// Index of the port in the file.
    pub index: usize,
    /// Key of the option at fault.
    pub key: &'static str,
    /// Why the port cannot be attached.
    pub refusal: Refusal,
}

/// Checks the ports that the steps attach, the limit on the number of switches, and the limits on the numbers of their
/// ports.
pub(super) fn check(d: &Daemon, steps: &[PortStep]) -> Result<(), ConfigPortFault> {
    steps.iter().filter_map(PortStep::attaches).try_for_each(|port| check_port(d, port))?;
    has_room(d, steps)
}

fn check_port(d: &Daemon, port: &ConfigPort) -> Result<(), ConfigPortFault> {
    let fault = |key| move |refusal| ConfigPortFault { index: port.index, key, refusal };
    let options = &port.params.options;
    // The configuration's parser has already refused malformed port names.
    let Ok(spec) = AttachSpec::parse(&port.params.port).map(naming::attached) else { return Ok(()) };
    spec.files().into_iter().try_for_each(|path| reaches(d, Path::new(path))).map_err(fault("port"))?;
    if let AttachNeeds::Interface(name) = spec.needs() {
        has_interface(name).map_err(fault("port"))?;
    }
    if let Some(backend) = options.backend.as_deref() {
        check_backend(d, backend).map_err(fault("backend"))?;
    }
    let known =
        |id: Option<_>| id.transpose().or_else(|e: crate::system::user::UserError| refuse(Errno::INVAL, e.to_string()));
    known(options.socket_user.as_deref().map(user_id)).map_err(fault("socket_user"))?;
    known(options.socket_group.as_deref().map(group_id)).map_err(fault("socket_group"))?;
    Ok(())
}

fn reaches(d: &Daemon, path: &Path) -> Result<(), Refusal> {
    permission::place(&d.config, Caller::daemon(), path)?;
    let folder = path.parent().unwrap_or(path);
    if d.reach.has(folder) {
        return Ok(());
    }
    let text = "the sandbox excludes this folder; add the folder to 'allow_dirs' and restart the daemon";
    refuse(Errno::ACCESS, format!("the daemon cannot reach {}: {text}", folder.display()))
}

fn has_interface(name: &str) -> Result<(), Refusal> {
    Interface::find(name)
        .map(drop)
        .or_else(|_| refuse(Errno::NODEV, format!("interface {name} does not exist: 'ip link' shows the interfaces")))
}

fn check_backend(d: &Daemon, backend: &str) -> Result<(), Refusal> {
    let named = naming::backend(backend).or_else(|e| refuse(Errno::INVAL, format!("backend {backend}: {e:#}")))?;
    match (named.name.pipe(), named.name.base()) {
        (None, Base::Netmap { ifname }) if !d.persistent.contains(ifname.as_str()) => has_interface(ifname.as_str()),
        _ => Ok(()),
    }
}

/// Checks the limits on the number of switches and on the number of ports of each switch. The error names the first
/// port that would exceed a limit.
fn has_room(d: &Daemon, steps: &[PortStep]) -> Result<(), ConfigPortFault> {
    let switch_of = |full: &str| d.ports.get(full).and_then(|record| Some(record.switch.as_ref()?.name().to_owned()));
    let mut ports: BTreeMap<String, usize> =
        d.switches.iter().map(|switch| (switch.name().to_owned(), switch.ports().len())).collect();
    for switch in steps.iter().filter_map(PortStep::detaches).filter_map(switch_of) {
        ports.entry(switch).and_modify(|count| *count = count.saturating_sub(1));
    }
    ports.retain(|_, count| *count > 0);
    for port in steps.iter().filter_map(PortStep::attaches).filter(|port| !port.params.switch.is_empty()) {
        let fault =
            |text| Err(ConfigPortFault { index: port.index, key: "switch", refusal: Refusal::new(Errno::NOSPC, text) });
        let count = ports.entry(port.params.switch.clone()).or_default();
        *count += 1;
        if *count > MAX_PORTS {
            return fault(format!("switch {} has too many ports, expected at most {MAX_PORTS}", port.params.switch));
        }
        if ports.len() > MAX_SWITCHES {
            return fault(format!("too many switches, expected at most {MAX_SWITCHES}"));
        }
    }
    Ok(())
}
