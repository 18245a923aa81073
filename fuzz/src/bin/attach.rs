//! Parses arbitrary bytes as each kind of message of an attach connection.
#![cfg_attr(feature = "libfuzzer", no_main)]

use netvale_control::attach::{AttachReply, AttachRequest, BringRequest, MAX_BROUGHT, MAX_RINGS};
use netvale_control::device::{DeviceRequest, HoldRequest, MessageKind};
use netvale_fuzz::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(request) = AttachRequest::decode(data) {
        assert_eq!(AttachRequest::decode(&request.encode()).as_ref(), Ok(&request));
    }
    if let Ok(reply) = AttachReply::decode(data) {
        assert_eq!(AttachReply::decode(&reply.encode()).as_ref(), Ok(&reply));
        assert!(reply.tx_bound.end <= reply.tx_rings && reply.rx_bound.end <= reply.rx_rings);
        assert!(reply.num_fds() <= 1 + 2 * MAX_RINGS);
    }
    if let Ok(request) = DeviceRequest::decode(data) {
        assert_eq!(MessageKind::of(data), MessageKind::Device);
        assert_eq!(DeviceRequest::decode(&request.encode()).as_ref(), Ok(&request));
    }
    if let Ok(request) = BringRequest::decode(data) {
        assert_eq!(MessageKind::of(data), MessageKind::Bring);
        assert!((1..=MAX_BROUGHT).contains(&usize::from(request.queues)));
        assert!(BringRequest::decode(&request.encode()).is_ok_and(|again| again.queues == request.queues));
    }
    if let Ok(holding) = HoldRequest::decode(data) {
        assert_eq!(MessageKind::of(data), MessageKind::Holding);
        assert_eq!(HoldRequest::decode(&holding.encode()), Ok(holding));
    }
});
