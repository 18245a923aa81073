//! Messages over a socket.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use thiserror::Error;

use crate::Device;
use crate::session::{Answer, Refused, Session};
use crate::wire::{HEADER, Header, MAX_FDS, MAX_MESSAGE, Message};

/// How long the rest of a message, or room for an answer, may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why a connection ended.
#[derive(Debug, Error)]
pub enum Ended {
    /// The client hung up.
    #[error("the client hung up")]
    Closed,
    /// `stop` became readable.
    #[error("we stopped")]
    Stopped,
    /// The client broke the protocol.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// A length that cannot be.
    #[error("a message of {0} bytes: from {HEADER} to {MAX_MESSAGE} are possible")]
    Length(u32),
    /// Too many descriptors came.
    #[error("a message with more than {MAX_FDS} descriptors")]
    Descriptors,
    /// A message was begun and not finished, or an answer was not taken.
    #[error("the client does not go on: {0} s passed", PATIENCE.as_secs())]
    Stalled,
    /// A system call failed.
    #[error("the connection: {0}")]
    System(#[from] Errno),
}

impl Ended {
    /// Why, unless the client hung up or we stopped.
    pub fn reason(&self) -> Option<String> {
        (!matches!(self, Ended::Closed | Ended::Stopped)).then(|| self.to_string())
    }
}

/// Serves a connection (a non-blocking stream socket) to its end.
pub fn serve<D: Device>(socket: BorrowedFd<'_>, stop: BorrowedFd<'_>, session: &mut Session<D>) -> Ended {
    let line = Line { socket, stop };
    loop {
        let step = line
            .next(session)
            .and_then(|()| line.receive())
            .and_then(|message| Ok(session.handle(message)?))
            .and_then(|answer| answer.map_or(Ok(()), |answer| line.send(&answer)));
        if let Err(ended) = step {
            return ended;
        }
    }
}

/// A connection, and what ends all waiting on it.
struct Line<'a> {
    socket: BorrowedFd<'a>,
    stop: BorrowedFd<'a>,
}

impl Line<'_> {
    /// Waits for the next message, and sees to the device's timers meanwhile.
    fn next<D: Device>(&self, session: &mut Session<D>) -> Result<(), Ended> {
        loop {
            let (device, _) = session.device();
            let timer = device.timer();
            let count = if timer.is_some() { 3 } else { 2 };
            let on = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
            let mut all = [on(self.socket), on(self.stop), on(timer.unwrap_or(self.stop))];
            match poll(all.get_mut(..count).unwrap_or_default(), None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
            let [socket, stop, timer] = all.map(|fd| !fd.revents().is_empty());
            if stop {
                return Err(Ended::Stopped);
            }
            if timer {
                device.tick();
            }
            if socket {
                return Ok(());
            }
        }
    }

    /// Waits until the socket is ready, for so long at most.
    fn wait(&self, what: PollFlags, limit: Option<&Timespec>) -> Result<(), Ended> {
        let mut both =
            [PollFd::from_borrowed_fd(self.socket, what), PollFd::from_borrowed_fd(self.stop, PollFlags::IN)];
        match poll(&mut both, limit) {
            Ok(0) => return Err(Ended::Stalled),
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        if both[1].revents().is_empty() { Ok(()) } else { Err(Ended::Stopped) }
    }

    /// The same in the middle of a message.
    fn go_on(&self, what: PollFlags) -> Result<(), Ended> {
        self.wait(what, Some(&Timespec { tv_sec: PATIENCE.as_secs().cast_signed(), tv_nsec: 0 }))
    }

    fn receive(&self) -> Result<Message, Ended> {
        let (mut head, mut fds) = ([0u8; HEADER], Vec::new());
        self.fill(&mut head, &mut fds)?;
        let header = Header::parse(&head);
        let size = usize::try_from(header.size).unwrap_or(usize::MAX);
        if !(HEADER..=MAX_MESSAGE).contains(&size) {
            return Err(Ended::Length(header.size));
        }
        let mut payload = vec![0; size - HEADER];
        self.fill(&mut payload, &mut fds)?;
        Ok(Message { header, payload, fds })
    }

    /// Receives exactly as many bytes as there are places.
    fn fill(&self, bytes: &mut [u8], fds: &mut Vec<OwnedFd>) -> Result<(), Ended> {
        let mut got = 0;
        while got < bytes.len() {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let rest = bytes.get_mut(got..).unwrap_or_default();
            let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
            match rustix::net::recvmsg(self.socket, &mut [IoSliceMut::new(rest)], &mut control, flags) {
                Ok(message) if message.bytes == 0 => return Err(Ended::Closed),
                Ok(message) => {
                    got += message.bytes;
                    let rights = |m| if let RecvAncillaryMessage::ScmRights(fds) = m { Some(fds) } else { None };
                    fds.extend(control.drain().filter_map(rights).flatten());
                    if fds.len() > MAX_FDS {
                        return Err(Ended::Descriptors);
                    }
                }
                Err(Errno::AGAIN) => self.go_on(PollFlags::IN)?,
                Err(Errno::INTR) => {}
                Err(Errno::CONNRESET) => return Err(Ended::Closed),
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    fn send(&self, answer: &Answer) -> Result<(), Ended> {
        let mut done = 0;
        while done < answer.bytes.len() {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            // Descriptors go with the first byte.
            let fds: Vec<_> = answer.fds.iter().filter(|_| done == 0).map(AsFd::as_fd).collect();
            if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&fds)) {
                return Err(Ended::Descriptors);
            }
            let rest = IoSlice::new(answer.bytes.get(done..).unwrap_or_default());
            match rustix::net::sendmsg(self.socket, &[rest], &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(sent) => done += sent,
                Err(Errno::AGAIN) => self.go_on(PollFlags::OUT)?,
                Err(Errno::INTR) => {}
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(Ended::Closed),
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }
}
