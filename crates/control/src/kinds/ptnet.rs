//! A ptnet device, with the data needed to attach a virtual machine.

use serde::{Deserialize, Serialize};

use crate::mac::Mac;

/// A ptnet device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PtnetInfo {
    /// Path of the device's socket.
    pub path: String,
    /// With vfio-user: path of the memory device's socket; `None` with ivshmem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// Number of doorbells, which equals the number of interrupt vectors.
    pub vectors: u32,
    /// Ethernet address.
    pub mac: Mac,
    /// MTU in bytes.
    pub mtu: u32,
}
