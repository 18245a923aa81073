//! The guest kernel's own generator on its interface, by burst: how many frames its driver gets before the last one.

use super::interface::{PTNET, QEMU_VIRTIO, VHOST};
use super::*;

/// From one frame to more than a driver gains by.
const BURSTS: &[u32] = &[1, 2, 4, 8, 16, 32, 50, 64, 128];

/// The scenario: frames are counted at the host.
pub const SCENARIO: Scenario = Scenario {
    name: "pktgen",
    about: "a guest that is really booted (QEMU, emulated): its kernel's own generator, by burst; ptnet, virtio-net",
    variants: variants![Variant { batch: BURSTS, ..Variant::SMALL } => "pktgen"],
    needs: NEEDS,
    start: |case, cores| start(case, cores, PTNET, "netvale"),
};

/// The same with other interfaces.
pub fn peers() -> Vec<Contender> {
    [VHOST, QEMU_VIRTIO].map(|interface| peer(interface, |case| SCENARIO.has(case))).into()
}
