//! The *origin* of frames: the sending port and its owner. An egress that learns addresses from frames records the
//! frames' origin with the addresses.

/// The sender of a delivery's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Index of the port on its switch.
    pub port: u16,
    /// Owner of the port, for example a user ID.
    pub owner: u32,
}

impl Origin {
    /// Unknown origin, for example of frames that come from a link.
    pub const UNKNOWN: Origin = Origin { port: u16::MAX, owner: u32::MAX };
}

impl Default for Origin {
    fn default() -> Origin {
        Origin::UNKNOWN
    }
}
