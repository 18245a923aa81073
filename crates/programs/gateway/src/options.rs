//! What a gateway is to do: its [`GatewayOptions`].

use std::path::PathBuf;
use std::time::Duration;

use netvale_wire::MacAddr;

use crate::dhcp::leases::StaticLease;
use crate::guests::GuestLimits;
use crate::net::{GatewayAddresses, GatewayNet};
use crate::policy::EgressPolicy;
use crate::publish::rule::PublishRule;

/// Seconds of a lease, if nothing else is said.
pub const LEASE: Duration = Duration::from_secs(3600);
/// MTU of the network, if nothing else is said.
pub const MTU: u16 = 1500;
/// Bounds of the MTU: what IPv6 asks for, and what a packet's length can say.
pub const MTUS: std::ops::RangeInclusive<u16> = 1280..=65_520;

/// The options.
#[derive(Clone, Debug)]
pub struct GatewayOptions {
    /// Addresses, with the lengths of their networks' prefixes.
    pub addresses: GatewayAddresses,
    /// The gateway's station; made from its address, if it is not given.
    pub mac: Option<MacAddr>,
    /// MTU of the switch's network.
    pub mtu: u16,
    /// The domain of guests' names.
    pub domain: String,
    /// Whether guests are given addresses.
    pub dhcp: bool,
    /// Whether routers are advertised.
    pub adverts: bool,
    /// Leases that are written down.
    pub leases: Vec<StaticLease>,
    /// How long a lease holds.
    pub lease_time: Duration,
    /// The file that names the host's name servers.
    pub resolv_conf: PathBuf,
    /// What guests may reach.
    pub policy: EgressPolicy,
    /// Ports of the host that lead to guests.
    pub publish: Vec<PublishRule>,
    /// Where flows are recorded.
    pub flows: Option<PathBuf>,
    /// What a guest may have.
    pub limits: GuestLimits,
}

impl GatewayOptions {
    /// The usual ones.
    pub fn new(addresses: GatewayAddresses) -> Self {
        GatewayOptions {
            addresses,
            mac: None,
            mtu: MTU,
            domain: "lan".to_owned(),
            dhcp: true,
            adverts: true,
            leases: Vec::new(),
            lease_time: LEASE,
            resolv_conf: PathBuf::from("/etc/resolv.conf"),
            policy: EgressPolicy::default(),
            publish: Vec::new(),
            flows: None,
            limits: GuestLimits::default(),
        }
    }

    /// The gateway's place in the network.
    pub fn net(&self) -> GatewayNet {
        GatewayNet {
            mac: self.mac.unwrap_or_else(|| self.made_mac()),
            addresses: self.addresses,
            mtu: self.mtu,
            domain: self.domain.clone(),
        }
    }

    /// A station's address that is the same after a restart, so that guests find the gateway again.
    fn made_mac(&self) -> MacAddr {
        let v4 = self.addresses.v4.map(|own| own.address.octets());
        let v6 = || self.addresses.v6.map(|own| (own.address.to_bits() as u32).to_be_bytes());
        let [a, b, c, d] = v4.or_else(v6).unwrap_or_default();
        MacAddr([0x02, 0x67, a, b, c, d])
    }
}

/// A domain of guests' names: labels of letters, digits and hyphens.
///
/// # Errors
/// It is not one.
pub fn domain(text: &str) -> Result<String, String> {
    let is_label = |part: &str| crate::dhcp::leases::label(part.as_bytes()).is_some() || part == "local";
    if text.len() <= 200 && text.split('.').all(is_label) {
        Ok(text.to_ascii_lowercase())
    } else {
        Err(format!("{text:?} is not a domain: write labels of letters, digits and hyphens, as in lan or lab.example"))
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
