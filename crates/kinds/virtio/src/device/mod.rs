//! The queues of a device, as ingress and egress of the switch (virtio 1.3 §5.1.6).

mod egress;
pub(crate) mod ingress;
pub mod live;
