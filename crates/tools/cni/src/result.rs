//! Results in CNI's format: parsing of the address plugin's results, and formatting of this plugin's own results.

use std::net::IpAddr;
use std::str::FromStr;

use netvale_control::types::Mac;
use netvale_netns::netlink::{AddressPrefix, Route};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::call::NEWEST;
use crate::error::{CniError, Code};

/// An address of the container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerIp {
    /// The address, with the prefix length of its network.
    pub own: AddressPrefix,
    /// The gateway of the address's network; `None` if there is none.
    pub gateway: Option<IpAddr>,
}

/// The addresses and routes of a container, as the address plugin or podman has assigned them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContainerAddresses {
    /// The addresses.
    pub ips: Vec<ContainerIp>,
    /// The routes to set. A route for which the address plugin gave no gateway has the first gateway of its address
    /// family, if there is one.
    pub routes: Vec<Route>,
    /// DNS settings.
    pub dns: Option<Value>,
    /// The routes as the address plugin returned them.
    said: Vec<Value>,
}

/// The interface in a result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerInterface {
    /// The interface's name.
    pub name: String,
    /// The interface's MAC address.
    pub mac: Mac,
    /// The interface's MTU in bytes.
    pub mtu: u32,
    /// Path of the interface's network namespace.
    pub sandbox: String,
    /// The path of the vhost-user socket that the container gets instead of an interface; `None` if it gets an
    /// interface.
    pub socket: Option<String>,
}

/// A result, as JSON.
#[derive(Deserialize)]
struct CniResult {
    #[serde(default)]
    interfaces: Vec<ResultInterface>,
    #[serde(default)]
    ips: Vec<ResultIp>,
    #[serde(default)]
    routes: Vec<ResultRoute>,
    dns: Option<Value>,
}

#[derive(Deserialize)]
struct ResultInterface {
    name: String,
    #[serde(default)]
    mac: String,
    #[serde(default)]
    sandbox: String,
}

#[derive(Deserialize)]
struct ResultIp {
    address: String,
    gateway: Option<String>,
    interface: Option<usize>,
}

#[derive(Deserialize)]
struct ResultRoute {
    dst: String,
    gw: Option<String>,
    mtu: Option<u32>,
    advmss: Option<u32>,
    priority: Option<u32>,
    table: Option<u32>,
}

fn bad(text: String) -> CniError {
    CniError::new(Code::Decode, text)
}

/// Parses an address with a prefix length, such as `10.1.0.2/24`.
///
/// # Errors
/// [`Code::Decode`] if the text has another form.
pub fn prefix(text: &str) -> Result<AddressPrefix, CniError> {
    let wrong = || bad(format!("invalid address {text:?}: expected an address with a prefix length, e.g. 10.1.0.2/24"));
    let (address, length) = text.split_once('/').ok_or_else(wrong)?;
    let address = IpAddr::from_str(address).map_err(|_| wrong())?;
    let length = length.parse().map_err(|_| wrong())?;
    if length > if address.is_ipv4() { 32 } else { 128 } {
        return Err(wrong());
    }
    Ok(AddressPrefix { address, length })
}

fn gateway(text: Option<&str>) -> Result<Option<IpAddr>, CniError> {
    let parse = |text: &str| IpAddr::from_str(text).map_err(|_| bad(format!("invalid gateway {text:?}")));
    text.filter(|text| !text.is_empty()).map(parse).transpose()
}

fn read(result: &Value) -> Result<CniResult, CniError> {
    serde_json::from_value(result.clone()).map_err(|e| bad(format!("invalid result: {e}")))
}

