//! The state of a line for a successor: at any time ([`SocketLine::save`]), or exact, while the workers are parked
//! ([`SocketLine::save_parked`]).

use std::os::fd::OwnedFd;
use std::sync::Arc;

use netvale_fdio::state::{BadState, Fd};
use netvale_mem::noted::NotedCounts;
use serde::{Deserialize, Serialize};

use crate::line::{LineStory, SocketLine, SocketPeer, Undelivered};
use crate::reader::was_in_a_frame;
use crate::rules::FrameFormat;

/// The reason for disconnecting a peer whose stream lost a part.
const IN_A_FRAME: &str = "the daemon was killed in the middle of a frame: connect again";

/// State of a line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LineState {
    /// Number of peers so far.
    pub connections: u64,
    /// The reason why the last peer was disconnected; `None` if it disconnected by itself.
    pub last_error: Option<String>,
    /// Identity of the last peer.
    pub who: Option<String>,
    /// The last peer's description of itself.
    pub about: Option<String>,
    /// The connected peer; `None` if no peer is connected.
    pub peer: Option<SocketPeerState>,
    /// Whether only peers that request the line's number get the line.
    #[serde(default)]
    pub reserved: bool,
}

/// State of a connected peer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SocketPeerState {
    /// The peer's socket; `None` if the peer uses the port's own socket.
    pub socket: Option<Fd>,
    /// A control connection without frames, which is open as long as the peer exists; `None` if the peer has no such
    /// connection.
    pub control: Option<Fd>,
    /// For a stream, a record in shared memory per direction, which says whether part of a frame is missing.
    pub noted: Vec<Fd>,
    /// Start of a frame that was taken from the socket before the frame was complete.
    pub begun: Vec<u8>,
    /// Data accepted for the peer and not sent yet, one item per message.
    pub backlog: Vec<Vec<u8>>,
}

impl SocketLine {
    /// Returns the state from which a successor continues if this process is killed. The state changes whenever a
    /// peer connects or leaves.
    pub fn save(&self) -> LineState {
        let LineStory { connections, last_error, who, about } = self.story();
        let peer = self.peer().as_ref().map(|one| SocketPeerState {
            socket: (!one.peer.is_ports).then(|| Fd::shared(&one.peer.sockets[0])),
            control: one.peer.control.as_ref().map(Fd::shared),
            noted: one.noted.iter().map(Fd::shared).collect(),
            begun: Vec::new(),
            backlog: Vec::new(),
        });
        LineState { connections, last_error, who, about, peer, reserved: self.is_reserved() }
    }

    /// Returns the exact state for a successor. The workers must be parked. Returns `None` if a worker has not returned
    /// a queue.
    pub fn save_parked(&self) -> Option<LineState> {
        let mut state = self.save();
        if let Some(peer) = &mut state.peer {
            peer.begun = self.input.queue.control().ok()?.as_ref().map(|queue| queue.begun().to_vec())?;
            peer.backlog = self.output.queue.control().ok()?.as_ref().map(|queue| queue.backlog())?;
        }
        Some(state)
    }

    /// Restores a predecessor's line. `own` is the line's peer if that peer uses the port's own socket; otherwise, the
    /// peer's frames have the format `format`. A peer whose stream has lost data is not connected.
    ///
    /// # Errors
    /// [`BadState`] if the state contradicts itself.
    pub fn restore(&self, state: LineState, format: FrameFormat, own: Option<SocketPeer>) -> Result<(), BadState> {
        let LineState { connections, last_error, who, about, peer, reserved } = state;
        self.reserve(reserved);
        let story = LineStory { connections, last_error, who, about };
        self.continue_story(story.clone());
        let Some(SocketPeerState { socket, control, noted, begun, backlog }) = peer else { return Ok(()) };
        let noted = notes(Fd::take_all(noted)?, format)?;
        let peer = match (socket, control, own) {
            (Some(socket), None, None) => SocketPeer::connected(socket.take()?, format),
            (Some(socket), Some(control), None) => SocketPeer::plugged(socket.take()?, Arc::new(control.take()?)),
            (None, None, Some(own)) => own,
            _ => return Err(BadState::new("the peer has a socket of another kind")),
        };
        if noted.as_ref().is_some_and(|noted| is_lost(noted, &begun, &backlog)) {
            self.continue_story(LineStory { last_error: Some(IN_A_FRAME.to_owned()), ..story });
            return Ok(());
        }
        self.go_on(peer, Undelivered { begun, backlog, noted }).map_err(BadState::new)
    }
}

/// Returns whether the predecessor was killed while it held the only copy of a part of a frame.
fn is_lost(noted: &[NotedCounts; 2], begun: &[u8], backlog: &[Vec<u8>]) -> bool {
    let [reader, writer] = noted;
    was_in_a_frame(reader) && begun.is_empty() || was_in_a_frame(writer) && backlog.is_empty()
}

fn notes(files: Vec<OwnedFd>, format: FrameFormat) -> Result<Option<[NotedCounts; 2]>, BadState> {
    let notes = files.into_iter().map(NotedCounts::continued).collect::<Result<Vec<_>, _>>()?;
    match (<[NotedCounts; 2]>::try_from(notes), format) {
        (Ok(notes), FrameFormat::Stream) => Ok(Some(notes)),
        (Err(none), FrameFormat::Messages) if none.is_empty() => Ok(None),
        _ => Err(BadState::new("expected a record for each direction of a stream, and none for messages")),
    }
}
