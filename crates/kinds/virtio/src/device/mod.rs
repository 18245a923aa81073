//! A device's queues as the switch uses them (virtio 1.3 §5.1.6).

mod egress;
pub(crate) mod ingress;
pub mod live;
