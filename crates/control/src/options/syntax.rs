//! How the texts of options are written.

use netvale_policy::units::{Rate, Size};
use netvale_policy::vlan::{Protocol, VlanSet};

use super::shape::Syntax;
use crate::mac::Mac;

/// VLANs of a trunk.
pub static VLANS: Syntax = Syntax {
    what: "VLANs such as 10,20-30, or all",
    example: "10,20-30",
    check: |text| text.parse::<VlanSet>().is_ok(),
};

/// The protocol of tags.
pub static VLAN_PROTOCOL: Syntax =
    Syntax { what: "802.1q or 802.1ad", example: "802.1ad", check: |text| text.parse::<Protocol>().is_ok() };

/// Ethernet addresses.
pub static MACS: Syntax = Syntax {
    what: "Ethernet addresses such as 02:00:00:00:00:0a, with commas between them",
    example: "02:00:00:00:00:0a,02:00:00:00:00:0b",
    check: |text| macs(text).is_some(),
};

/// A rate, not 0.
pub static RATE: Syntax = Syntax {
    what: "a rate above 0 such as 100mbit",
    example: "100mbit",
    check: |text| text.parse::<Rate>().is_ok_and(|rate| rate.bits() > 0),
};

/// A size, not 0.
pub static SIZE: Syntax = Syntax {
    what: "a size above 0 such as 64kb",
    example: "64kb",
    check: |text| text.parse::<Size>().is_ok_and(|size| size.bytes() > 0),
};

/// Reads a list of addresses, none of a group.
#[must_use]
pub fn macs(text: &str) -> Option<Vec<Mac>> {
    let words = text.split([',', ' ']).filter(|word| !word.is_empty());
    let macs: Vec<Mac> = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
    let is_station = |mac: &Mac| mac.0[0] & 1 == 0 && mac.0 != [0; 6];
    (!macs.is_empty() && macs.len() <= MOST_ADDRESSES && macs.iter().all(is_station)).then_some(macs)
}

/// Addresses that a port can be given.
pub const MOST_ADDRESSES: usize = 64;
