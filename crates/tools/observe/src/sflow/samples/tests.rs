use super::*;

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks(4).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect()
}

/// Objective: a flow sample follows sFlow version 5 field by field, with the frame's head padded to a multiple of four
/// bytes.
#[test]
fn a_flow_sample_follows_sflow_version_5() {
    let sample = FlowSample {
        sequence: 7,
        port: 0x12345,
        rate: 1000,
        pool: 7000,
        lost: 2,
        output: FrameOutput::Port(3),
        len: 60,
        head: &[1, 2, 3, 4, 5],
    };
    let expected = [
        1,
        64, // flow_sample, and its length
        7,
        0x12345,
        1000,
        7000,
        2,
        0x12345,
        3, // input and output
        1, // records
        1,
        24, // sampled_header, and its length
        1,
        64,
        4, // Ethernet, whose length includes the missing check sequence
        5,
        0x0102_0304,
        0x0500_0000,
    ];
    assert_eq!(words(&sample.encode()), expected);
}

/// Objective: several destinations and drops are each encoded differently from a single port.
#[test]
fn several_destinations_are_encoded_unlike_ports() {
    assert_eq!(FrameOutput::Unknown.to_field(), 0);
    assert_eq!(FrameOutput::Several(5).to_field(), 0x8000_0005);
    assert_eq!(FrameOutput::Discarded(Discard::of("no-room")).to_field(), 0x4000_0000 | 259);
    assert_eq!(Discard::of("spoofed-ip"), Discard::Acl);
    assert_eq!(Discard::of("runt"), Discard::Unknown);
}

/// Objective: a counter sample has `if_counters`, which has 88 bytes, followed by the port's name.
#[test]
fn counters_are_followed_by_the_name_of_the_port() {
    let input = PortTraffic { bytes: 1 << 33, frames: (1 << 32) + 1, drops: 2 };
    let output = PortTraffic { bytes: 60, frames: 1, drops: 0 };
    let words = words(&CounterSample { sequence: 1, port: 9, name: "vale0:a", is_up: true, input, output }.encode());
    let none = NOT_COUNTED;
    let expected = [
        2,
        128,
        1,
        9,
        2, // counters_sample: sequence, port, records
        1,
        88,
        9,
        6,
        0,
        0,
        1,
        3, // if_counters: number, type, speed, duplex, up
        2,
        0,
        1,
        none,
        none,
        2,
        none,
        none, // in
        0,
        60,
        1,
        none,
        none,
        0,
        none,
        0, // out, promiscuous
        1005,
        12,
        7,
        0x7661_6c65,
        0x303a_6100,
    ];
    assert_eq!(words, expected);
}
