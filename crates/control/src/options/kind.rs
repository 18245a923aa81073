//! Kinds of ports as types, for [`OptionsOf`](super::OptionsOf).

use super::Kind;

/// A kind of port as a type.
pub trait AsType {
    /// Which.
    const KIND: Kind;
}

macro_rules! kinds {
    ($( $(#[doc = $doc:literal])+ $kind:ident )+) => {$(
        $(#[doc = $doc])+
        #[derive(Clone, Copy, Debug)]
        pub enum $kind {}

        impl AsType for $kind {
            const KIND: Kind = Kind::$kind;
        }
    )+};
}

kinds! {
    /// Rings that local programs open.
    Local
    /// A TAP device.
    Tap
    /// A vhost-user device.
    Vhost
    /// A virtio-net driver on a socket.
    Virtio
    /// A virtio-net driver on the bus.
    VirtioPci
    /// A ptnet device.
    Ptnet
    /// An Intel 82540EM.
    E1000
    /// A driver of one on the bus.
    E1000Pci
    /// A network interface.
    Netmap
    /// A capture file that is replayed.
    Replay
    /// A capture file that is only written.
    Capture
    /// A VXLAN tunnel.
    Vxlan
    /// A sink, which counts what it is sent.
    Null
    /// What sends every frame back.
    Echo
}
