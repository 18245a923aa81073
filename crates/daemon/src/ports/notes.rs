//! Notes for `netvale show` that several kinds of ports share.

use netvale_virtio::features as bits;

/// Returns the status of a port that serves virtual machines: the connected peer, if any (`now`), the number of
/// connections so far, and the reason why the last peer was disconnected.
pub(crate) fn machine_notes(now: Option<String>, connections: u64, last_error: Option<String>) -> Vec<String> {
    let first = match now {
        Some(now) => format!("virtual machine connected, {now}"),
        None => format!("waits for a virtual machine; connections: {connections}"),
    };
    let last = last_error.map(|why| format!("the last virtual machine was disconnected: {why}"));
    std::iter::once(first).chain(last).collect()
}

/// Returns a text with the features that a virtio device and its driver have negotiated.
pub(crate) fn negotiated(features: u64) -> String {
    let has = |bit: u64| features & bit != 0;
    let layout = if has(bits::RING_PACKED) { "packed ring" } else { "split ring" };
    let words = [
        (true, layout),
        (has(bits::MRG_RXBUF), "mergeable buffers"),
        (has(bits::IN_ORDER), "in order"),
        (has(bits::EVENT_IDX), "event index"),
        (has(bits::INDIRECT_DESC), "indirect descriptors"),
        (has(bits::CSUM), "sends without checksums"),
        (has(bits::HOST_TSO4), "sends TCP segments whole"),
        (has(bits::GUEST_CSUM), "takes frames without checksums"),
        (has(bits::GUEST_TSO4), "takes TCP segments whole"),
        (has(bits::MQ), "several queues"),
    ];
    words.iter().filter(|(on, _)| *on).map(|(_, word)| *word).collect::<Vec<_>>().join(", ")
}
