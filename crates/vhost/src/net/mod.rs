//! virtio-net queues as the switch sees them (virtio 1.3 §5.1.6).

pub mod egress;
pub mod features;
pub mod inflight;
pub mod ingress;
pub mod live;
