//! The two directions of frames, from the guest's point of view.

/// A direction of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CardDirection {
    /// To the guest.
    Receive = 0,
    /// From the guest.
    Transmit = 1,
}
