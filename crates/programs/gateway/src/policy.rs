//! The egress policy: which destinations guests may reach.
//!
//! The policy decides once about each new flow (an [`EgressRequest`]); the [`EgressVerdict`] holds until the flow ends.
//! An [`EgressPolicy`] is a list of rules ([`EgressRule`]), of which the most specific one that matches decides.
//! Built-in rules refuse the host's loopback and networks that are not part of the Internet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::guests::GuestId;

/// The transport of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FlowTransport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// ICMP echo of either version.
    Icmp,
}

/// A flow that a guest wants to begin.
#[derive(Clone, Copy, Debug)]
pub struct EgressRequest {
    /// The guest.
    pub guest: GuestId,
    /// The transport.
    pub transport: FlowTransport,
    /// The destination at the host's side. The gateway's own addresses are the host's loopback there.
    pub dst: IpAddr,
    /// The destination's port; 0 for ICMP.
    pub port: u16,
}

/// A policy's decision about a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EgressVerdict {
    /// The flow may begin.
    Allow {
        /// Whether the deciding rule is the user's and names exactly this address, not a network.
        by_name: bool,
    },
    /// The flow may not begin.
    Refuse,
}

/// A rule: which flows it matches, and whether it allows or denies them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EgressRule {
    net: RuleNet,
    ports: Option<RangeInclusive<u16>>,
    transport: Option<FlowTransport>,
    allow: bool,
    built_in: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RuleNet {
    Any,
    V4(Ipv4Addr, u8),
    V6(Ipv6Addr, u8),
}

/// The error for text that is not a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid rule {0:?}: expected ADDRESS[/PREFIX][:PORT[-PORT]][/tcp|/udp|/icmp], or any; \
     put an IPv6 address with ports in brackets"
)]
pub struct BadEgressRule(String);

/// Networks that are not part of the Internet (RFC 6890 and later entries of its registries), and multicast groups.
const NOT_THE_INTERNET: [&str; 22] = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "224.0.0.0/4",
    "240.0.0.0/4",
    "::/96",
    "::ffff:0:0/96",
    "64:ff9b:1::/48",
    "100::/64",
    "2001::/32",
    "fc00::/7",
    "fe80::/10",
    "fec0::/10",
    "ff00::/8",
    "5f00::/16",
    "2001:2::/48",
];

/// The rules of the user, and the built-in ones.
#[derive(Clone, Debug)]
pub struct EgressPolicy {
    rules: Vec<EgressRule>,
}

impl Default for EgressPolicy {
    fn default() -> Self {
        let refused = NOT_THE_INTERNET.iter().filter_map(|text| EgressRule::parse(text, false).ok());
        let any = EgressRule { net: RuleNet::Any, ports: None, transport: None, allow: true, built_in: true };
        let rules = refused.map(|rule| EgressRule { built_in: true, ..rule }).chain([any]).collect();
        EgressPolicy { rules }
    }
}

impl EgressPolicy {
    /// Adds a rule of the user.
    pub fn add(&mut self, rule: EgressRule) {
        self.rules.push(rule);
    }

    /// Allows all ports of the host's loopback.
    pub fn allow_host(&mut self) {
        let loopback = ["127.0.0.0/8", "::1"];
        self.rules.extend(loopback.iter().filter_map(|text| EgressRule::parse(text, true).ok()));
    }

    /// Decides about a flow. An IPv6 destination that embeds an IPv4 address (NAT64, 6to4) must be allowed under both
    /// addresses.
    pub fn decide(&self, request: &EgressRequest) -> EgressVerdict {
        let verdict = self.decide_one(request);
        match held_v4(request.dst).map(|held| self.decide_one(&EgressRequest { dst: held.into(), ..*request })) {
            Some(EgressVerdict::Refuse) => EgressVerdict::Refuse,
            _ => verdict,
        }
    }

    fn decide_one(&self, request: &EgressRequest) -> EgressVerdict {
        let fitting = self.rules.iter().filter(|rule| rule.fits(request));
        match fitting.max_by_key(|rule| rule.rank()) {
            Some(rule) if rule.allow => EgressVerdict::Allow { by_name: rule.is_one_address() && !rule.built_in },
            _ => EgressVerdict::Refuse,
        }
    }
}

/// Returns the IPv4 address that a NAT64 (RFC 6052) or 6to4 (RFC 3056) address embeds.
fn held_v4(address: IpAddr) -> Option<Ipv4Addr> {
    let IpAddr::V6(address) = address else { return None };
    let bits = address.to_bits();
    match address.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, ..] => Some(Ipv4Addr::from_bits(bits as u32)),
        [0x2002, ..] => Some(Ipv4Addr::from_bits((bits >> 80) as u32)),
        _ => None,
    }
}