impl ContainerAddresses {
    /// Parses an address plugin's result.
    ///
    /// # Errors
    /// [`Code::Decode`] if `result` does not have the form of a result.
    pub fn read(result: &Value) -> Result<ContainerAddresses, CniError> {
        let said = read(result)?;
        let ip =
            |ip: &ResultIp| Ok(ContainerIp { own: prefix(&ip.address)?, gateway: gateway(ip.gateway.as_deref())? });
        let ips = said.ips.iter().map(ip).collect::<Result<Vec<_>, CniError>>()?;
        let routes = said.routes.iter().map(|route| {
            let to = prefix(&route.dst)?;
            let same = |ip: &&ContainerIp| ip.own.address.is_ipv4() == to.address.is_ipv4() && ip.gateway.is_some();
            let default = || ips.iter().find(same).and_then(|ip| ip.gateway);
            let gateway = gateway(route.gw.as_deref())?.or_else(default);
            let ResultRoute { mtu, advmss, priority, table, .. } = *route;
            Ok(Route { to, gateway, mtu, advmss, priority, table })
        });
        let routes = routes.collect::<Result<Vec<_>, CniError>>()?;
        let listed = result["routes"].as_array().cloned().unwrap_or_default();
        Ok(ContainerAddresses { ips, routes, dns: said.dns, said: listed })
    }

    /// Adds a default route for each address family that has a gateway but no default route.
    ///
    /// # Errors
    /// [`Code::Config`] if no address has a gateway.
    pub fn add_default_routes(&mut self) -> Result<(), CniError> {
        if self.ips.iter().all(|ip| ip.gateway.is_none()) {
            return Err(CniError::new(Code::Config, "isDefaultGateway: the address plugin (ipam) returned no gateway"));
        }
        for gateway in self.ips.iter().filter_map(|ip| ip.gateway) {
            let any: IpAddr = if gateway.is_ipv4() { [0u8; 4].into() } else { [0u8; 16].into() };
            let to = AddressPrefix { address: any, length: 0 };
            if self.routes.iter().all(|route| route.to != to) {
                let gateway = Some(gateway);
                self.routes.push(Route { to, gateway, mtu: None, advmss: None, priority: None, table: None });
                self.said.push(json!({"dst": format!("{any}/0"), "gw": gateway}));
            }
        }
        Ok(())
    }

    /// Formats the result of ADD for the given version of the specification.
    pub fn result(&self, version: &str, interface: &ContainerInterface, dns: Option<&Value>) -> Value {
        let is_newest = version == NEWEST;
        let mut link = json!({"name": interface.name, "mac": interface.mac.to_string()});
        if !interface.sandbox.is_empty() {
            link["sandbox"] = json!(interface.sandbox);
        }
        if is_newest {
            link["mtu"] = json!(interface.mtu);
            if let Some(socket) = &interface.socket {
                link["socketPath"] = json!(socket);
            }
        }
        let ip = |ip: &ContainerIp| {
            let AddressPrefix { address, length } = ip.own;
            let mut said = json!({"address": format!("{address}/{length}"), "interface": 0});
            if version.starts_with("0.") {
                said["version"] = json!(if address.is_ipv4() { "4" } else { "6" });
            }
            if let Some(gateway) = ip.gateway {
                said["gateway"] = json!(gateway.to_string());
            }
            said
        };
        let ips: Vec<_> = self.ips.iter().map(ip).collect();
        let routes: Vec<_> = self.said.iter().map(|route| known_members(route, is_newest)).collect();
        let dns = self.dns.as_ref().or(dns).cloned().unwrap_or_else(|| json!({}));
        json!({"cniVersion": version, "interfaces": [link], "ips": ips, "routes": routes, "dns": dns})
    }
}

/// Formats a route: for versions of the specification before 1.1.0, the route has only destination and gateway.
fn known_members(route: &Value, is_newest: bool) -> Value {
    let members = route.as_object().cloned().unwrap_or_default();
    members.into_iter().filter(|(key, _)| is_newest || key == "dst" || key == "gw").collect()
}

