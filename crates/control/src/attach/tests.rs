use super::*;
use proptest::prelude::*;

proptest! {
    /// Objective: no bytes make the decoders panic.
    #[test]
    fn no_bytes_make_the_decoders_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let _ = AttachRequest::decode(&bytes);
        let _ = AttachReply::decode(&bytes);
    }

    /// Objective: a message with a valid header and any body decodes to a value within bounds, or to an error.
    #[test]
    fn any_reply_decodes_within_bounds_or_fails(body in proptest::collection::vec(any::<u8>(), REPLY_LEN - 6)) {
        let mut m = AttachReply::default().encode();
        m[6..].copy_from_slice(&body);
        if let Ok(reply) = AttachReply::decode(&m) {
            prop_assert!(reply.tx_rings + reply.rx_rings <= MAX_PORT_RINGS);
            prop_assert!(reply.num_fds() <= MAX_FDS);
        }
    }

    /// Objective: a request is unchanged after encoding and decoding.
    #[test]
    fn a_request_survives_the_wire(
        name in "[a-z0-9:{}]{0,100}",
        n in any::<u32>(),
        hdr in prop::sample::select(vec![0u32, 10, 12]),
    ) {
        let pools = PoolSizes { ifs: (1, 2), rings: (3, n), bufs: (n, 6) };
        let r = AttachRequest {
            name,
            flags: FLAG_LOSSLESS,
            tx_rings: n,
            pools,
            mem_id: n,
            note: [n as u8; NOTE_LEN],
            extra_bufs: !n,
            hdr_len: hdr,
            host_tx_rings: n / 2,
            host_rx_rings: n / 3,
            offsets: (n % 2 == 0).then_some(OffsetsRequest { bits: n % 66, max: n, initial: !n }),
            file: (n % 3 == 0).then_some(FilePlacement { offset: u64::from(n) << 12, len: 1 << 40 }),
            ..Default::default()
        };
        prop_assert_eq!(AttachRequest::decode(&r.encode()), Ok(r));
    }
}

/// Objective: a reply is unchanged after encoding and decoding; a text longer than its field is cut at a character
/// boundary.
#[test]
fn a_reply_survives_the_wire() {
    let r = AttachReply {
        role: Role::Pipe,
        memsize: 1 << 33,
        nifp: 4096,
        tx_rings: 4,
        rx_rings: 2,
        tx_bound: 1..2,
        rx_bound: 0..2,
        host_tx_rings: 2,
        host_rx_rings: 1,
        num_bufs: 77,
        mem_id: 3,
        port_flags: IN_FILE,
        file_offset: 1 << 40,
        ..Default::default()
    };
    assert_eq!(AttachReply::decode(&r.encode()), Ok(r.clone()));
    assert_eq!(r.num_fds(), 8);
    let long = AttachReply::refusal(16, "ü".repeat(200));
    assert_eq!(AttachReply::decode(&long.encode()).unwrap().text, "ü".repeat(127));
}

/// Objective: each fault of a message has its own error.
#[test]
fn refusals_are_named() {
    let mut m = AttachRequest { name: "a".into(), ..Default::default() }.encode();
    assert_eq!(AttachRequest::decode(&m[1..]), Err(BadMessage::Length(REQUEST_LEN - 1)));
    m[4] = 9;
    assert_eq!(AttachRequest::decode(&m), Err(BadMessage::Version(9)));
    m[0] = 0;
    assert_eq!(AttachRequest::decode(&m), Err(BadMessage::Magic));
    let mut m = AttachRequest { hdr_len: 11, ..Default::default() }.encode();
    assert!(matches!(AttachRequest::decode(&m), Err(BadMessage::Field(_))));
    m = AttachRequest::default().encode();
    m[128..256].fill(b'x');
    assert_eq!(AttachRequest::decode(&m), Err(BadMessage::Text));
}
