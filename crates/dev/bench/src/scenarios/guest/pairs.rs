//! Two booted guests, by the size of their messages: round trips, streams, datagrams.

use super::interface::{PTNET, QEMU_VIRTIO, VHOST};
use super::*;

/// Bytes of a message that goes there and back: from one to the longest.
const TRIPS: &[u32] = &[1, 64, 1024, 8192, 65_000];
/// Bytes of a datagram.
const MESSAGES: &[u32] = &[64, 512, 1472, 8192, 24_576, 65_000];

const PAIR: Variant = Variant { unit: Unit::Gbps, ..Variant::TWO_PORTS };
const TRIP: Variant = Variant { unit: Unit::PerSecond, frame_bytes: TRIPS, ..PAIR };

/// The scenario: bytes are those of messages, not of frames.
pub const SCENARIO: Scenario = Scenario {
    name: "pairs",
    about: "two guests that are really booted (QEMU, emulated), by size of message: round trips by TCP and UDP, a TCP \
        stream, datagrams as their sender counts them; ptnet, virtio-net",
    variants: variants![
        TRIP => "tcp-rr-between", "udp-rr-between";
        PAIR => "tcp-between";
        Variant { frame_bytes: MESSAGES, ..PAIR } => "udp-messages-between"
    ],
    needs: NEEDS,
    start: |case, cores| start(case, cores, PTNET, "netvale"),
};

/// The same with other interfaces.
pub fn peers() -> Vec<Contender> {
    [VHOST, QEMU_VIRTIO].map(|interface| peer(interface, |case| SCENARIO.has(case))).into()
}
