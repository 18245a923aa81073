//! The egress policy: which destinations guests may reach.
//!
//! The policy decides about each new flow (an [`EgressRequest`]); its decision, an [`EgressVerdict`], holds until the
//! flow ends or the rules change. An [`EgressPolicy`] is a list of rules ([`EgressRule`]). Of the rules that match a
//! flow, the most specific one decides. Built-in rules refuse the host's loopback and networks that are not part of the
//! Internet.
//!
//! A rule with a name matches a flow if the guest has resolved that name to the destination's address
//! ([`resolved`](crate::resolved)). Rules with addresses come before rules with names: no answer of a name server lets
//! guests reach an address that a rule refuses.

mod pattern;
mod rule;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use crate::guests::GuestId;

pub use self::pattern::NamePattern;
use self::rule::RuleTarget;
pub use self::rule::{BadEgressRule, EgressRule};

/// Maximum number of rules of the user.
pub const MAX_RULES: usize = 4096;

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

impl FlowTransport {
    /// Returns the word for this transport in rules.
    pub fn word(self) -> &'static str {
        match self {
            FlowTransport::Tcp => "tcp",
            FlowTransport::Udp => "udp",
            FlowTransport::Icmp => "icmp",
        }
    }
}

/// A flow that a guest wants to begin.
#[derive(Clone, Copy, Debug)]
pub struct EgressRequest<'a> {
    /// The guest.
    pub guest: GuestId,
    /// The transport.
    pub transport: FlowTransport,
    /// The address to which the host's socket would connect: the flow's destination or, if that is an address of the
    /// gateway, the host's loopback.
    pub dst: IpAddr,
    /// The destination's port; 0 for ICMP.
    pub port: u16,
    /// The DNS names that the guest resolved to the destination's address, in lower case and without the last dot.
    pub names: &'a [Arc<str>],
}

/// A policy's decision about a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EgressVerdict {
    /// The flow may begin.
    Allow {
        /// Whether the deciding rule is a rule of the user for exactly this address, not for a network or a name.
        by_address: bool,
        /// The index, in the request's names, of the name by which a rule allows the flow; `None` if a rule without a
        /// name decides.
        name: Option<usize>,
    },
    /// The flow may not begin.
    Refuse,
}

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

/// The rules of the user, and the built-in rules.
#[derive(Clone, Debug)]
pub struct EgressPolicy {
    built_in: Vec<EgressRule>,
    rules: Vec<EgressRule>,
}

impl Default for EgressPolicy {
    fn default() -> Self {
        let refused = NOT_THE_INTERNET.iter().filter_map(|text| EgressRule::parse(text, false).ok());
        let any = EgressRule { target: RuleTarget::Any, ports: None, transport: None, allow: true, built_in: true };
        let built_in = refused.map(|rule| EgressRule { built_in: true, ..rule }).chain([any]).collect();
        EgressPolicy { built_in, rules: Vec::new() }
    }
}

impl EgressPolicy {
    /// Adds a rule of the user, unless the policy already has this rule.
    pub fn add(&mut self, rule: EgressRule) {
        if !self.rules.contains(&rule) {
            self.rules.push(rule);
        }
    }

    /// Removes a rule of the user. Returns whether the policy had this rule.
    pub fn remove(&mut self, rule: &EgressRule) -> bool {
        let count = self.rules.len();
        self.rules.retain(|known| known != rule);
        self.rules.len() < count
    }

    /// Replaces the user's rules.
    pub fn set(&mut self, rules: Vec<EgressRule>) {
        self.rules.clear();
        rules.into_iter().for_each(|rule| self.add(rule));
    }

    /// Returns the user's rules, in the order in which they were added.
    pub fn rules(&self) -> &[EgressRule] {
        &self.rules
    }

    /// Allows all ports of the host's loopback.
    pub fn allow_host(&mut self) {
        let loopback = ["127.0.0.0/8", "::1"];
        loopback.iter().filter_map(|text| EgressRule::parse(text, true).ok()).for_each(|rule| self.add(rule));
    }

    /// Decides about a flow. An IPv6 destination that embeds an IPv4 address (NAT64, 6to4) must be allowed under both
    /// addresses.
    pub fn decide(&self, request: &EgressRequest<'_>) -> EgressVerdict {
        let verdict = self.decide_one(request);
        match held_v4(request.dst).map(|held| self.decide_one(&EgressRequest { dst: held.into(), ..*request })) {
            Some(EgressVerdict::Refuse) => EgressVerdict::Refuse,
            _ => verdict,
        }
    }

    fn decide_one(&self, request: &EgressRequest<'_>) -> EgressVerdict {
        let fitting = self.all().filter(|rule| rule.fits(request));
        match fitting.max_by_key(|rule| rule.rank()) {
            Some(rule) if rule.allow => EgressVerdict::Allow {
                by_address: rule.is_one_address() && !rule.built_in,
                name: rule.name_of(request),
            },
            _ => EgressVerdict::Refuse,
        }
    }

