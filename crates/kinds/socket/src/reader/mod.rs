//! Reads frames from messages or from a stream.

mod messages;
mod stream;

use std::os::fd::OwnedFd;

pub use messages::MessageReader;
pub use stream::{StreamReader, was_in_a_frame};

use crate::news::PeerNews;
use crate::rules::PeerIntake;

/// Maximum number of consecutive reads in one call that yield only dropped frames. The limit lets other ports have
/// their turn.
const ROUNDS: usize = 8;

/// Whether there may be more frames to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadStep {
    /// There may be more frames, which no further event announces: read again immediately.
    Again,
    /// Part of a frame has arrived: read again a little later.
    Later,
    /// There are no more frames; an event of the socket announces the next frame.
    Wait,
}

/// A reader of a peer's frames.
pub enum FrameReader {
    /// Reads messages.
    Messages(MessageReader),
    /// Reads a stream.
    Stream(Box<StreamReader>),
}

impl FrameReader {
    /// Takes as many frames as have arrived and fit into the batch. The frames are in memory of this reader, and stay
    /// there until the next call.
    pub fn take(&mut self, socket: &OwnedFd, intake: &mut PeerIntake<'_>, news: &PeerNews) -> ReadStep {
        for _ in 0..ROUNDS {
            let on = match self {
                FrameReader::Messages(messages) => messages.take(socket, intake, news),
                FrameReader::Stream(stream) => stream.take(socket, intake, news),
            };
            if on != ReadStep::Again || !intake.batch.is_empty() || news.is_over() {
                return on;
            }
        }
        ReadStep::Again
    }
}
