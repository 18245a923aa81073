//! The container's interface: a TAP in the container's network namespace, with addresses and routes.

use std::time::{Duration, Instant};

use netvale_control::client::BringConnection;
use netvale_control::types::{AttachParams, Mac, PortOptions};
use netvale_netns::netlink::{LinkInfo, NamespaceSocket};
use netvale_netns::{Namespace, make_tap};
use netvale_tap::TapOptions;
use rustix::io::Errno;

use crate::call::Container;
use crate::config::CniConfig;
use crate::error::{CniError, Code, kernel};
use crate::result::{ContainerAddresses, ContainerInterface};

/// Time limit for the kernel to remove an interface.
const LIMIT: Duration = Duration::from_secs(5);

/// Creates the TAP, moves it to the container's network namespace and attaches it as the port `port`. If a step fails,
/// the earlier steps are undone.
///
/// # Errors
/// [`CniError`]: the namespace is invalid, the container already has an interface of this name, or the daemon refuses.
pub fn attach(config: &CniConfig, container: &Container, port: &str, namespace: &Namespace) -> Result<(), CniError> {
    let daemon = BringConnection::connect(&config.daemon_dir())?;
    let mac = config.mac(container.mac).map(|mac| mac.0);
    let queues = config.queues;
    let mtu = config.asked_mtu();
    let options = TapOptions { name: container.ifname.clone(), queues, mtu, mac, ..TapOptions::default() };
    let tap = make_tap(namespace, &options)?;
    let options = PortOptions {
        name: Some(port.to_owned()),
        rings: config.queues,
        gro: config.gro,
        netns: Some(container.netns.clone()),
        ..PortOptions::default()
    };
    let params = AttachParams { switch: config.bridge.clone(), port: format!("tap:{}", container.ifname), options };
    daemon.attach(params, &tap.into_queues())?;
    Ok(())
}

/// Calls `work` in the namespace, with a netlink socket and the interface; `None` if the interface does not exist.
fn with_link<T: Send>(
    namespace: &Namespace,
    ifname: &str,
    work: impl FnOnce(&mut NamespaceSocket, Option<LinkInfo>) -> Result<T, CniError> + Send,
) -> Result<T, CniError> {
    namespace.within(|| {
        let mut netlink = NamespaceSocket::open().map_err(kernel("open a netlink socket"))?;
        match netlink.link(ifname) {
            Err(Errno::NODEV) => work(&mut netlink, None),
            link => {
                let link = link.map_err(kernel(&format!("find the interface {ifname}")))?;
                work(&mut netlink, Some(link))
            }
        }
    })?
}

fn missing(ifname: &str) -> CniError {
    kernel(&format!("find the interface {ifname}"))(Errno::NODEV)
}

/// Returns the interface's MAC address.
///
/// # Errors
/// [`Code::Kernel`] if the interface cannot be found.
pub fn address(namespace: &Namespace, ifname: &str) -> Result<Mac, CniError> {
    with_link(namespace, ifname, |_, link| Ok(Mac(link.ok_or_else(|| missing(ifname))?.mac.unwrap_or_default())))
}

/// Sets the interface's addresses and routes, and brings the interface up. Returns the interface's entry for the
/// result.
///
/// # Errors
/// [`Code::Kernel`] with the step that failed.
pub fn configure(
    namespace: &Namespace,
    ifname: &str,
    addresses: &ContainerAddresses,
) -> Result<ContainerInterface, CniError> {
    with_link(namespace, ifname, |netlink, link| {
        let link = link.ok_or_else(|| missing(ifname))?;
        for ip in &addresses.ips {
            let step = format!("give {ifname} the address {}/{}", ip.own.address, ip.own.length);
            netlink.add_address(link.index, ip.own).map_err(kernel(&step))?;
        }
        netlink.bring_up(link.index).map_err(kernel(&format!("bring {ifname} up")))?;
        for route in &addresses.routes {
            match netlink.add_route(link.index, route) {
                // `EEXIST` means that the kernel has added this route together with the address, or that the same route
                // leads through another interface.
                Ok(()) | Err(Errno::EXIST) => {}
                Err(e) => {
                    let step = format!("add the route to {}/{}", route.to.address, route.to.length);
                    return Err(kernel(&step)(e));
                }
            }
        }
        let mac = Mac(link.mac.unwrap_or_default());
        Ok(ContainerInterface { name: ifname.into(), mac, mtu: link.mtu, ..ContainerInterface::default() })
    })
}

/// Returns whether the namespace has an interface of this name.
///
/// # Errors
/// [`Code::Kernel`] if the request to the kernel fails.
pub fn is_there(namespace: &Namespace, ifname: &str) -> Result<bool, CniError> {
    with_link(namespace, ifname, |_, link| Ok(link.is_some()))
}

/// Waits until the interface has disappeared, for at most 5 s.
pub fn wait_gone(namespace: &Namespace, ifname: &str) {
    let until = Instant::now() + LIMIT;
    // An error is ignored, since a namespace that can no longer be entered has no interfaces.
    let _ = namespace.within(|| {
        let Ok(mut netlink) = NamespaceSocket::open() else { return };
        while netlink.link(ifname) != Err(Errno::NODEV) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

/// Checks that the interface exists, is up, and has the expected MAC address, addresses and routes.
///
/// # Errors
/// [`Code::Broken`] with the first difference.
pub fn check(
    namespace: &Namespace,
    ifname: &str,
    mac: Option<Mac>,
    addresses: &ContainerAddresses,
) -> Result<(), CniError> {
    with_link(namespace, ifname, |netlink, link| {
        let Some(link) = link else { return broken(format!("the container has no interface {ifname}")) };
        same_link(&link, ifname, mac)?;
        let has = netlink.addresses(link.index).map_err(kernel("list the addresses"))?;
        if let Some(ip) = addresses.ips.iter().find(|ip| !has.contains(&ip.own)) {
            return broken(format!("{ifname} has lost its address {}/{}", ip.own.address, ip.own.length));
        }
        let has = netlink.routes(link.index).map_err(kernel("list the routes"))?;
        let is_lost = |to, gateway| !has.iter().any(|(other, by)| *other == to && (*by == gateway || by.is_none()));
        match addresses.routes.iter().find(|route| route.table.is_none() && is_lost(route.to, route.gateway)) {
            Some(route) => broken(format!("{ifname} has lost its route to {}/{}", route.to.address, route.to.length)),
            None => Ok(()),
        }
    })
}

fn same_link(link: &LinkInfo, ifname: &str, mac: Option<Mac>) -> Result<(), CniError> {
    let own = link.mac.map(Mac);
    match (mac, own) {
        (Some(mac), Some(own)) if mac != own => {
            broken(format!("{ifname} has the MAC address {own}: expected {mac}, which ADD set"))
        }
        _ if !link.is_up => broken(format!("{ifname} is down")),
        _ => Ok(()),
    }
}

fn broken<T>(text: String) -> Result<T, CniError> {
    Err(CniError::new(Code::Broken, text))
}