impl EgressRule {
    /// Parses a rule. `allow` is whether it allows the flows that it matches, or denies them.
    ///
    /// # Errors
    /// The text is not a rule.
    pub fn parse(text: &str, allow: bool) -> Result<EgressRule, BadEgressRule> {
        let bad = || BadEgressRule(text.to_owned());
        let (rest, transport) = split_transport(text);
        let (net, ports) = split_ports(rest).ok_or_else(bad)?;
        let ports = ports.map(parse_ports).transpose().map_err(|()| bad())?;
        if ports.is_some() && transport == Some(FlowTransport::Icmp) {
            return Err(bad());
        }
        Ok(EgressRule { net: net.parse().map_err(|()| bad())?, ports, transport, allow, built_in: false })
    }

    fn fits(&self, request: &EgressRequest) -> bool {
        let ports = match &self.ports {
            Some(ports) => request.transport != FlowTransport::Icmp && ports.contains(&request.port),
            None => true,
        };
        ports && self.transport.is_none_or(|transport| transport == request.transport) && self.net.contains(request.dst)
    }

    /// Rules are compared by this: the greatest one decides. The order is: longer prefix, ports, transport; then the
    /// user's rule before a built-in one, then the denying one.
    fn rank(&self) -> [u8; 5] {
        let prefix = match self.net {
            RuleNet::Any => 0,
            RuleNet::V4(_, prefix) | RuleNet::V6(_, prefix) => prefix,
        };
        let flags = [self.ports.is_some(), self.transport.is_some(), !self.built_in, !self.allow].map(u8::from);
        [prefix, flags[0], flags[1], flags[2], flags[3]]
    }

    fn is_one_address(&self) -> bool {
        matches!(self.net, RuleNet::V4(_, 32) | RuleNet::V6(_, 128))
    }
}

fn split_transport(text: &str) -> (&str, Option<FlowTransport>) {
    let names = [("/tcp", FlowTransport::Tcp), ("/udp", FlowTransport::Udp), ("/icmp", FlowTransport::Icmp)];
    let found = names.into_iter().find_map(|(name, transport)| Some((text.strip_suffix(name)?, transport)));
    found.map_or((text, None), |(rest, transport)| (rest, Some(transport)))
}

/// Splits a rule such as `10.0.0.0/8:80`, `[fd00::1]:80`, `[fd00::]/8:80` or `any:80` into network and ports.
fn split_ports(text: &str) -> Option<(String, Option<&str>)> {
    if let Some(bracketed) = text.strip_prefix('[') {
        let (address, rest) = bracketed.split_once(']')?;
        let (prefix, ports) = rest.split_once(':').map_or((rest, None), |(prefix, ports)| (prefix, Some(ports)));
        let is_prefix = prefix.is_empty() || prefix.starts_with('/');
        return is_prefix.then(|| (format!("{address}{prefix}"), ports));
    }
    match text.split_once(':') {
        Some((net, ports)) if !ports.contains(':') => Some((net.to_owned(), Some(ports))),
        _ => Some((text.to_owned(), None)),
    }
}

fn parse_ports(text: &str) -> Result<RangeInclusive<u16>, ()> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let from: u16 = from.parse().map_err(|_| ())?;
    let to: u16 = to.parse().map_err(|_| ())?;
    if from == 0 || from > to { Err(()) } else { Ok(from..=to) }
}

impl FromStr for RuleNet {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if text == "any" {
            return Ok(RuleNet::Any);
        }
        let (address, prefix) = text.split_once('/').map_or((text, None), |(address, prefix)| (address, Some(prefix)));
        let address: IpAddr = address.parse().map_err(|_| ())?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.map_or(Ok(longest), |prefix| prefix.parse().map_err(|_| ()))?;
        match address {
            _ if prefix > longest => Err(()),
            IpAddr::V4(address) => Ok(RuleNet::V4(address, prefix)),
            IpAddr::V6(address) => Ok(RuleNet::V6(address, prefix)),
        }
    }
}

