//! The *origin* of frames: the sending port and its owner, for receivers that record the source of what they learn.

/// The sender of a delivery's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Number of the port on its switch.
    pub port: u8,
    /// Owner of the port, for example a user's number.
    pub owner: u32,
}

impl Origin {
    /// Unknown origin, for example of frames that come out of a link.
    pub const UNKNOWN: Origin = Origin { port: u8::MAX, owner: u32::MAX };
}

impl Default for Origin {
    fn default() -> Origin {
        Origin::UNKNOWN
    }
}
