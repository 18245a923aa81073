//! The *origin* of frames: the port that sends them, and whose it is. For receivers that remember what they were told
//! by whom.

/// Where the frames of a delivery come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Number of the port on its switch.
    pub port: u8,
    /// Whose it is, for example a user's number.
    pub owner: u32,
}

impl Origin {
    /// It is not known: of what comes out of a link, for example.
    pub const UNKNOWN: Origin = Origin { port: u8::MAX, owner: u32::MAX };
}

impl Default for Origin {
    fn default() -> Origin {
        Origin::UNKNOWN
    }
}
