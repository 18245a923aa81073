//! Networks and containers as podman describes them.

use std::net::IpAddr;

use netvale_control::types::Mac;
use netvale_netns::netlink::AddressPrefix;
use serde::Deserialize;
use serde_json::{Value, json};

use super::options::{OptionTexts, PodmanSettings};
use super::rootless;
use crate::call::{Container, display_name, is_name};
use crate::config::{CniConfig, RuntimeConfig};
use crate::error::{CniError, Code};
use crate::policies::PodPolicies;
use crate::result::{ContainerAddresses, prefix};

/// The name of podman's own address management (`ipam_options.driver`).
pub const HOST_LOCAL: &str = "host-local";

/// A network, with the members that the plugin uses.
#[derive(Clone, Debug, Deserialize)]
pub struct PodmanNetwork {
    name: String,
    #[serde(default)]
    internal: bool,
    #[serde(default)]
    ipv6_enabled: bool,
    network_interface: Option<String>,
    options: Option<OptionTexts>,
    ipam_options: Option<OptionTexts>,
    subnets: Option<Vec<PodmanSubnet>>,
    routes: Option<Vec<PodmanRoute>>,
}

#[derive(Clone, Debug, Deserialize)]
struct PodmanSubnet {
    subnet: String,
    gateway: Option<IpAddr>,
}

#[derive(Clone, Debug, Deserialize)]
struct PodmanRoute {
    destination: String,
    gateway: Option<IpAddr>,
    metric: Option<u32>,
}

/// A container that joins a network, and the network.
#[derive(Clone, Debug, Deserialize)]
pub struct ContainerInput {
    container_id: String,
    #[serde(default)]
    container_name: String,
    network: PodmanNetwork,
    network_options: ContainerOptions,
}

/// The settings of one container in the network.
#[derive(Clone, Debug, Deserialize)]
struct ContainerOptions {
    interface_name: String,
    static_ips: Option<Vec<IpAddr>>,
    static_mac: Option<String>,
    options: Option<OptionTexts>,
}

fn bad(text: impl Into<String>) -> CniError {
    CniError::new(Code::Config, text)
}

fn read<T: for<'a> Deserialize<'a>>(what: &str, input: &Value) -> Result<T, CniError> {
    let wrong = |e: &dyn std::fmt::Display| CniError::new(Code::Decode, format!("{what} cannot be read: {e}"));
    // serde would accept an array with the members' values, too.
    if !input.is_object() {
        return Err(wrong(&"expected a JSON object"));
    }
    T::deserialize(input).map_err(|e| wrong(&e))
}

fn contains(network: AddressPrefix, address: IpAddr) -> bool {
    let length = u32::from(network.length);
    match (network.address, address) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).checked_shr(32 - length).unwrap_or(0) == 0,
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).checked_shr(128 - length).unwrap_or(0) == 0,
        _ => false,
    }
}

impl PodmanNetwork {
    /// Parses podman's description of a network.
    ///
    /// # Errors
    /// [`Code::Decode`] if the input has another form.
    pub fn read(input: &Value) -> Result<PodmanNetwork, CniError> {
        read("the network", input)
    }

    /// Checks that the plugin can serve a new network.
    ///
    /// # Errors
    /// [`Code::Config`] with the setting that is not supported, and advice.
    pub fn check(&self) -> Result<(), CniError> {
        let advised = |text: &str, advice: &str| Err(CniError::advised(Code::Config, text, advice));
        self.check_name()?;
        PodmanSettings::read(self.options.as_ref().unwrap_or(&OptionTexts::new()))?;
        if self.network_interface.as_ref().is_some_and(|name| !name.is_empty()) {
            return advised("the network has no interface on the host", "choose its switch with -o switch=NAME");
        }
        let subnets = self.subnets()?;
        let assigns = self.ipam_options.as_ref().and_then(|options| options.get("driver")).map_or("", String::as_str);
        match assigns {
            "" | HOST_LOCAL if subnets.is_empty() => {
                let advice = "add --subnet 10.89.0.0/24, or --ipam-driver none for containers without addresses";
                return advised("the network has no subnet", advice);
            }
            "" | HOST_LOCAL | "none" => {}
            _ => return Err(bad(format!("ipam_options: expected the driver {HOST_LOCAL} or none, found {assigns:?}"))),
        }
        if self.ipv6_enabled && !subnets.iter().any(|(own, _)| own.address.is_ipv6()) {
            return advised("the network has no IPv6 subnet", "add --subnet fd00:89::/64");
        }
        Ok(())
    }

