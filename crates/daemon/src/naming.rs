//! Resolution of names before permissions are checked: aliases of switches, and names whose last digits can be read as
//! a ring number.

use netvale_afxdp::iface::Interface;
use netvale_control::Request;
use netvale_control::attach::{AttachRequest, FLAG_NETMAP};
use netvale_guest::passthrough::device_of;
use netvale_portspec::{AttachSpec, Base, Memory, ParseError, PortName, PortSpec, SwitchName};

use crate::daemon::Daemon;

/// Prefix of switch names, which netmap programs require.
const ALIAS: &str = "vale";

/// Returns the switch that a name denotes: `valelan` denotes `lan` if there is a switch `lan` and no switch `valelan`.
pub fn switch_meant<'a>(d: &Daemon, name: &'a str) -> &'a str {
    let is_configured = |name: &str| {
        let config = &d.config;
        config.ports.iter().any(|port| port.switch == name) || config.switch.shared.iter().any(|one| one == name)
    };
    let is_known = |name: &str| d.switches.get(name).is_some() || is_configured(name);
    let bare = name.strip_prefix(ALIAS).filter(|bare| SwitchName::parse(bare).is_ok());
    bare.filter(|bare| !is_known(name) && is_known(bare)).unwrap_or(name)
}

/// Returns the name by which a netmap program opens the port with the full name `full`.
pub fn alias(full: &str) -> String {
    if full.starts_with(ALIAS) { full.to_owned() } else { format!("{ALIAS}{full}") }
}

/// Returns the full name of the port that `name` denotes, with the name of its switch resolved as by [`switch_meant`].
pub fn port_meant(d: &Daemon, name: &str) -> String {
    let Some((switch, port)) = name.split_once(':') else { return name.to_owned() };
    match PortName::parse(name) {
        Ok(parsed) => name_meant(d, parsed).to_string(),
        // The name is not that of a port that programs open: it is the name of a host stack, or contains rings or
        // flags.
        Err(_) => format!("{}:{port}", switch_meant(d, switch)),
    }
}

fn name_meant(d: &Daemon, name: PortName) -> PortName {
    let Base::Vale { switch, port } = name.base() else { return name };
    let meant = switch_meant(d, switch.as_str());
    if meant == switch.as_str() {
        return name;
    }
    // Resolving the switch shortens the name, so it remains valid.
    let base = SwitchName::parse(meant).map(|switch| Base::Vale { switch, port: port.clone() });
    base.and_then(|base| PortName::new(base, name.pipe().cloned())).unwrap_or(name)
}

/// Returns the port that a program asks to open. In requests of netmap programs (`FLAG_NETMAP`), quotes already mark
/// the end of the name.
///
/// # Errors
/// Fails if the name is malformed.
pub fn wanted(d: &Daemon, request: &AttachRequest) -> Result<PortSpec, ParseError> {
    let by_netmap = request.flags & FLAG_NETMAP != 0;
    let spec = PortSpec::parse(&request.name)?;
    let mut spec = spec.settled(|whole| !by_netmap && exists(d, &name_meant(d, whole.clone())));
    spec.name = name_meant(d, spec.name);
    if let Memory::SharedWith(port) = spec.memory {
        spec.memory = Memory::SharedWith(name_meant(d, port));
    }
    Ok(spec)
}

/// Whether there is a port or a pipe with this name that programs can open.
fn exists(d: &Daemon, name: &PortName) -> bool {
    let full = name.to_string();
    match (name.pipe(), name.base()) {
        (Some(_), _) => d.pipes.with_end(&full).is_some(),
        (None, Base::Vale { .. }) => d.ports.contains(&full),
        (None, Base::Netmap { ifname }) => {
            d.persistent.contains(ifname.as_str()) || d.ports.contains(&full) || is_interface(ifname.as_str())
        }
    }
}

/// Whether an interface of that name exists: an interface of the kernel, or a ptnet device of the virtual machine that
/// the daemon runs in.
pub fn is_interface(name: &str) -> bool {
    Interface::find(name).is_ok() || device_of(name).is_some()
}

/// Decides whether the digits at the end of an interface's name are a ring number, and returns the specification of the
/// port to attach.
pub fn attached(spec: AttachSpec) -> AttachSpec {
    spec.settled(is_interface)
}

/// Returns the backend of a passthrough port. All rings of the backend are passed through, so digits at the end of its
/// name are part of the name.
///
/// # Errors
/// Fails if the name is malformed.
pub fn backend(text: &str) -> Result<PortSpec, ParseError> {
    Ok(PortSpec::parse(text)?.settled(|_| true))
}

/// Replaces the names in a request by their resolved names. Names in the configuration are taken literally.
pub fn settle(d: &Daemon, request: &mut Request) {
    let switch = |name: &mut String| *name = switch_meant(d, name).to_owned();
    let port = |name: &mut String| *name = port_meant(d, name);
    let either = |name: &mut String| if name.contains(':') { port(name) } else { switch(name) };
    match request {
        Request::PortAttach(p) => {
            switch(&mut p.switch);
            if let Some(text) = &mut p.options.backend
                && let Ok(mut named) = backend(text)
            {
                named.name = name_meant(d, named.name);
                *text = named.to_string();
            }
        }
        Request::PortDetach(p) => {
            // The port's name may already begin with the switch's name, either as the request gives it or as it is
            // resolved.
            let meant = switch_meant(d, &p.switch).to_owned();
            let on = |switch: &str| p.port.strip_prefix(switch)?.strip_prefix(':');
            let bare = on(&p.switch).or_else(|| on(&meant)).unwrap_or(&p.port);
            let full = port_meant(d, &format!("{meant}:{bare}"));
            p.port = full.split_once(':').map_or(full.as_str(), |(_, port)| port).to_owned();
            p.switch = meant;
        }
        Request::PortSet(p) => port(&mut p.port),
        Request::PortShow(p) => port(&mut p.port),
        Request::OfKind(p) => port(p.port_mut()),
        Request::SwitchTable(p) | Request::SwitchGroups(p) => switch(&mut p.switch),
        Request::PortList(p) => p.switch.iter_mut().for_each(switch),
        Request::TraceBegin(p) => p.of.iter_mut().for_each(either),
        Request::Subscribe(p) => p.only.iter_mut().for_each(either),
        _ => {}
    }
}

/// If a request names an existing switch where it should name a port, returns the name of the switch; otherwise,
/// `None`.
pub fn misplaced_switch<'a>(d: &Daemon, request: &'a Request) -> Option<&'a str> {
    let port = match request {
        Request::PortSet(p) => p.port.as_str(),
        Request::PortShow(p) => &p.port,
        Request::OfKind(p) => p.port(),
        _ => return None,
    };
    let name = switch_meant(d, port);
    d.switches.get(name).map(|_| name)
}
