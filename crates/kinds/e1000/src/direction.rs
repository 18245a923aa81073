//! The two directions of frames, as the card sees them.

/// A direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the guest.
    Receive = 0,
    /// From the guest.
    Transmit = 1,
}
