//! The guest kernel's own generator on its interface, by burst: the number of frames that the driver gets before it
//! must notify the device.

use super::interface::{PTNET, QEMU_VIRTIO, VHOST};
use super::*;

/// Burst sizes in frames: from one frame to more frames than any driver benefits from.
const BURSTS: &[u32] = &[1, 2, 4, 8, 16, 32, 50, 64, 128];

/// The scenario. Frames are counted at the host.
pub const SCENARIO: Scenario = Scenario {
    name: "pktgen",
    about: "a booted guest (QEMU, emulated): its kernel's pktgen, by burst; ptnet, virtio-net",
    variants: variants![Variant { batch: BURSTS, ..Variant::SMALL } => "pktgen"],
    needs: NEEDS,
    start: |case, cores| start(case, cores, PTNET, "netvale"),
};

/// Returns the peers: the same guest with other interfaces.
pub fn peers() -> Vec<Contender> {
    [VHOST, QEMU_VIRTIO].map(|interface| peer(interface, |case| SCENARIO.has(case))).into()
}
