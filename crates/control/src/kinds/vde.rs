//! VDE switches: their plugs' ports, and a request that makes such ports before their plugs come.

use serde::{Deserialize, Serialize};

/// A port of a VDE switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VdeInfo {
    /// Number of the port.
    pub number: u16,
    /// Whether only plugs that ask for the number get the port.
    pub reserved: bool,
    /// The plug; `None` while there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plug: Option<VdePlug>,
}

/// A connected plug.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VdePlug {
    /// How many plugs the port has had, with this one.
    pub count: u64,
    /// Process and user, as the kernel attests them.
    pub who: String,
    /// The user's number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<u32>,
    /// What it says of itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
}

/// Parameters of `vde.set`. Nothing changes where something of it cannot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VdeSetParams {
    /// Full name of the port that was attached, e.g. `vale0:lab`.
    pub port: String,
    /// Most ports of plugs from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peers: Option<u32>,
    /// Numbers of ports that only plugs get that ask for them. Those that do not exist are made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reserve: Vec<u16>,
    /// Numbers of ports that any plug gets. Those that do not exist are made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub release: Vec<u16>,
}
