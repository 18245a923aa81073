//! Ethernet, virtio-net header, checksum and segmentation.
