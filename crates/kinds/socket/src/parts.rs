//! The parts that both queues of a peer share.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::news::PeerNews;
use crate::room::AwaitedRoom;
use crate::rules::FrameRules;

pub(crate) struct PeerParts {
    pub socket: Arc<OwnedFd>,
    pub rules: Arc<FrameRules>,
    pub news: PeerNews,
    pub room: AwaitedRoom,
}
