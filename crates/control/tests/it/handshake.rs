//! Compares the bytes of the attach handshake with recorded messages: clients and daemons of different builds exchange
//! them.

use netvale_control::attach::{
    AttachReply, AttachRequest, FLAG_LOSSLESS, FLAG_SHARED, FilePlacement, IN_FILE, NOTE_LEN, OffsetsRequest,
    PoolSizes, Role,
};
use netvale_control::device::{BODY_LEN, DeviceRequest, HoldRequest};

/// The recorded messages, one per line: name, and bytes in hexadecimal.
const GOLDEN: &str = include_str!("../golden/handshake.txt");

fn golden(name: &str) -> Vec<u8> {
    let line = GOLDEN.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).expect("a message");
    let digits = line.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).expect("digits"));
    digits.map(|pair| u8::from_str_radix(pair, 16).expect("hexadecimal")).collect()
}

/// Returns a request in which every field has a distinct value, so that swapped fields are detected.
fn request() -> AttachRequest {
    AttachRequest {
        name: "vale0:port{1".into(),
        flags: FLAG_LOSSLESS | FLAG_SHARED,
        tx_rings: 0x0101,
        rx_rings: 0x0202,
        tx_slots: 0x0303,
        rx_slots: 0x0404,
        buf_size: 0x0505,
        extra_bufs: 0x0606,
        hdr_len: 12,
        pipes: 0x0707,
        host_tx_rings: 0x0808,
        host_rx_rings: 0x0909,
        mem_id: 0x0a0a,
        pools: PoolSizes { ifs: (0x0b0b, 0x0c0c), rings: (0x0d0d, 0x0e0e), bufs: (0x0f0f, 0x1010) },
        note: std::array::from_fn(|i| 0x40 + i as u8),
        offsets: Some(OffsetsRequest { bits: 16, max: 0x1111, initial: 0x1212 }),
        file: Some(FilePlacement { offset: 0x1313_1414_0000, len: 0x1515_1616_0000 }),
    }
}

fn reply() -> AttachReply {
    AttachReply {
        status: -0x0102_0304,
        text: "why not: ü".into(),
        role: Role::Monitor,
        memsize: 0x2101,
        nifp: 0x2202,
        csb_atok: 0x2303,
        csb_ktoa: 0x2404,
        csb_first: 0x2505,
        peer_csb_first: 0x2606,
        ring_pool: 0x2707,
        ring_size: 0x2808,
        buf_pool: 0x2909,
        num_bufs: 0x2a0a,
        buf_size: 0x2b0b,
        tx_rings: 0x51,
        rx_rings: 0x52,
        host_tx_rings: 0x2c,
        host_rx_rings: 0x2d,
        nic_entries: 0x2e0e,
        nic_flags: 0x2f0f,
        nic_ifindex: 0x3101,
        nic_mtu: 0x3202,
        tx_slots: 0x3303,
        rx_slots: 0x3404,
        extra_bufs: 0x3505,
        hdr_len: 10,
        mem_id: 0x3606,
        tx_bound: 3..7,
        rx_bound: 5..0x11,
        note: std::array::from_fn(|i| 0x60 + i as u8),
        if_pool: 0x3707_0000_0001,
        if_size: 0x3808,
        num_ifs: 0x3909,
        num_rings: 0x3a0a,
        max_offset: 0x3b0b,
        port_flags: IN_FILE,
        file_offset: 0x3c0c_0000_0002,
        alone: true,
    }
}

fn device() -> DeviceRequest {
    let body = std::array::from_fn::<u8, BODY_LEN, _>(|i| 0x80 + i as u8);
    DeviceRequest { reqtype: 0x4101, status: -22, name: "vale0:nic".into(), body }
}

/// Objective: each message still has its recorded bytes, which read back as the same message.
#[test]
fn each_message_keeps_its_recorded_bytes() {
    let bare = AttachRequest { name: "netmap:eth0".into(), note: [0; NOTE_LEN], ..AttachRequest::default() };
    for (name, message) in [("request", request()), ("bare-request", bare)] {
        assert_eq!(message.encode().to_vec(), golden(name), "{name}");
        assert_eq!(AttachRequest::decode(&golden(name)), Ok(message));
    }
    for (name, message) in [("reply", reply()), ("bare-reply", AttachReply::default())] {
        assert_eq!(message.encode().to_vec(), golden(name), "{name}");
        assert_eq!(AttachReply::decode(&golden(name)), Ok(message));
    }
    assert_eq!(device().encode().to_vec(), golden("device"));
    assert_eq!(DeviceRequest::decode(&golden("device")), Ok(device()));
    for (name, which) in [("resume", HoldRequest::Resume), ("release", HoldRequest::Release)] {
        assert_eq!((which.encode().to_vec(), HoldRequest::decode(&golden(name))), (golden(name), Ok(which)));
    }
}
