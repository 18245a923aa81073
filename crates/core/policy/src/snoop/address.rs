//! Multicast groups and their MAC addresses (RFC 1112 §6.4, RFC 2464 §7).

use std::net::{IpAddr, Ipv6Addr};

use netvale_wire::MacAddr;

/// The family of a group, which determines its protocol: IGMP or MLD.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GroupFamily {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl GroupFamily {
    /// Returns the family of an IP address.
    pub fn of(addr: IpAddr) -> Self {
        if addr.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// Returns the family whose groups use MAC addresses like `mac`; `None` for other addresses.
    #[inline]
    pub fn of_mac(mac: MacAddr) -> Option<Self> {
        match mac.0 {
            [0x01, 0x00, 0x5e, high, ..] if high < 0x80 => Some(Self::V4),
            [0x33, 0x33, ..] => Some(Self::V6),
            _ => None,
        }
    }
}

/// Returns the destination MAC address of frames to `group`.
pub(super) fn mac_of(group: IpAddr) -> MacAddr {
    match group {
        IpAddr::V4(group) => {
            let [_, b, c, d] = group.octets();
            MacAddr([0x01, 0x00, 0x5e, b & 0x7f, c, d])
        }
        IpAddr::V6(group) => {
            let [.., a, b, c, d] = group.octets();
            MacAddr([0x33, 0x33, a, b, c, d])
        }
    }
}

/// Whether a frame to `mac` goes to all ports, whether or not they have joined its group. True for 224.0.0.x and
/// ff02::1, which hosts need not join, and for groups with the same MAC addresses.
#[inline]
pub(super) fn is_flooded(mac: MacAddr) -> bool {
    matches!(mac.0, [0x01, 0x00, 0x5e, 0, 0, _] | [0x33, 0x33, 0, 0, 0, 1])
}

/// Whether joins of `group` are recorded. False for a group whose frames go to all ports, or (IPv6) never leave the
/// host, and for an address that is not a group.
pub(super) fn is_snooped(group: IpAddr) -> bool {
    let scope = match group {
        IpAddr::V4(_) => None,
        IpAddr::V6(group) => Some(group.octets()[1] & 0xf),
    };
    group.is_multicast() && !is_flooded(mac_of(group)) && !matches!(scope, Some(0 | 1))
}

/// Returns the link-local address of the station with address `mac` (RFC 4291 appendix A).
pub(super) fn link_local(mac: MacAddr) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac.0;
    Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// Objective: groups have the MAC addresses of the RFCs, and such addresses are recognised.
    #[test]
    fn groups_have_mac_addresses() {
        for (group, mac, family) in [
            ("224.1.2.3", "01:00:5e:01:02:03", GroupFamily::V4),
            ("239.255.2.3", "01:00:5e:7f:02:03", GroupFamily::V4),
            ("ff05::1:abcd:ef01", "33:33:ab:cd:ef:01", GroupFamily::V6),
        ] {
            assert_eq!(mac_of(addr(group)), mac.parse().unwrap());
            assert_eq!(GroupFamily::of_mac(mac.parse().unwrap()), Some(family));
            assert_eq!(GroupFamily::of(addr(group)), family);
        }
        for other in
            ["01:00:5e:80:00:00", "01:80:c2:00:00:00", "ff:ff:ff:ff:ff:ff", "33:32:00:00:00:01", "01:01:5e:00:00:01"]
        {
            assert_eq!(GroupFamily::of_mac(other.parse().unwrap()), None, "{other}");
        }
    }

    /// Objective: some groups are not snooped: their frames go to all ports, or never leave a host.
    #[test]
    fn some_groups_are_not_snooped() {
        for group in
            ["224.0.0.1", "224.0.0.251", "239.128.0.5", "ff02::1", "ff01::5", "ff00::5", "10.0.0.1", "fe80::5", "::"]
        {
            assert!(!is_snooped(addr(group)), "{group}");
        }
        for group in ["224.0.1.1", "239.1.1.1", "ff02::2", "ff02::1:ff00:5", "ff05::2", "ff3e::8000:1"] {
            assert!(is_snooped(addr(group)), "{group}");
        }
    }

    /// Objective: link-local addresses contain the modified EUI-64 of RFC 4291.
    #[test]
    fn link_local_addresses_come_of_mac_addresses() {
        assert_eq!(link_local(MacAddr([2, 0, 0, 0, 0, 1])), "fe80::ff:fe00:1".parse::<Ipv6Addr>().unwrap());
        assert_eq!(link_local(MacAddr([0, 1, 2, 3, 4, 5])), "fe80::201:2ff:fe03:405".parse::<Ipv6Addr>().unwrap());
    }
}
