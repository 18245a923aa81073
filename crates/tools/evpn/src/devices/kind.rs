//! The kinds of kernel devices that a mirror consists of.

use std::net::IpAddr;

/// The kind of a kernel device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DeviceKind {
    /// A bridge.
    Bridge,
    /// A VXLAN device.
    Tunnel {
        /// The VNI that the device carries.
        vni: u32,
        /// The local VTEP address, if it is set.
        local: Option<IpAddr>,
        /// The UDP port of the tunnel.
        udp_port: u16,
        /// Whether the device learns MAC addresses from received frames.
        learns: bool,
    },
    /// A dummy device.
    Dummy,
    /// An end of a veth pair.
    Veth,
    /// Any other kind.
    #[default]
    Other,
}
