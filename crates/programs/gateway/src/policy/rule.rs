//! A rule of the egress policy ([`EgressRule`]), and its text.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::str::FromStr;

use super::pattern::NamePattern;
use super::{EgressRequest, FlowTransport};

/// A rule: which flows it matches, and whether it allows or denies them. As text: `allow 10.0.0.0/8:80/tcp`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EgressRule {
    pub(super) target: RuleTarget,
    pub(super) ports: Option<RangeInclusive<u16>>,
    pub(super) transport: Option<FlowTransport>,
    pub(super) allow: bool,
    pub(super) built_in: bool,
}

/// The destinations of a rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum RuleTarget {
    Any,
    V4(Ipv4Addr, u8),
    V6(Ipv6Addr, u8),
    Name(NamePattern),
}

/// The error for text that is not a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid rule {0:?}: expected ADDRESS[/PREFIX], NAME, *.NAME or any, then [:PORT[-PORT]][/tcp|/udp|/icmp]; put an \
     IPv6 address with ports in brackets, end a name without a dot with one, and write letters beyond ASCII as xn--…"
)]
pub struct BadEgressRule(String);

impl EgressRule {
    /// Parses a rule. If `allow`, the rule allows the flows that it matches; otherwise, it denies them.
    ///
    /// # Errors
    /// The text is not a rule.
    pub fn parse(text: &str, allow: bool) -> Result<EgressRule, BadEgressRule> {
        let bad = || BadEgressRule(text.to_owned());
        let (rest, transport) = split_transport(text);
        let (target, ports) = split_ports(rest).ok_or_else(bad)?;
        let ports = ports.map(parse_ports).transpose().map_err(|()| bad())?;
        if ports.is_some() && transport == Some(FlowTransport::Icmp) {
            return Err(bad());
        }
        Ok(EgressRule { target: target.parse().map_err(|()| bad())?, ports, transport, allow, built_in: false })
    }

    /// Returns whether the rule matches this flow.
    pub(super) fn fits(&self, request: &EgressRequest<'_>) -> bool {
        let ports = match &self.ports {
            Some(ports) => request.transport != FlowTransport::Icmp && ports.contains(&request.port),
            None => true,
        };
        let transport = self.transport.is_none_or(|transport| transport == request.transport);
        ports && transport && (self.target.contains(request.dst) || self.name_of(request).is_some())
    }

    /// Returns the index of the first name in the request that the rule's name matches; `None` if the rule has no name,
    /// or its name matches none.
    pub(super) fn name_of(&self, request: &EgressRequest<'_>) -> Option<usize> {
        let RuleTarget::Name(pattern) = &self.target else { return None };
        request.names.iter().position(|name| pattern.matches(name))
    }

    /// Returns whether the rule's destination is a name or a pattern, and matches this name.
    pub(super) fn matches_name(&self, name: &str) -> bool {
        matches!(&self.target, RuleTarget::Name(pattern) if pattern.matches(name))
    }

    /// Returns the key by which rules are compared; the rule with the greatest key decides. Rules for networks come
    /// before rules for names, and these before rules for all addresses. Of two networks, the longer prefix comes
    /// first; a single name comes before a pattern, and more labels come before fewer. Between rules that are equal so
    /// far, a rule with ports comes first, then a rule with a transport, then the user's rule before a built-in rule,
    /// and then a rule that denies.
    pub(super) fn rank(&self) -> [u8; 7] {
        let [class, one, size] = match &self.target {
            RuleTarget::Any | RuleTarget::V4(_, 0) | RuleTarget::V6(_, 0) => [0, 0, 0],
            RuleTarget::Name(pattern) => [1, pattern.is_one_name().into(), pattern.labels()],
            RuleTarget::V4(_, prefix) | RuleTarget::V6(_, prefix) => [2, 0, *prefix],
        };
        let flags = [self.ports.is_some(), self.transport.is_some(), !self.built_in, !self.allow].map(u8::from);
        [class, one, size, flags[0], flags[1], flags[2], flags[3]]
    }

    /// Returns whether the rule applies to all ports and transports of its destinations.
    pub(super) fn is_whole(&self) -> bool {
        self.ports.is_none() && self.transport.is_none()
    }

    pub(super) fn is_one_address(&self) -> bool {
        matches!(self.target, RuleTarget::V4(_, 32) | RuleTarget::V6(_, 128))
    }
}

impl FromStr for EgressRule {
    type Err = BadEgressRule;

    /// Parses a rule with its verb: `allow RULE` or `deny RULE`.
    fn from_str(text: &str) -> Result<Self, BadEgressRule> {
        match text.trim().split_once(char::is_whitespace) {
            Some(("allow", rule)) => EgressRule::parse(rule.trim_start(), true),
            Some(("deny", rule)) => EgressRule::parse(rule.trim_start(), false),
            _ => Err(BadEgressRule(text.to_owned())),
        }
    }
}

