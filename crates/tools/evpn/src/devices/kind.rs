//! Kinds of the kernel's devices.

use std::net::IpAddr;

/// The kind of a kernel device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DeviceKind {
    /// A bridge.
    Bridge,
    /// A VXLAN device.
    Tunnel {
        /// Its VNI.
        vni: u32,
        /// Its VTEP address.
        local: Option<IpAddr>,
        /// Its UDP port.
        udp_port: u16,
        /// Whether it learns from frames.
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
