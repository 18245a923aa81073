//! virtio on the PCI bus: how [`netvale_virtio`]'s driver reaches a device that vfio gives to this process.

mod device;

pub use device::{NoDevice, OnBus};
pub use netvale_pci::IOCTLS;
