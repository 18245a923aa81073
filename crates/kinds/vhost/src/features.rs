//! Feature bits of vhost-user, and the features that netvale's device offers.

use netvale_virtio::features::{
    ANY_LAYOUT, CSUM, EVENT_IDX, GUEST_CSUM, GUEST_ECN, GUEST_TSO4, GUEST_TSO6, GUEST_USO4, GUEST_USO6, HOST_ECN,
    HOST_TSO4, HOST_TSO6, HOST_USO, IN_ORDER, INDIRECT_DESC, MAC, MQ, MRG_RXBUF, MTU, RING_PACKED, STATUS, VERSION_1,
};

/// `VHOST_F_LOG_ALL`: writes to the guest's memory are marked in the log.
pub const LOG_ALL: u64 = 1 << 26;
/// `VHOST_USER_F_PROTOCOL_FEATURES`.
pub const PROTOCOL_FEATURES: u64 = 1 << 30;

/// The features that netvale's device offers. The control queue and its features are not among them: in vhost-user, the
/// front end implements the control queue.
pub const OFFERED: u64 = CSUM
    | GUEST_CSUM
    | MTU
    | MAC
    | GUEST_TSO4
    | GUEST_TSO6
    | GUEST_ECN
    | HOST_TSO4
    | HOST_TSO6
    | HOST_ECN
    | MRG_RXBUF
    | STATUS
    | MQ
    | LOG_ALL
    | ANY_LAYOUT
    | INDIRECT_DESC
    | EVENT_IDX
    | PROTOCOL_FEATURES
    | VERSION_1
    | RING_PACKED
    | IN_ORDER
    | GUEST_USO4
    | GUEST_USO6
    | HOST_USO;