impl fmt::Display for EgressRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = if self.allow { "allow" } else { "deny" };
        let brackets = matches!(self.target, RuleTarget::V6(..)) && self.ports.is_some();
        match &self.target {
            RuleTarget::Any => write!(f, "{verb} any")?,
            RuleTarget::V4(address, 32) => write!(f, "{verb} {address}")?,
            RuleTarget::V4(address, prefix) => write!(f, "{verb} {address}/{prefix}")?,
            RuleTarget::V6(address, 128) if brackets => write!(f, "{verb} [{address}]")?,
            RuleTarget::V6(address, 128) => write!(f, "{verb} {address}")?,
            RuleTarget::V6(address, prefix) if brackets => write!(f, "{verb} [{address}]/{prefix}")?,
            RuleTarget::V6(address, prefix) => write!(f, "{verb} {address}/{prefix}")?,
            RuleTarget::Name(pattern) => write!(f, "{verb} {pattern}")?,
        }
        match &self.ports {
            Some(ports) if ports.start() == ports.end() => write!(f, ":{}", ports.start())?,
            Some(ports) => write!(f, ":{}-{}", ports.start(), ports.end())?,
            None => {}
        }
        self.transport.map_or(Ok(()), |transport| write!(f, "/{}", transport.word()))
    }
}

fn split_transport(text: &str) -> (&str, Option<FlowTransport>) {
    let all = [FlowTransport::Tcp, FlowTransport::Udp, FlowTransport::Icmp];
    let rest = |transport: FlowTransport| text.strip_suffix(transport.word())?.strip_suffix('/');
    let found = all.into_iter().find_map(|transport| Some((rest(transport)?, transport)));
    found.map_or((text, None), |(rest, transport)| (rest, Some(transport)))
}

/// Splits a rule such as `10.0.0.0/8:80`, `[fd00::1]:80`, `[fd00::]/8:80`, `example.com:80` or `any:80` into
/// destinations and ports. Returns `None` if the brackets are malformed.
fn split_ports(text: &str) -> Option<(String, Option<&str>)> {
    if let Some(bracketed) = text.strip_prefix('[') {
        let (address, rest) = bracketed.split_once(']')?;
        let (prefix, ports) = rest.split_once(':').map_or((rest, None), |(prefix, ports)| (prefix, Some(ports)));
        let is_prefix = prefix.is_empty() || prefix.starts_with('/');
        let is_address = address.parse::<Ipv6Addr>().is_ok();
        return (is_prefix && is_address).then(|| (format!("{address}{prefix}"), ports));
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

impl FromStr for RuleTarget {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if text == "any" {
            return Ok(RuleTarget::Any);
        }
        let (address, prefix) = text.split_once('/').map_or((text, None), |(address, prefix)| (address, Some(prefix)));
        let Ok(address) = address.parse::<IpAddr>() else { return text.parse().map(RuleTarget::Name) };
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let prefix: u8 = prefix.map_or(Ok(longest), |prefix| prefix.parse().map_err(|_| ()))?;
        match address {
            _ if prefix > longest => Err(()),
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
                Ok(RuleTarget::V4(Ipv4Addr::from_bits(address.to_bits() & mask), prefix))
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
                Ok(RuleTarget::V6(Ipv6Addr::from_bits(address.to_bits() & mask), prefix))
            }
        }
    }
}

impl RuleTarget {
    /// Returns whether an address is among the destinations; always false for a target that is a name.
    fn contains(&self, address: IpAddr) -> bool {
        match (self, address) {
            (RuleTarget::Any, _) => true,
            (RuleTarget::V4(net, prefix), IpAddr::V4(address)) => {
                let differing = net.to_bits() ^ address.to_bits();
                differing.checked_shr(32 - u32::from(*prefix)).unwrap_or(0) == 0
            }
            (RuleTarget::V6(net, prefix), IpAddr::V6(address)) => {
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

    #[test]
    fn a_rule_reads_back_from_its_text() {
        for text in [
            "allow any",
            "deny any:25",
            "allow 10.0.0.0/8:1-2/tcp",
            "deny 192.0.2.7/icmp",
            "allow fd00::/8",
            "allow [fd00::]/8:80-90/udp",
            "deny [::1]:80",
            "allow example.com:443/tcp",
            "deny *.example.org",
            "allow db.:5432",
        ] {
            let rule: EgressRule = text.parse().expect("a rule");
            assert_eq!(rule.to_string(), text);
            assert_eq!(rule.to_string().parse(), Ok(rule));
        }
        let rule = |text: &str| text.parse::<EgressRule>().expect("a rule");
        assert_eq!(rule("allow  10.9.8.7/8"), rule("allow 10.0.0.0/8"));
        assert_eq!(rule("deny Example.COM."), rule(" deny example.com "));
    }

    #[test]
    fn text_that_is_no_rule_is_refused() {
        for text in [
            "",
            "x",
            "all",
            "10.0.0",
            "10.0.0.0/33",
            "::/129",
            "10.0.0.1:",
            "10.0.0.1:0",
            "10.0.0.1:9-8",
            "10.0.0.1:80/sctp",
            "[::1",
            "[::1]80",
            "[example.com]:80",
            "any:1-99999",
            "10.0.0.1:80/icmp",
            "10.0.0.0/-1",
            "::1:80:",
            "*",
            "*.",
            "example.com/24",
            "exa_mple..com",
            "fe80::1%eth0",
        ] {
            assert!(EgressRule::parse(text, true).is_err(), "{text}");
        }
        for text in ["", "allow", "allow ", "permit any", "any", "allow any any", "denyany"] {
            assert!(text.parse::<EgressRule>().is_err(), "{text}");
        }
    }
}