/// Returns the addresses that, according to an earlier result, the interface `ifname` in the network namespace `netns`
/// has: the MAC address, if the result contains it, and the IP addresses with the routes.
///
/// # Errors
/// [`Code::Decode`] if `previous` is not a result, [`Code::Config`] if `previous` has no such interface.
pub fn expected(previous: &Value, ifname: &str, netns: &str) -> Result<(Option<Mac>, ContainerAddresses), CniError> {
    let said = read(previous)?;
    let mut interfaces = said.interfaces.iter().enumerate();
    let own = interfaces.find(|(_, one)| one.name == ifname && one.sandbox == netns);
    let missing = || CniError::new(Code::Config, format!("prevResult has no interface {ifname} in {netns}"));
    let (at, interface) = own.ok_or_else(missing)?;
    let mut addresses = ContainerAddresses::read(previous)?;
    let mut is_own = said.ips.iter().map(|ip| ip.interface.is_none_or(|index| index == at));
    addresses.ips.retain(|_| is_own.next().unwrap_or(false));
    Ok((interface.mac.parse().ok(), addresses))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said() -> Value {
        json!({"cniVersion": "1.1.0",
            "ips": [{"address": "10.1.0.2/24", "gateway": "10.1.0.1"}, {"address": "fd00::2/64"}],
            "routes": [{"dst": "192.168.0.0/16", "mtu": 1400}, {"dst": "fd01::/16"}],
            "dns": {"nameservers": ["10.1.0.1"]}})
    }

    /// Objective: an address plugin's result becomes addresses and routes; a route without a gateway gets the gateway
    /// of its address family, if there is one.
    #[test]
    fn a_result_becomes_addresses_and_routes() {
        let mut all = ContainerAddresses::read(&said()).unwrap();
        let gateways: Vec<_> = all.routes.iter().map(|route| route.gateway.map(|ip| ip.to_string())).collect();
        assert_eq!(gateways, [Some("10.1.0.1".to_owned()), None]);
        all.add_default_routes().unwrap();
        assert_eq!(all.routes.len(), 3);
        all.add_default_routes().unwrap();
        assert_eq!(all.routes.len(), 3, "it is there already");
        for wrong in ["10.1.0.2", "10.1.0.2/33", "x/8", "10.1.0.2/-1", "fd00::/129"] {
            assert!(ContainerAddresses::read(&json!({"ips": [{"address": wrong}]})).is_err(), "{wrong}");
        }
        assert!(ContainerAddresses::default().add_default_routes().is_err());
        assert!(ContainerAddresses::read(&json!([])).is_err() && ContainerAddresses::read(&json!({"ips": 7})).is_err());
    }

    /// Objective: for each version of the specification, the result has the members that this version defines.
    #[test]
    fn each_result_has_the_members_of_its_version() {
        let all = ContainerAddresses::read(&said()).unwrap();
        let interface = ContainerInterface {
            name: "eth0".into(),
            mtu: 1500,
            sandbox: "/run/netns/x".into(),
            ..ContainerInterface::default()
        };
        let old = all.result("0.4.0", &interface, None);
        assert_eq!((&old["ips"][0]["version"], &old["ips"][1]["version"]), (&json!("4"), &json!("6")));
        assert!(old["routes"][0].get("mtu").is_none() && old["interfaces"][0].get("mtu").is_none());
        let new = all.result("1.1.0", &interface, None);
        assert_eq!((&new["interfaces"][0]["mtu"], &new["routes"][0]["mtu"]), (&json!(1500), &json!(1400)));
        assert!(new["ips"][0].get("version").is_none());
        assert_eq!(new["dns"]["nameservers"][0], "10.1.0.1");
    }

    /// Objective: from an earlier result, only the addresses of the given interface are returned.
    #[test]
    fn only_addresses_of_the_given_interface_count() {
        let previous = json!({
            "interfaces": [{"name": "host0"}, {"name": "eth0", "sandbox": "/n", "mac": "02:00:00:00:00:01"}],
            "ips": [{"address": "10.1.0.1/24", "interface": 0}, {"address": "10.1.0.2/24", "interface": 1}],
        });
        let (mac, all) = expected(&previous, "eth0", "/n").unwrap();
        assert_eq!((mac, all.ips.len()), (Some(Mac([2, 0, 0, 0, 0, 1])), 1));
        assert_eq!(all.ips[0].own.address.to_string(), "10.1.0.2");
        assert!(expected(&previous, "eth0", "/other").is_err());
    }
}
