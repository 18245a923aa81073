//! VDE switches: the ports of their plugs (VDE's clients), and a request that creates ports before plugs connect to
//! them.

use serde::{Deserialize, Serialize};

/// A port on a VDE switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VdeInfo {
    /// Number of the port.
    pub number: u16,
    /// Whether only plugs that request this number get the port.
    pub reserved: bool,
    /// The connected plug; `None` while no plug is connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plug: Option<VdePlug>,
}

/// A connected plug.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VdePlug {
    /// Number of plugs that the port has had, including this plug.
    pub count: u64,
    /// The plug's process and user, as the kernel reports them.
    pub who: String,
    /// The user's ID; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<u32>,
    /// The text with which the plug describes itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
}

/// Parameters of `vde.set`. If one of the changes is impossible, none is made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VdeSetParams {
    /// Full name of the netvale port that acts as the VDE switch, e.g. `vale0:lab`.
    pub port: String,
    /// New maximum number of ports for plugs; `None` leaves it unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peers: Option<u32>,
    /// Numbers of ports to reserve for plugs that request them by number. Missing ports are created.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reserve: Vec<u16>,
    /// Numbers of ports to make available to any plug. Missing ports are created.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub release: Vec<u16>,
}
