//! How frames are read: message by message, or out of a stream.

mod messages;
mod stream;

use std::os::fd::OwnedFd;

pub use messages::MessageReader;
pub use stream::{StreamReader, was_in_a_frame};

use crate::news::PeerNews;
use crate::rules::PeerIntake;

/// Rounds of a call in which all that came is dropped: then others have their turn.
const ROUNDS: usize = 8;

/// Whether there may be more to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadStep {
    /// There may: it has to be looked for, as nobody says so.
    Again,
    /// A part of a frame has come: it has to be looked for once more, a little later.
    Later,
    /// There is nothing; what comes is announced.
    Wait,
}

/// Reads a peer's frames.
pub enum FrameReader {
    /// Of messages.
    Messages(MessageReader),
    /// Of a stream.
    Stream(Box<StreamReader>),
}

impl FrameReader {
    /// Takes frames, as many as there are and have room. They lie in memory of this value, and stay there until the
    /// next call.
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
