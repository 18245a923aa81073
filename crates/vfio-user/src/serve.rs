//! Messages over a socket.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};

use crate::Device;
use crate::ended::{Ended, TIMEOUT};
use crate::inbox::Inbox;
use crate::session::{Answer, Session};
use crate::wire::{MAX_FDS, Message};

/// Bytes of one read.
const CHUNK: usize = 4096;
/// Messages that are served in a row before `stop` and the device's timer are looked at.
const IN_A_ROW: u32 = 64;
/// The time to poll for the next message before sleeping.
const SPIN: Duration = Duration::from_micros(20);

/// Serves a connection (a non-blocking stream socket) to its end.
pub fn serve<D: Device>(socket: BorrowedFd<'_>, stop: BorrowedFd<'_>, session: &mut Session<D>) -> Ended {
    let mut line = Line { socket, stop, inbox: Inbox::default(), in_a_row: 0 };
    loop {
        let step = line
            .next(session)
            .and_then(|()| line.receive())
            .and_then(|message| Ok(session.handle(message)?))
            .and_then(|answer| answer.map_or(Ok(()), |answer| line.send(&answer)))
            .and_then(|()| Ok(session.device().0.health()?));
        if let Err(ended) = step {
            return ended;
        }
    }
}

/// A connection, and the descriptor that ends every wait.
struct Line<'a> {
    socket: BorrowedFd<'a>,
    stop: BorrowedFd<'a>,
    inbox: Inbox,
    /// Messages served since `stop` and the timer were looked at.
    in_a_row: u32,
}

impl Line<'_> {
    /// Waits for the next message, and runs the device's timers meanwhile.
    fn next<D: Device>(&mut self, session: &mut Session<D>) -> Result<(), Ended> {
        self.in_a_row += 1;
        // A client that never pauses must keep neither from being seen.
        let due = self.in_a_row > IN_A_ROW;
        if !due && (!self.inbox.is_empty() || self.spin()?) {
            return Ok(());
        }
        self.in_a_row = 0;
        let pending = !self.inbox.is_empty();
        let limit = pending.then(Timespec::default);
        loop {
            let (device, _) = session.device();
            let timer = device.timer();
            let count = if timer.is_some() { 3 } else { 2 };
            let on = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
            let mut all = [on(self.socket), on(self.stop), on(timer.unwrap_or(self.stop))];
            match poll(all.get_mut(..count).unwrap_or_default(), limit.as_ref()) {
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
            if socket || pending {
                return Ok(());
            }
        }
    }

    /// Looks for the next message for a moment: a guest that reads a register waits for the answer, and accesses come in groups.
    fn spin(&mut self) -> Result<bool, Ended> {
        let began = Instant::now();
        loop {
            if self.read()? {
                return Ok(true);
            }
            if began.elapsed() > SPIN {
                return Ok(false);
            }
            std::hint::spin_loop();
        }
    }

    /// Waits until the socket is ready, for at most this long.
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

    /// Waits in the same way in the middle of a message.
    fn go_on(&self, what: PollFlags) -> Result<(), Ended> {
        self.wait(what, Some(&Timespec { tv_sec: TIMEOUT.as_secs().cast_signed(), tv_nsec: 0 }))
    }

    /// The next message, which has begun.
    fn receive(&mut self) -> Result<Message, Ended> {
        loop {
            if let Some(message) = self.inbox.take()? {
                return Ok(message);
            }
            if !self.read()? {
                self.go_on(PollFlags::IN)?;
            }
        }
    }

    /// Reads all bytes that have come. Returns whether there were any.
    fn read(&mut self) -> Result<bool, Ended> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let mut place = [IoSliceMut::new(self.inbox.room(CHUNK))];
        let got = rustix::net::recvmsg(self.socket, &mut place, &mut control, flags);
        let rights = |m| if let RecvAncillaryMessage::ScmRights(fds) = m { Some(fds) } else { None };
        let fds = control.drain().filter_map(rights).flatten().collect();
        self.inbox.came(CHUNK, got.as_ref().map_or(0, |message| message.bytes), fds)?;
        match got {
            Ok(message) if message.bytes == 0 => Err(Ended::Closed),
            Ok(_) => Ok(true),
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(Errno::CONNRESET) => Err(Ended::Closed),
            Err(e) => Err(e.into()),
        }
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