    fn all(&self) -> impl Iterator<Item = &EgressRule> {
        self.built_in.iter().chain(&self.rules)
    }

    /// Returns whether the name service may ask servers for a name. If guests can reach nothing by default, it may ask
    /// only for names that a rule allows, as a guest could send data out in a question for any other name. It may also
    /// not ask for a name that a rule denies at all ports.
    pub fn resolves(&self, name: &str) -> bool {
        let about = self.rules.iter().filter(|rule| rule.matches_name(name) && (rule.allow || rule.is_whole()));
        match about.max_by_key(|rule| rule.rank()) {
            Some(rule) => rule.allow,
            None => self.is_open(),
        }
    }

    /// Returns whether guests can reach all Internet addresses of IPv4, or all of IPv6, over at least one transport and
    /// at one port or more.
    fn is_open(&self) -> bool {
        let transports = [FlowTransport::Tcp, FlowTransport::Udp, FlowTransport::Icmp];
        [true, false].into_iter().any(|v4| transports.into_iter().any(|transport| self.is_open_for(v4, transport)))
    }

    fn is_open_for(&self, v4: bool, transport: FlowTransport) -> bool {
        let about = self.all().filter(|rule| match rule.target {
            RuleTarget::Any => true,
            RuleTarget::V4(_, 0) => v4,
            RuleTarget::V6(_, 0) => !v4,
            _ => false,
        });
        let about = about.filter(|rule| rule.transport.is_none_or(|only| only == transport));
        let (whole, parts): (Vec<_>, Vec<_>) = about.partition(|rule| rule.ports.is_none());
        let by_default = whole.into_iter().max_by_key(|rule| rule.rank()).is_some_and(|rule| rule.allow);
        by_default || parts.into_iter().any(|rule| rule.allow)
    }
}

