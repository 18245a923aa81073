//! The driver's paths, as DPDK's documentation names them: what chooses them in its driver and in ours.

use netvale_virtio::driver::options::DriverOptions;

use super::*;

/// A driver's way of using a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// Split, a frame may take several buffers.
    Mergeable,
    /// Split, each frame in one buffer.
    NonMergeable,
    /// Split, mergeable, buffers used in order.
    InOrder,
    /// Split, several entries together.
    Vector,
    /// Packed, mergeable.
    Packed,
    /// Packed, several descriptors together.
    PackedVector,
}

impl Path {
    /// The path a case is about: the last word of its variant.
    pub fn of(case: &Case) -> Path {
        match case.variant.rsplit(' ').next() {
            Some("non-mergeable") => Path::NonMergeable,
            Some("in-order") => Path::InOrder,
            Some("vector") => Path::Vector,
            Some("packed") => Path::Packed,
            Some("packed-vector") => Path::PackedVector,
            _ => Path::Mergeable,
        }
    }

    /// The arguments of DPDK's virtio-user device, and of its environment.
    pub fn dpdk(self) -> (&'static str, &'static [&'static str]) {
        const WIDE: &[&str] = &["--force-max-simd-bitwidth=512"];
        match self {
            Path::Mergeable => ("mrg_rxbuf=1,in_order=0", &[]),
            Path::NonMergeable => ("mrg_rxbuf=0,in_order=0", &[]),
            Path::InOrder => ("mrg_rxbuf=1,in_order=1", &[]),
            Path::Vector => ("mrg_rxbuf=0,in_order=1,vectorized=1", WIDE),
            Path::Packed => ("packed_vq=1,mrg_rxbuf=1,in_order=0", &[]),
            Path::PackedVector => ("packed_vq=1,mrg_rxbuf=0,in_order=1,vectorized=1", WIDE),
        }
    }

    /// The options of our driver.
    pub fn driver_options(self) -> DriverOptions {
        let usual = DriverOptions { size: 1024, offloads: false, ..DriverOptions::default() };
        match self {
            Path::Mergeable => usual,
            Path::NonMergeable => DriverOptions { mergeable: false, ..usual },
            Path::InOrder => DriverOptions { in_order: true, ..usual },
            Path::Vector => DriverOptions { mergeable: false, in_order: true, vector: true, ..usual },
            Path::Packed => DriverOptions { packed: true, ..usual },
            Path::PackedVector => {
                DriverOptions { packed: true, mergeable: false, in_order: true, vector: true, ..usual }
            }
        }
    }
}
