//! Serves a client: receives its messages from a socket, has the session execute them, and sends the answers.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use crate::Device;
use crate::ended::{ConnectionEnd, TIMEOUT};
use crate::inbox::SocketInbox;
use crate::session::DeviceSession;
use crate::wire::{MAX_FDS, VfioMessage};

/// Maximum size of one read in bytes.
const CHUNK: usize = 4096;
/// Number of messages served in a row before `stop` and the device's timer are checked.
const IN_A_ROW: u32 = 64;
/// Time for which the thread polls for the next message before it sleeps.
const SPIN: Duration = Duration::from_micros(20);

/// Serves a connection (a non-blocking stream socket) until it ends or `stop` is readable. After
/// [`ConnectionEnd::Stopped`], no received byte is lost: this process or a successor can continue the session.
pub fn serve<D: Device>(socket: BorrowedFd<'_>, stop: BorrowedFd<'_>, session: &mut DeviceSession<D>) -> ConnectionEnd {
    let mut line = ClientLine { socket, stop, in_a_row: 0 };
    loop {
        if let Err(ended) = line.step(session) {
            return ended;
        }
    }
}

/// A connection, and the descriptor `stop`, which ends every wait on the connection once it is readable.
struct ClientLine<'a> {
    socket: BorrowedFd<'a>,
    stop: BorrowedFd<'a>,
    /// Number of messages served since `stop` and the timer were last checked.
    in_a_row: u32,
}

impl ClientLine<'_> {
    /// Waits for a message, executes it and sends the answer.
    fn step<D: Device>(&mut self, session: &mut DeviceSession<D>) -> Result<(), ConnectionEnd> {
        self.send(session)?;
        self.next(session)?;
        let message = self.receive(&mut session.inbox)?;
        session.unsent = session.handle(message)?.map(|answer| (answer, 0));
        self.send(session)?;
        Ok(session.device().0.health()?)
    }

    /// Waits for the next message; during the wait, serves the device's timer.
    fn next<D: Device>(&mut self, session: &mut DeviceSession<D>) -> Result<(), ConnectionEnd> {
        self.in_a_row += 1;
        // A client that never pauses must not delay `stop` or the timer.
        let due = self.in_a_row > IN_A_ROW;
        if !due && (!session.inbox.is_empty() || self.spin(&mut session.inbox)?) {
            return Ok(());
        }
        self.in_a_row = 0;
        let pending = !session.inbox.is_empty();
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
                return Err(ConnectionEnd::Stopped);
            }
            if timer {
                device.tick();
            }
            if socket || pending {
                return Ok(());
            }
        }
    }

    /// Polls for the next message for up to [`SPIN`]: a guest's register accesses come in groups, and the guest waits
    /// for the answer to each read. Returns whether bytes arrived.
    fn spin(&self, inbox: &mut SocketInbox) -> Result<bool, ConnectionEnd> {
        let began = Instant::now();
        loop {
            if self.read(inbox)? {
                return Ok(true);
            }
            if began.elapsed() > SPIN {
                return Ok(false);
            }
            std::hint::spin_loop();
        }
    }

    /// Waits until the socket is ready for `what`. Returns an error if `limit` passes or `stop` becomes readable before
    /// the socket is ready.
    fn wait(&self, what: PollFlags, limit: Option<&Timespec>) -> Result<(), ConnectionEnd> {
        let mut both =
            [PollFd::from_borrowed_fd(self.socket, what), PollFd::from_borrowed_fd(self.stop, PollFlags::IN)];
        match poll(&mut both, limit) {
            Ok(0) => return Err(ConnectionEnd::Stalled),
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        if both[1].revents().is_empty() { Ok(()) } else { Err(ConnectionEnd::Stopped) }
    }

    /// Waits up to [`TIMEOUT`] until the socket is ready for the next part of a message or of an answer.
    fn go_on(&self, what: PollFlags) -> Result<(), ConnectionEnd> {
        self.wait(what, Some(&Timespec { tv_sec: TIMEOUT.as_secs().cast_signed(), tv_nsec: 0 }))
    }

    /// Returns the next message; waits for the rest of it if only a part has arrived.
    fn receive(&self, inbox: &mut SocketInbox) -> Result<VfioMessage, ConnectionEnd> {
        loop {
            if let Some(message) = inbox.take()? {
                return Ok(message);
            }
            if !self.read(inbox)? {
                self.go_on(PollFlags::IN)?;
            }
        }
    }

    /// Reads available bytes, at most [`CHUNK`]. Returns whether any byte was read.
    fn read(&self, inbox: &mut SocketInbox) -> Result<bool, ConnectionEnd> {
        let got = netvale_fdio::receive(self.socket, inbox.room(CHUNK), RecvFlags::DONTWAIT);
        let (got, fds) = got.map_or_else(|e| (Err(e), Vec::new()), |got| (Ok(got.bytes), got.fds));
        inbox.came(CHUNK, got.unwrap_or(0), fds)?;
        match got {
            Ok(0) => Err(ConnectionEnd::Closed),
            Ok(_) => Ok(true),
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(Errno::CONNRESET) => Err(ConnectionEnd::Closed),
            Err(e) => Err(e.into()),
        }
    }

    /// Sends the rest of the unsent answer; does nothing if there is none.
    fn send<D>(&self, session: &mut DeviceSession<D>) -> Result<(), ConnectionEnd> {
        let Some((answer, done)) = &mut session.unsent else { return Ok(()) };
        while *done < answer.bytes.len() {
            // The descriptors go with the first byte.
            let fds = if *done == 0 { &answer.fds[..] } else { &[] };
            if fds.len() > MAX_FDS {
                return Err(ConnectionEnd::Descriptors);
            }
            let rest = answer.bytes.get(*done..).unwrap_or_default();
            match netvale_fdio::send(self.socket, rest, fds, SendFlags::DONTWAIT) {
                Ok(sent) => *done += sent,
                Err(Errno::AGAIN) => self.go_on(PollFlags::OUT)?,
                Err(Errno::INTR) => {}
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(ConnectionEnd::Closed),
                Err(e) => return Err(e.into()),
            }
        }
        session.unsent = None;
        Ok(())
    }
}
