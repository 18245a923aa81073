//! The two directions of frames, from the guest's point of view.

/// A direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the guest.
    Receive = 0,
    /// From the guest.
    Transmit = 1,
}
