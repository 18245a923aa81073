//! Two booted guests, by message size: round trips, streams, datagrams; and frames of netmap programs.

use super::interface::{PTNET, QEMU_VIRTIO, VHOST};
use super::*;

/// Message sizes of round trips in bytes: from one to the maximum.
const TRIPS: &[u32] = &[1, 64, 1024, 8192, 65_000];
/// Sizes of datagrams in bytes.
const MESSAGES: &[u32] = &[64, 512, 1472, 8192, 24_576, 65_000];

const PAIR: Variant = Variant { unit: Unit::Gbps, ..Variant::TWO_PORTS };
const TRIP: Variant = Variant { unit: Unit::PerSecond, frame_bytes: TRIPS, ..PAIR };

/// The scenario. Bytes are those of messages, not of frames.
pub const SCENARIO: Scenario = Scenario {
    name: "pairs",
    about: "two guests that are really booted (QEMU, emulated), by size of message: round trips by TCP and UDP, a TCP \
        stream, datagrams as their sender counts them; frames of netmap programs, with a virtio-net header and \
        without; ptnet, virtio-net",
    variants: variants![
        TRIP => "tcp-rr-between", "udp-rr-between";
        PAIR => "tcp-between";
        Variant { frame_bytes: MESSAGES, ..PAIR } => "udp-messages-between";
        Variant::SMALL => "netmap-between", "netmap-header-between"
    ],
    needs: NEEDS,
    start: |case, cores| start(case, cores, PTNET, "netvale"),
};

/// Returns the peers: the same with other interfaces; they have no netmap rings in the guest.
pub fn peers() -> Vec<Contender> {
    let fits = |case: &Case| SCENARIO.has(case) && !case.variant.starts_with("netmap");
    [VHOST, QEMU_VIRTIO].map(|interface| peer(interface, fits)).into()
}
