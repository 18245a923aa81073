//! A vhost-user device, with the data needed to attach a virtual machine.

use serde::{Deserialize, Serialize};

use crate::mac::Mac;

/// A vhost-user device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VhostInfo {
    /// Path of the device's socket.
    pub path: String,
    /// Whether the device connects to the socket instead of listening on it.
    pub client: bool,
    /// Number of queue pairs.
    pub pairs: u32,
    /// Ethernet address offered to the driver.
    pub mac: Mac,
    /// MTU offered to the driver in bytes.
    pub mtu: u32,
}
