//! Two booted guests, by message size: round trips, streams, datagrams; and frames of netmap programs.

use super::interface::{PTNET, QEMU_VIRTIO, VHOST};
use super::*;

/// Message sizes of round trips in bytes: from one to the maximum.
const TRIPS: &[u32] = &[1, 64, 1024, 8192, 65_000];
/// Sizes of datagrams in bytes.
const MESSAGES: &[u32] = &[64, 512, 1472, 8192, 24_576, 65_000];

const PAIR: Variant = Variant { unit: Unit::Gbps, ..Variant::TWO_PORTS };
const TRIP: Variant = Variant { unit: Unit::PerSecond, frame_bytes: TRIPS, ..PAIR };

/// The scenario. Sizes in bytes are sizes of messages, not of frames.
pub const SCENARIO: Scenario = Scenario {
    name: "pairs",
    about: "two booted guests (QEMU, emulated), by message size: round trips by TCP and UDP, a TCP stream, datagrams \
        counted by their sender; frames of netmap programs, with and without a virtio-net header; ptnet, virtio-net",
    variants: variants![
        TRIP => "tcp-rr-between", "udp-rr-between";
        PAIR => "tcp-between";
        Variant { frame_bytes: MESSAGES, ..PAIR } => "udp-messages-between";
        Variant::SMALL => "netmap-between", "netmap-header-between"
    ],
    needs: NEEDS,
    start: |case, cores| start(case, cores, PTNET, "netvale"),
};

/// Returns the peers: the same guests with other interfaces, which have no netmap rings in the guest.
pub fn peers() -> Vec<Contender> {
    let fits = |case: &Case| SCENARIO.has(case) && !case.variant.starts_with("netmap");
    [VHOST, QEMU_VIRTIO].map(|interface| peer(interface, fits)).into()
}