    fn check_name(&self) -> Result<(), CniError> {
        if is_name(&self.name) {
            return Ok(());
        }
        let text = "letters, digits, '_', '.' and '-', the first a letter or digit";
        Err(bad(format!("name: expected {text}, found {:?}", self.name)))
    }

    fn subnets(&self) -> Result<Vec<(AddressPrefix, Option<IpAddr>)>, CniError> {
        let subnets = self.subnets.iter().flatten();
        subnets.map(|subnet| Ok((prefix(&subnet.subnet)?, subnet.gateway))).collect()
    }
}

impl ContainerInput {
    /// Parses podman's description of a container that joins a network.
    ///
    /// # Errors
    /// [`CniError`] if the input has another form, or the network's name is invalid.
    pub fn read(input: &Value) -> Result<ContainerInput, CniError> {
        let input: ContainerInput = read("the container", input)?;
        input.network.check_name()?;
        Ok(input)
    }

    /// Returns the container's identity. `place` is the path of its network namespace.
    ///
    /// # Errors
    /// [`CniError`] if the container's ID, the interface's name or the path is invalid.
    pub fn container(&self, place: &str) -> Result<Container, CniError> {
        // A relative path is refused, since otherwise a process ID, which other interfaces use to name a namespace,
        // would be taken for a path.
        if !place.starts_with('/') {
            return Err(bad(format!("namespace: expected a path that begins with '/', found {place:?}")));
        }
        let container = Container {
            id: self.container_id.clone(),
            ifname: self.network_options.interface_name.clone(),
            netns: place.to_owned(),
            mac: None,
            about: display_name(&self.container_name),
        };
        container.check(["container_id", "interface_name", "namespace"])?;
        Ok(container)
    }

    /// Returns the network's options, overridden by the container's options.
    fn options(&self) -> OptionTexts {
        let mut options = self.network.options.clone().unwrap_or_default();
        options.extend(self.network_options.options.clone().unwrap_or_default());
        options
    }

    /// Returns the configuration of the container's port.
    ///
    /// # Errors
    /// [`Code::Config`] with the invalid option.
    pub fn config(&self) -> Result<CniConfig, CniError> {
        let settings = PodmanSettings::read(&self.options())?;
        let text = self.network_options.static_mac.as_deref().unwrap_or_default();
        let parse = |text: &str| text.parse::<Mac>().map_err(|e| bad(format!("invalid static_mac {text:?}: {e}")));
        let mac = Some(text).filter(|text| !text.is_empty()).map(parse).transpose()?;
        Ok(CniConfig {
            policies: PodPolicies::of(settings.policies),
            runtime_config: RuntimeConfig { mac },
            ..self.at(settings.config)
        })
    }

    /// Returns only the part of the configuration that locates the port: network, switch and daemon. The removal of a
    /// port needs only this part.
    ///
    /// # Errors
    /// As [`ContainerInput::config`].
    pub fn place(&self) -> Result<CniConfig, CniError> {
        Ok(self.at(PodmanSettings::place(&self.options())?.config))
    }

    fn at(&self, config: CniConfig) -> CniConfig {
        let run_dir = config.run_dir.or_else(rootless::run_dir);
        CniConfig { name: self.network.name.clone(), run_dir, ..config }
    }

    /// Returns the addresses that podman has assigned to the container, and the routes of the network.
    ///
    /// # Errors
    /// [`CniError`] if an address is in no subnet of the network, or a route is invalid.
    pub fn addresses(&self) -> Result<ContainerAddresses, CniError> {
        let settings = PodmanSettings::read(&self.options())?;
        let subnets = self.network.subnets()?;
        let mut ips = Vec::new();
        let mut routes = Vec::new();
        for ip in self.network_options.static_ips.iter().flatten() {
            let own = subnets.iter().find(|(subnet, _)| contains(*subnet, *ip));
            let (subnet, gateway) = own.ok_or_else(|| bad(format!("{ip} is in no subnet of the network")))?;
            ips.push(json!({"address": format!("{ip}/{}", subnet.length), "gateway": gateway}));
            if let Some(gateway) = gateway.filter(|_| !self.network.internal && !settings.no_default_route) {
                let to = if gateway.is_ipv4() { "0.0.0.0/0" } else { "::/0" };
                routes.push(json!({"dst": to, "gw": gateway, "priority": settings.metric}));
            }
        }
        for PodmanRoute { destination, gateway, metric } in self.network.routes.iter().flatten() {
            let gateway = gateway.ok_or_else(|| bad(format!("the route to {destination} has no gateway")))?;
            routes.push(json!({"dst": destination, "gw": gateway, "priority": metric.unwrap_or(settings.metric)}));
        }
        ContainerAddresses::read(&json!({"ips": ips, "routes": routes}))
    }
}

#[cfg(test)]
mod tests;
