//! Any bytes, read as both messages of the attach handshake.
#![no_main]

use libfuzzer_sys::fuzz_target;
use netvale_control::attach::{AttachReply, AttachRequest, MAX_RINGS};

fuzz_target!(|data: &[u8]| {
    if let Ok(request) = AttachRequest::decode(data) {
        assert_eq!(AttachRequest::decode(&request.encode()).as_ref(), Ok(&request));
    }
    if let Ok(reply) = AttachReply::decode(data) {
        assert_eq!(AttachReply::decode(&reply.encode()).as_ref(), Ok(&reply));
        assert!(reply.tx_bound.end <= reply.tx_rings && reply.rx_bound.end <= reply.rx_rings);
        assert!(reply.num_fds() <= 1 + 2 * MAX_RINGS);
    }
});
