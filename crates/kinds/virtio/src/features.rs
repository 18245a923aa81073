//! Feature bits of virtio and virtio-net, and their effect on frames (virtio 1.3 §5.1.3, §6).

use netvale_port::FrameRef;
use netvale_port::soft::FrameForm;
use netvale_wire::offload::{GsoKind, Offload};

/// `VIRTIO_NET_F_CSUM`: the driver may leave checksums to the device.
pub const CSUM: u64 = 1 << 0;
/// `VIRTIO_NET_F_GUEST_CSUM`: the device may leave checksums to the driver.
pub const GUEST_CSUM: u64 = 1 << 1;
/// `VIRTIO_NET_F_MTU`.
pub const MTU: u64 = 1 << 3;
/// `VIRTIO_NET_F_MAC`.
pub const MAC: u64 = 1 << 5;
/// `VIRTIO_NET_F_GUEST_TSO4`.
pub const GUEST_TSO4: u64 = 1 << 7;
/// `VIRTIO_NET_F_GUEST_TSO6`.
pub const GUEST_TSO6: u64 = 1 << 8;
/// `VIRTIO_NET_F_GUEST_ECN`.
pub const GUEST_ECN: u64 = 1 << 9;
/// `VIRTIO_NET_F_HOST_TSO4`.
pub const HOST_TSO4: u64 = 1 << 11;
/// `VIRTIO_NET_F_HOST_TSO6`.
pub const HOST_TSO6: u64 = 1 << 12;
/// `VIRTIO_NET_F_HOST_ECN`.
pub const HOST_ECN: u64 = 1 << 13;
/// `VIRTIO_NET_F_MRG_RXBUF`.
pub const MRG_RXBUF: u64 = 1 << 15;
/// `VIRTIO_NET_F_STATUS`.
pub const STATUS: u64 = 1 << 16;
/// `VIRTIO_NET_F_CTRL_VQ`.
pub const CTRL_VQ: u64 = 1 << 17;
/// `VIRTIO_NET_F_MQ`.
pub const MQ: u64 = 1 << 22;
/// `VIRTIO_F_ANY_LAYOUT`, of drivers before virtio 1.0.
pub const ANY_LAYOUT: u64 = 1 << 27;
/// `VIRTIO_F_INDIRECT_DESC`.
pub const INDIRECT_DESC: u64 = 1 << 28;
/// `VIRTIO_F_EVENT_IDX`.
pub const EVENT_IDX: u64 = 1 << 29;
/// `VIRTIO_F_VERSION_1`.
pub const VERSION_1: u64 = 1 << 32;
/// `VIRTIO_F_ACCESS_PLATFORM`: the device accesses memory through the platform's IOMMU, if there is one.
pub const ACCESS_PLATFORM: u64 = 1 << 33;
/// `VIRTIO_F_RING_PACKED`.
pub const RING_PACKED: u64 = 1 << 34;
/// `VIRTIO_F_IN_ORDER`.
pub const IN_ORDER: u64 = 1 << 35;
/// `VIRTIO_F_ORDER_PLATFORM`: the device orders its accesses as the platform's devices do.
pub const ORDER_PLATFORM: u64 = 1 << 36;
/// `VIRTIO_NET_F_GUEST_USO4`.
pub const GUEST_USO4: u64 = 1 << 54;
/// `VIRTIO_NET_F_GUEST_USO6`.
pub const GUEST_USO6: u64 = 1 << 55;
/// `VIRTIO_NET_F_HOST_USO`.
pub const HOST_USO: u64 = 1 << 56;

/// The feature bits that permit offloads in one direction.
struct OffloadFeatures {
    csum: u64,
    tso4: u64,
    tso6: u64,
    ecn: u64,
    uso4: u64,
    uso6: u64,
}

/// Features that permit offloads in frames from the device to the driver.
const TO_DRIVER: OffloadFeatures = OffloadFeatures {
    csum: GUEST_CSUM,
    tso4: GUEST_TSO4,
    tso6: GUEST_TSO6,
    ecn: GUEST_ECN,
    uso4: GUEST_USO4,
    uso6: GUEST_USO6,
};

/// Features that permit offloads in frames from the driver to the device.
const TO_DEVICE: OffloadFeatures =
    OffloadFeatures { csum: CSUM, tso4: HOST_TSO4, tso6: HOST_TSO6, ecn: HOST_ECN, uso4: HOST_USO, uso6: HOST_USO };

impl OffloadFeatures {
    /// Returns the features that a frame with this offload needs.
    #[inline]
    fn needed(&self, offload: &Offload) -> u64 {
        match offload {
            Offload::None => 0,
            Offload::CsumPartial { .. } => self.csum,
            Offload::Gso(gso) => {
                let ecn = if gso.ecn { self.ecn } else { 0 };
                match gso.kind {
                    GsoKind::Tcp4 => self.tso4 | ecn,
                    GsoKind::Tcp6 => self.tso6 | ecn,
                    GsoKind::Udp4 => self.uso4,
                    GsoKind::Udp6 => self.uso6,
                }
            }
        }
    }
}

/// The effect of negotiated features on frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Framing {
    /// Size of the virtio-net header in bytes: 10 for drivers before virtio 1.0 without mergeable buffers, otherwise
    /// 12.
    pub hdr_len: usize,
    /// Whether a frame may span several receive buffers.
    pub mergeable: bool,
    /// Whether the sender of frames may use offloads, so that the headers of its frames must be read.
    pub sender_offloads: bool,
    /// Whether headers towards the driver are empty: each frame has one buffer and no offload.
    pub bare: bool,
    features: u64,
}

impl Framing {
    /// Derives the effect from the features that a driver acknowledged.
    pub fn of(features: u64) -> Framing {
        let mergeable = features & MRG_RXBUF != 0;
        let long = mergeable || features & VERSION_1 != 0;
        Framing {
            hdr_len: if long { 12 } else { 10 },
            mergeable,
            bare: !mergeable && features & (GUEST_CSUM | GUEST_TSO4 | GUEST_TSO6 | GUEST_USO4 | GUEST_USO6) == 0,
            sender_offloads: features & (CSUM | HOST_TSO4 | HOST_TSO6 | HOST_USO) != 0,
            features,
        }
    }

    /// Returns the form in which the driver accepts a frame.
    #[inline]
    pub fn to_driver(&self, frame: &FrameRef<'_>) -> FrameForm {
        self.form(frame, &TO_DRIVER)
    }

    /// Returns the form in which the device accepts a frame from the driver.
    #[inline]
    pub fn to_device(&self, frame: &FrameRef<'_>) -> FrameForm {
        self.form(frame, &TO_DEVICE)
    }

    /// Whether the driver accepts UDP datagrams that are to be cut into segments (USO).
    pub fn is_uso_to_driver(&self) -> bool {
        self.features & (GUEST_USO4 | GUEST_USO6) == GUEST_USO4 | GUEST_USO6
    }

    /// Whether the device accepts UDP datagrams that are to be cut into segments (USO).
    pub fn is_uso_to_device(&self) -> bool {
        self.features & HOST_USO != 0
    }

    #[inline]
    fn form(&self, frame: &FrameRef<'_>, leave: &OffloadFeatures) -> FrameForm {
        let needed = leave.needed(&frame.offload());
        FrameForm::of(frame, self.features & needed == needed)
    }
}