/// Returns the IPv4 address that a NAT64 (RFC 6052) or 6to4 (RFC 3056) address embeds; `None` for other addresses.
pub fn held_v4(address: IpAddr) -> Option<Ipv4Addr> {
    let IpAddr::V6(address) = address else { return None };
    let bits = address.to_bits();
    match address.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, ..] => Some(Ipv4Addr::from_bits(bits as u32)),
        [0x2002, ..] => Some(Ipv4Addr::from_bits((bits >> 80) as u32)),
        _ => None,
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

    fn tcp(dst: &str, port: u16) -> EgressRequest<'static> {
        let dst = dst.parse().expect("an address");
        let guest = NetworkId::UNTAGGED.station(MacAddr::ZERO);
        EgressRequest { guest, transport: FlowTransport::Tcp, dst, port, names: &[] }
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
        assert_eq!(policy.decide(&tcp("192.0.2.1", 80)), EgressVerdict::Allow { by_address: false, name: None });
        assert_eq!(policy.decide(&tcp("198.51.100.7", 80)), EgressVerdict::Allow { by_address: true, name: None });
        assert_eq!(policy.decide(&tcp("198.51.100.7", 81)), EgressVerdict::Allow { by_address: false, name: None });
        let mut host = EgressPolicy::default();
        host.allow_host();
        assert!(allows(&host, "127.0.0.1", 22) && allows(&host, "::1", 22) && !allows(&host, "10.0.0.1", 22));
    }

    /// Returns whether a flow to an address may begin if the guest has resolved these names to the address.
    fn allows_as(policy: &EgressPolicy, dst: &str, port: u16, names: &[&str]) -> bool {
        let names: Vec<Arc<str>> = names.iter().map(|name| Arc::from(*name)).collect();
        policy.decide(&EgressRequest { names: &names, ..tcp(dst, port) }) != EgressVerdict::Refuse
    }

    #[test]
    fn a_name_allows_the_addresses_that_the_guest_got_for_it() {
        let policy = with(&["deny any", "allow example.com:443/tcp", "allow *.example.org"]);
        assert!(allows_as(&policy, "192.0.2.1", 443, &["example.com"]));
        assert!(allows_as(&policy, "2606:4700::1111", 443, &["other.test", "example.com"]));
        assert!(!allows_as(&policy, "192.0.2.1", 80, &["example.com"]), "another port");
        assert!(!allows_as(&policy, "192.0.2.1", 443, &["www.example.com"]), "another name");
        assert!(!allows_as(&policy, "192.0.2.1", 443, &[]), "no name");
        assert!(allows_as(&policy, "192.0.2.1", 25, &["a.b.example.org"]));
        assert!(!allows_as(&policy, "192.0.2.1", 25, &["example.org"]));
        let names = ["other.test".into(), "a.example.org".into()];
        let request = EgressRequest { names: &names, ..tcp("192.0.2.1", 80) };
        assert_eq!(policy.decide(&request), EgressVerdict::Allow { by_address: false, name: Some(1) });
    }

    #[test]
    fn a_name_opens_no_address_that_a_rule_refuses() {
        let policy = with(&["allow example.com", "deny 192.0.2.0/24"]);
        for dst in [
            "10.1.2.3",
            "127.0.0.1",
            "169.254.169.254",
            "192.0.2.9",
            "::1",
            "fd00::1",
            "fe80::1",
            "::ffff:10.1.2.3",
            "::ffff:192.0.2.9",
            "::127.0.0.1",
            "64:ff9b::a01:203",
            "64:ff9b::c000:209",
            "2002:a01:203::1",
            "2001::a01:203",
        ] {
            assert!(!allows_as(&policy, dst, 443, &["example.com"]), "{dst}");
        }
        assert!(allows_as(&policy, "64:ff9b::808:808", 443, &["example.com"]));
        let closed = with(&["deny any", "allow example.com"]);
        assert!(allows_as(&closed, "64:ff9b::808:808", 443, &["example.com"]) && !allows(&closed, "8.8.8.8", 443));
        let both = with(&["deny any", "allow example.com", "allow 10.1.2.3"]);
        assert!(
            allows_as(&both, "10.1.2.3", 443, &["example.com"]) && !allows_as(&both, "10.1.2.4", 443, &["example.com"])
        );
    }

    #[test]
    fn of_rules_with_names_the_most_specific_decides() {
        let policy = with(&["deny any", "allow *.example.org", "deny *.b.example.org", "allow c.b.example.org:80"]);
        assert!(allows_as(&policy, "192.0.2.1", 80, &["a.example.org"]));
        assert!(!allows_as(&policy, "192.0.2.1", 80, &["a.b.example.org"]));
        assert!(allows_as(&policy, "192.0.2.1", 80, &["c.b.example.org"]));
        assert!(!allows_as(&policy, "192.0.2.1", 81, &["c.b.example.org"]));
        assert!(
            !allows_as(&policy, "192.0.2.1", 80, &["a.example.org", "a.b.example.org"]),
            "an address of both names"
        );
        let denied = with(&["deny example.com"]);
        assert!(!allows_as(&denied, "192.0.2.1", 80, &["example.com"]) && allows(&denied, "192.0.2.1", 80));
    }

    #[test]
    fn names_are_asked_for_only_if_a_rule_allows_something_of_them() {
        let open = with(&["deny bad.test", "allow bad.test:443", "deny *.worse.test", "deny mail.test:25"]);
        for name in ["example.com", "", "bad.test", "worse.test", "mail.test", "1.2.0.192.in-addr.arpa"] {
            assert!(open.resolves(name), "{name}");
        }
        assert!(!open.resolves("a.worse.test"));
        let closed =
            with(&["deny any", "allow 192.0.2.0/24", "allow Example.com:443", "deny *.a.test", "allow *.a.test:1"]);
        assert!(closed.resolves("example.com") && closed.resolves("b.a.test"));
        for name in ["", "com", "www.example.com", "a.test", "1.2.0.192.in-addr.arpa"] {
            assert!(!closed.resolves(name), "{name}");
        }
    }

    #[test]
    fn names_are_free_while_some_port_of_all_addresses_is_open() {
        for rules in [
            &["deny any:25"][..],
            &["deny any", "allow any:53/udp"],
            &["deny any/tcp", "deny any/udp"],
            &["deny 0.0.0.0/0"],
            &["deny any", "allow 0.0.0.0/0:443"],
            &["deny any", "allow any/tcp"],
            &["deny 1.0.0.0/1"],
        ] {
            assert!(with(rules).resolves("example.com"), "{rules:?}");
        }
        for rules in [
            &["deny any"][..],
            &["deny 0.0.0.0/0", "deny ::/0"],
            &["deny any/tcp", "deny any/udp", "deny any/icmp"],
            &["deny any", "allow any"],
            &["deny any", "allow 8.8.8.8"],
        ] {
            assert!(!with(rules).resolves("example.com"), "{rules:?}");
        }
    }

    #[test]
    fn rules_are_listed_added_once_and_removed() {
        let mut policy = with(&["deny any", "allow 10.0.0.0/8", "allow 10.1.1.1/8"]);
        let texts = |policy: &EgressPolicy| policy.rules().iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(texts(&policy), ["deny any", "allow 10.0.0.0/8"]);
        let rule: EgressRule = "allow 10.0.0.0/8".parse().expect("a rule");
        assert!(policy.remove(&rule) && !policy.remove(&rule));
        policy.set(vec![rule.clone(), rule]);
        assert_eq!(texts(&policy), ["allow 10.0.0.0/8"]);
        assert!(allows(&policy, "8.8.8.8", 80), "the built-in rules stay");
    }
}
