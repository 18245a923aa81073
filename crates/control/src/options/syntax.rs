//! Syntaxes of options' texts.

use netvale_policy::guard::{AllowedAddresses, Checks};
use netvale_policy::impair::Spec;
use netvale_policy::units::{Rate, Size};
use netvale_policy::vlan::{TagProtocol, VlanSet};

use super::group::RateGroup;
use super::rule::ConfiguredRule;
use super::shape::Syntax;
use super::written::{InfoText, Notation};

/// Returns whether a text can be read as a `T`.
fn is<T: Notation>(text: &str) -> bool {
    T::read(text).is_some()
}

/// Syntax of a port's description for people.
pub static INFO: Syntax = Syntax {
    what: "up to 128 bytes of text, without control characters",
    example: "shop/web-1",
    check: is::<InfoText>,
};

/// Syntax of a trunk's VLANs.
pub static VLANS: Syntax = Syntax { what: "VLANs such as 10,20-30, or all", example: "10,20-30", check: is::<VlanSet> };

/// Syntax of the protocol of VLAN tags.
pub static VLAN_PROTOCOL: Syntax = Syntax { what: "802.1q or 802.1ad", example: "802.1ad", check: is::<TagProtocol> };

/// Syntax of a port's addresses.
pub static ADDRESSES: Syntax = Syntax {
    what: "Ethernet addresses, IP addresses and prefixes, such as 02:00:00:00:00:0a,10.0.0.5,2001:db8::/64",
    example: "02:00:00:00:00:0a,10.0.0.5",
    check: is::<AllowedAddresses>,
};

/// Syntax of the checks on a port's frames.
pub static CHECKS: Syntax = Syntax {
    what: "mac, ip, arp, nd, dhcp and ra, any of them separated by commas, or all",
    example: "dhcp,ra",
    check: is::<Checks>,
};

/// Syntax of a filter rule.
pub static RULE: Syntax =
    Syntax { what: "a rule such as 'drop not arp'", example: "drop not arp", check: is::<ConfiguredRule> };

/// Syntax of a link's impairments.
pub static LINK: Syntax = Syntax {
    what: "netem parameters such as 'delay 70ms 5ms loss 1%'",
    example: "delay 70ms 5ms loss 1%",
    check: is::<Spec>,
};

/// Syntax of a rate group: its name and rate.
pub static GROUP: Syntax = Syntax {
    what: "a name and a rate such as 'tenant1 100mbit' or 'tenant1 100mbit burst 1mb'",
    example: "tenant1 100mbit",
    check: is::<RateGroup>,
};

/// Syntax of a rate above 0.
pub static RATE: Syntax = Syntax { what: "a rate above 0 such as 100mbit", example: "100mbit", check: is::<Rate> };

/// Syntax of a size above 0.
pub static SIZE: Syntax = Syntax { what: "a size above 0 such as 64kb", example: "64kb", check: is::<Size> };
