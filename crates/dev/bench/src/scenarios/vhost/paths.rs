//! The driver's paths, named as in DPDK's documentation, with the options that select them in DPDK's driver and in
//! netvale's driver.

use netvale_virtio::driver::options::DriverOptions;

use super::*;

/// How a driver uses a queue.
#[derive(Clone, Copy, Debug)]
pub struct DriverPath {
    /// Whether queues are packed instead of split.
    packed: bool,
    /// Whether a frame may take several buffers.
    mergeable: bool,
    /// Whether buffers are used in order.
    in_order: bool,
    /// Whether several entries are processed together.
    vector: bool,
}

impl DriverPath {
    /// Returns the path of a case: the last word of its variant.
    pub fn of(case: &Case) -> DriverPath {
        let name = case.variant.rsplit(' ').next().unwrap_or_default();
        let vector = name.ends_with("vector");
        DriverPath {
            packed: name.starts_with("packed"),
            mergeable: !vector && name != "non-mergeable",
            in_order: vector || name == "in-order",
            vector,
        }
    }

    /// Returns the arguments of DPDK's virtio-user device, and of its environment.
    pub fn dpdk(self) -> (String, &'static [&'static str]) {
        let packed = if self.packed { "packed_vq=1," } else { "" };
        let (vectorized, wide): (_, &[_]) =
            if self.vector { (",vectorized=1", &["--force-max-simd-bitwidth=512"]) } else { ("", &[]) };
        let [mergeable, in_order] = [self.mergeable, self.in_order].map(u8::from);
        (format!("{packed}mrg_rxbuf={mergeable},in_order={in_order}{vectorized}"), wide)
    }

    /// Returns the options of netvale's driver.
    pub fn driver_options(self) -> DriverOptions {
        let DriverPath { packed, mergeable, in_order, vector } = self;
        DriverOptions { size: 1024, offloads: false, packed, mergeable, in_order, vector, ..DriverOptions::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: each path's name selects it in DPDK's driver, as DPDK's documentation states, and in netvale's
    /// driver.
    #[test]
    fn the_name_of_each_path_chooses_it() {
        let paths = [
            ("to-host mergeable", "mrg_rxbuf=1,in_order=0"),
            ("non-mergeable", "mrg_rxbuf=0,in_order=0"),
            ("io in-order", "mrg_rxbuf=1,in_order=1"),
            ("vector", "mrg_rxbuf=0,in_order=1,vectorized=1"),
            ("packed", "packed_vq=1,mrg_rxbuf=1,in_order=0"),
            ("packed-vector", "packed_vq=1,mrg_rxbuf=0,in_order=1,vectorized=1"),
        ];
        for (variant, flags) in paths {
            let path = DriverPath::of(&Case::new("vhost", variant, Unit::Mpps));
            assert_eq!((path.dpdk().0.as_str(), path.dpdk().1.len()), (flags, usize::from(path.vector)));
            assert_eq!(path.driver_options().packed, flags.starts_with("packed"));
        }
    }
}
