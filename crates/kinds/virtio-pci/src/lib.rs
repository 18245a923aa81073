//! virtio on the PCI bus: connects [`netvale_virtio`]'s driver to a device that vfio gives to this process.

mod device;

pub use device::{NoDevice, OnBus};
pub use netvale_pci::IOCTLS;
