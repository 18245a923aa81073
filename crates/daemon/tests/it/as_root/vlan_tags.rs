//! Drivers that take VLAN tags out of frames.

use crate::common;

use common::{cable, ip};
use netvale_afxdp::iface::{driver, take_tags, takes_tags};

/// Objective: drivers are known by name, and told to leave tags in frames and to take them out.
#[test]
fn drivers_are_told() {
    if !rustix::process::geteuid().is_root() {
        return netvale_harness::skip("making interfaces needs root");
    }
    if !common::inside(&["--net"]) {
        return;
    }
    cable("nva", "nvb", 1);
    assert_eq!(driver("nva").as_deref(), Some("veth"));
    for on in [false, true, false] {
        take_tags("nva", on).unwrap();
        assert_eq!(takes_tags("nva"), on);
    }
    ip("link set lo up");
    assert!(!takes_tags("lo") && take_tags("lo", true).is_err());
}