impl RuleNet {
    fn contains(&self, address: IpAddr) -> bool {
        match (self, address) {
            (RuleNet::Any, _) => true,
            (RuleNet::V4(net, prefix), IpAddr::V4(address)) => {
                let differing = net.to_bits() ^ address.to_bits();
                differing.checked_shr(32 - u32::from(*prefix)).unwrap_or(0) == 0
            }
            (RuleNet::V6(net, prefix), IpAddr::V6(address)) => {
                let differing = net.to_bits() ^ address.to_bits();
                differing.checked_shr(128 - u32::from(*prefix)).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guests::NetworkId;
    use netvale_wire::MacAddr;

    fn with(rules: &[&str]) -> EgressPolicy {
        let mut policy = EgressPolicy::default();
        for rule in rules {
            let (word, what) = rule.split_once(' ').expect("two words");
            policy.add(EgressRule::parse(what, word == "allow").expect("a rule"));
        }
        policy
    }

    fn tcp(dst: &str, port: u16) -> EgressRequest {
        let dst = dst.parse().expect("an address");
        EgressRequest { guest: NetworkId::UNTAGGED.station(MacAddr::ZERO), transport: FlowTransport::Tcp, dst, port }
    }

    fn allows(policy: &EgressPolicy, dst: &str, port: u16) -> bool {
        policy.decide(&tcp(dst, port)) != EgressVerdict::Refuse
    }

    #[test]
    fn the_internet_is_allowed_and_nothing_else() {
        let policy = EgressPolicy::default();
        for dst in ["192.0.2.1", "1.1.1.1", "2606:4700::1111", "64:ff9b::808:808", "2002:808:808::1"] {
            assert!(allows(&policy, dst, 443), "{dst}");
        }
        for dst in [
            "127.0.0.1",
            "10.1.2.3",
            "192.168.1.1",
            "172.31.0.1",
            "169.254.169.254",
            "100.100.0.1",
            "0.0.0.0",
            "255.255.255.255",
            "224.0.0.1",
            "::1",
            "::",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:8.8.8.8",
            "64:ff9b::7f00:1",
            "64:ff9b::a00:1",
            "2002:7f00:1::",
            "2002:a00:1::1",
            "fd00::1",
            "fe80::1",
            "ff02::1",
        ] {
            assert!(!allows(&policy, dst, 443), "{dst}");
        }
    }

    #[test]
    fn the_most_specific_rule_decides() {
        let policy = with(&["deny any", "allow 192.0.2.0/24", "deny 192.0.2.7", "allow 192.0.2.7:443/tcp"]);
        assert!(!allows(&policy, "1.1.1.1", 443) && !allows(&policy, "2606:4700::1111", 443));
        assert!(allows(&policy, "192.0.2.1", 80) && !allows(&policy, "192.0.2.7", 80));
        assert!(allows(&policy, "192.0.2.7", 443));
        let udp = EgressRequest { transport: FlowTransport::Udp, ..tcp("192.0.2.7", 443) };
        assert_eq!(policy.decide(&udp), EgressVerdict::Refuse);
        let both = with(&["allow 192.0.2.1", "deny 192.0.2.1"]);
        assert!(!allows(&both, "192.0.2.1", 80), "what denies wins between equals");
    }

    #[test]
    fn private_networks_take_a_rule_of_their_own() {
        assert!(!allows(&with(&["allow any", "allow 0.0.0.0/0"]), "10.0.0.9", 80));
        assert!(allows(&with(&["allow 10.0.0.0/8"]), "10.0.0.9", 80));
        let one_port = with(&["allow 127.0.0.1:8080"]);
        assert!(allows(&one_port, "127.0.0.1", 8080) && !allows(&one_port, "127.0.0.1", 22));
        assert!(allows(&with(&["allow [fd00::]/8:80"]), "fd00::9", 80));
        assert!(!allows(&with(&["allow 64:ff9b::/96"]), "64:ff9b::a00:1", 80), "the address inside counts");
    }

    #[test]
    fn a_rule_for_one_address_names_it() {
        let policy = with(&["allow 192.0.2.0/24", "allow 198.51.100.7:80"]);
        assert_eq!(policy.decide(&tcp("192.0.2.1", 80)), EgressVerdict::Allow { by_name: false });
        assert_eq!(policy.decide(&tcp("198.51.100.7", 80)), EgressVerdict::Allow { by_name: true });
        assert_eq!(policy.decide(&tcp("198.51.100.7", 81)), EgressVerdict::Allow { by_name: false });
        let mut host = EgressPolicy::default();
        host.allow_host();
        assert!(allows(&host, "127.0.0.1", 22) && allows(&host, "::1", 22) && !allows(&host, "10.0.0.1", 22));
    }

    #[test]
    fn text_that_is_no_rule_is_refused() {
        for text in [
            "",
            "x",
            "10.0.0.0/33",
            "::/129",
            "10.0.0.1:",
            "10.0.0.1:0",
            "10.0.0.1:9-8",
            "10.0.0.1:80/sctp",
            "[::1",
            "[::1]80",
            "any:1-99999",
            "10.0.0.1:80/icmp",
            "10.0.0.0/-1",
            "::1:80:",
        ] {
            assert!(EgressRule::parse(text, true).is_err(), "{text}");
        }
        for text in ["any", "any:80", "10.0.0.1", "::1", "[::1]:80-90/udp", "10.0.0.0/8:1-2/tcp", "10.0.0.1/icmp"] {
            assert!(EgressRule::parse(text, true).is_ok(), "{text}");
        }
    }
}
