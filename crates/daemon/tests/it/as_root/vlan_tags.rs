//! Drivers that remove VLAN tags from frames.

use crate::common;

use common::{cable, ip};
use netvale_afxdp::iface::{Interface, TagOffload, driver, far_end, has_offload, set_offload};

/// Objective: the name of an interface's driver is found, and the driver can be set to leave VLAN tags in frames or to
/// remove them; the far end of a veth is found if it is in the same namespace.
#[test]
fn drivers_are_told() {
    if !common::is_root("making interfaces needs root") {
        return;
    }
    if !common::inside(&["--net"]) {
        return;
    }
    cable("nva", "nvb", 1);
    assert_eq!(driver("nva").as_deref(), Some("veth"));
    for offload in [TagOffload::Received, TagOffload::Sent] {
        for on in [false, true, false] {
            set_offload("nva", offload, on).unwrap();
            assert_eq!(has_offload("nva", offload), on);
        }
    }
    ip("link set lo up");
    assert!(!has_offload("lo", TagOffload::Received) && set_offload("lo", TagOffload::Received, true).is_err());
    let index = Interface::find("nva").unwrap().index;
    assert_eq!((far_end(index).as_deref(), far_end(1)), (Some("nvb"), None));
}
