//! Reads frames that are messages, many per system call.
#![allow(unsafe_code)]

use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;

use netvale_port::DropReason;
use rustix::io::Errno;

use super::ReadStep;
use crate::news::PeerNews;
use crate::rules::PeerIntake;
use crate::sys::MessageBuffers;

/// Reads a peer's messages into the reader's own buffers.
pub struct MessageReader {
    buffers: MessageBuffers,
    /// Whether an empty message means that the peer has hung up.
    is_connection: bool,
    /// Source address of the frames that this port sends to a multicast group; messages from this address are ignored.
    own: Option<SocketAddrV4>,
    /// Descriptors that came with messages.
    strangers: Vec<OwnedFd>,
}

impl MessageReader {
    /// Creates a reader for messages of at most `longest` bytes.
    pub fn new(longest: usize, is_connection: bool, own: Option<SocketAddrV4>) -> MessageReader {
        MessageReader { buffers: MessageBuffers::new(longest), is_connection, own, strangers: Vec::new() }
    }

    pub(super) fn take(&mut self, socket: &OwnedFd, intake: &mut PeerIntake<'_>, news: &PeerNews) -> ReadStep {
        let got = match self.buffers.receive(socket, &mut self.strangers) {
            Ok(got) => got,
            Err(Errno::AGAIN) => {
                news.found_nothing();
                return ReadStep::Wait;
            }
            Err(_) if self.is_connection => {
                news.gone();
                return ReadStep::Wait;
            }
            // The kernel reports here that an earlier datagram did not arrive; the next call reads on.
            Err(_) => return ReadStep::Again,
        };
        if !self.strangers.is_empty() {
            news.passed(std::mem::take(&mut self.strangers));
            return ReadStep::Wait;
        }
        (0..got).for_each(|i| self.add(i, intake, news));
        ReadStep::Again
    }

    fn add(&self, i: usize, intake: &mut PeerIntake<'_>, news: &PeerNews) {
        let Some(message) = self.buffers.message(i) else { return };
        match message.bytes.len() {
            0 if self.is_connection => news.gone(),
            _ if self.own.is_some() && message.from == self.own => {}
            _ if message.is_cut => intake.counters.dropped(DropReason::TooLong, 1),
            // SAFETY: the buffer is not written before the next call, and the frames are released before that call.
            _ => unsafe { intake.add(message.bytes) },
        }
    }
}
