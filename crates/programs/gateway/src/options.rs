//! A gateway's configuration: its [`GatewayOptions`].

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use netvale_wire::MacAddr;

use crate::dhcp::leases::StaticLease;
use crate::dhcp6::Dhcp6Mode;
use crate::guests::GuestLimits;
use crate::net::{GatewayAddresses, GatewayNet};
use crate::policy::EgressPolicy;
use crate::publish::rule::PublishRule;
use crate::rates::rule::LimitRules;
use crate::served::ServedPort;

/// The default duration of a DHCP lease.
pub const LEASE: Duration = Duration::from_secs(3600);
/// The default MTU of the guests' network, in bytes.
pub const MTU: u16 = 1500;
/// Range of valid MTUs in bytes, from the minimum of IPv6 to the longest packet for which a frame of 64 KiB has room.
pub const MTUS: std::ops::RangeInclusive<u16> = 1280..=65_520;

/// The configuration of a gateway.
#[derive(Clone, Debug)]
pub struct GatewayOptions {
    /// The gateway's addresses, with the prefix lengths of their networks.
    pub addresses: GatewayAddresses,
    /// The gateway's MAC address; `None` to derive it from the IP address.
    pub mac: Option<MacAddr>,
    /// MTU of the guests' network, in bytes.
    pub mtu: u16,
    /// The DNS domain of guests' names.
    pub domain: String,
    /// Further domains in which guests look for short names (RFC 3397).
    pub search: Vec<String>,
    /// A further address of the gateway, which alone leads to the host's loopback over IPv4; `None` if the gateway's
    /// other addresses lead there.
    pub host: Option<Ipv4Addr>,
    /// Whether the gateway runs a DHCP server.
    pub dhcp: bool,
    /// Whether the gateway sends IPv6 router advertisements.
    pub adverts: bool,
    /// What the gateway provides by DHCPv6.
    pub dhcp6: Dhcp6Mode,
    /// Static DHCP leases.
    pub leases: Vec<StaticLease>,
    /// Duration of a DHCP lease.
    pub lease_time: Duration,
    /// The file that lists the host's name servers.
    pub resolv_conf: PathBuf,
    /// Which destinations guests may reach.
    pub policy: EgressPolicy,
    /// Ports of the host whose connections and datagrams go to guests.
    pub publish: Vec<PublishRule>,
    /// TCP ports of the gateway's own addresses that lead to UNIX sockets.
    pub served: Vec<ServedPort>,
    /// Path of the UNIX socket through which programs connect to guests; `None` if there is no such socket.
    pub dial: Option<PathBuf>,
    /// The file of the flow log; `None` if no log is written.
    pub flows: Option<PathBuf>,
    /// Path of the control socket; `None` if there is no such socket.
    pub control: Option<PathBuf>,
    /// Limits of the resources that each guest may use.
    pub limits: GuestLimits,
    /// Limits of guests' rates.
    pub rates: LimitRules,
    /// Whether each VLAN of the switch is a separate network, in which the gateway has the same addresses.
    pub private: bool,
}

impl GatewayOptions {
    /// Returns the default configuration for these addresses.
    pub fn new(addresses: GatewayAddresses) -> Self {
        GatewayOptions {
            addresses,
            mac: None,
            mtu: MTU,
            domain: "lan".to_owned(),
            search: Vec::new(),
            host: None,
            dhcp: true,
            dhcp6: Dhcp6Mode::Settings,
            adverts: true,
            leases: Vec::new(),
            lease_time: LEASE,
            resolv_conf: PathBuf::from("/etc/resolv.conf"),
            policy: EgressPolicy::default(),
            publish: Vec::new(),
            served: Vec::new(),
            dial: None,
            flows: None,
            control: None,
            limits: GuestLimits::default(),
            rates: LimitRules::default(),
            private: false,
        }
    }

    /// Returns the gateway's addresses and network settings.
    pub fn net(&self) -> GatewayNet {
        GatewayNet {
            mac: self.mac.unwrap_or_else(|| self.made_mac()),
            addresses: self.addresses,
            mtu: self.mtu,
            domain: self.domain.clone(),
            host: self.host,
        }
    }

    /// Returns a MAC address that is derived from the IP address. It is the same after a restart, so that guests'
    /// neighbour entries stay valid.
    fn made_mac(&self) -> MacAddr {
        let v4 = self.addresses.v4.map(|own| own.address.octets());
        let v6 = || self.addresses.v6.map(|own| (own.address.to_bits() as u32).to_be_bytes());
        let [a, b, c, d] = v4.or_else(v6).unwrap_or_default();
        MacAddr([0x02, 0x67, a, b, c, d])
    }
}

/// Parses a DNS domain for guests' names: labels of letters, digits and hyphens. Returns the domain in lower case.
///
/// # Errors
/// The text is not such a domain.
pub fn domain(text: &str) -> Result<String, String> {
    let is_label = |part: &str| crate::dhcp::leases::label(part.as_bytes()).is_some() || part == "local";
    if text.len() <= 200 && text.split('.').all(is_label) {
        Ok(text.to_ascii_lowercase())
    } else {
        Err(format!("invalid domain {text:?}: expected labels of letters, digits and hyphens, e.g. lan or lab.example"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_keeps_its_station() {
        let options = GatewayOptions::new("10.0.0.1/24".parse().unwrap());
        assert_eq!(options.net().mac, MacAddr([2, 0x67, 10, 0, 0, 1]));
        let options = GatewayOptions::new("fd00::1:2/64".parse().unwrap());
        assert_eq!(options.net().mac, MacAddr([2, 0x67, 0, 1, 0, 2]));
    }

    #[test]
    fn domains_are_labels() {
        assert_eq!(domain("Lab.example"), Ok("lab.example".to_owned()));
        for bad in ["", ".", "a..b", "-a", "a_b", "lan."] {
            assert!(domain(bad).is_err(), "{bad}");
        }
    }
}
