//! Sending frame by frame, as with sockets and libpcap: any number of threads may send, and each frame has a result.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use netvale_mem::spin::Spin;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use thiserror::Error;

use crate::connect::is_closed;
use crate::ring::TxRing;
use crate::{Error, LatePort, Port};

/// Maximum time for which a sender polls for room before it sleeps.
const SPIN: Duration = Duration::from_micros(50);

/// The reason why a frame was not sent.
#[derive(Debug, Error)]
pub enum SendError {
    /// No room was found within the time limit.
    #[error("no room in the port's ring")]
    NoRoom,
    /// The frame has no bytes.
    #[error("the frame is empty")]
    Empty,
    /// No ring of the port accepts a frame of this length.
    #[error("the frame is longer than the port accepts")]
    TooLong,
    /// The port was detached, or the daemon ended.
    #[error("the port was detached, or the daemon ended")]
    Closed,
    /// The port is receive-only.
    #[error("the port is receive-only or a monitor")]
    ReceiveOnly,
    /// The port cannot be opened.
    #[error(transparent)]
    Open(#[from] Error),
}

impl SendError {
    /// Returns the errno that send(2) on a packet socket would set; for [`SendError::NoRoom`], `EAGAIN`, as on a
    /// non-blocking socket.
    pub fn errno(&self) -> Errno {
        match self {
            SendError::NoRoom => Errno::AGAIN,
            SendError::Empty => Errno::INVAL,
            SendError::TooLong => Errno::MSGSIZE,
            SendError::ReceiveOnly => Errno::OPNOTSUPP,
            SendError::Closed | SendError::Open(Error::Closed | Error::NoDaemon(_)) => Errno::NETDOWN,
            SendError::Open(Error::Refused { errno, .. }) if (1..4096).contains(errno) => {
                Errno::from_raw_os_error(*errno)
            }
            SendError::Open(_) => Errno::NXIO,
        }
    }
}

/// Shortest time between two checks of the connection while frames are accepted.
const CHECK: Duration = Duration::from_millis(1);

/// A tx ring on which several threads send.
pub struct OutgoingRing {
    inner: Mutex<OutgoingInner>,
}

struct OutgoingInner {
    end: RingEnd,
    /// Number of threads that sleep until there is room.
    sleepers: u32,
    /// The descriptors on which these threads sleep, which are created when a thread first sleeps.
    wakes: Option<Arc<Wakes>>,
    /// State of the adaptive polling for room.
    spin: Spin,
    /// Time of the last check of the connection that followed a kick.
    checked: Option<Instant>,
}

enum RingEnd {
    /// A port that is used only for sending, and is opened when the first frame is sent.
    Late(Box<LatePort>),
    /// Tx rings of a port that is also used to receive, and a copy of the port's connection; `None` if there is no
    /// daemon.
    Rings(Vec<TxRing>, Option<OwnedFd>),
}

/// Descriptors that become readable when there is room or the port is gone.
pub struct Wakes {
    room: OwnedFd,
    connection: Option<OwnedFd>,
}

impl Wakes {
    /// Returns the descriptors.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::once(self.room.as_fd()).chain(self.connection.iter().map(AsFd::as_fd))
    }
}

impl OutgoingRing {
    /// Creates a ring on the port `name`. The port is opened when the first frame is sent, but with the credentials
    /// that the program has now.
    ///
    /// # Errors
    /// [`Error::NoDaemon`] if no daemon listens.
    pub fn late(name: &str) -> Result<OutgoingRing, Error> {
        Ok(OutgoingRing::new(RingEnd::Late(Box::new(LatePort::new(name)?))))
    }

    /// Creates a ring from the tx rings of a port. The tx rings are taken out of the port, which continues to receive.
    ///
    /// # Errors
    /// [`Error::System`] if the process is out of descriptors.
    pub fn of(port: &mut Port) -> Result<OutgoingRing, Error> {
        let connection = port.connection().map(|c| copied(c)).transpose()?;
        Ok(OutgoingRing::new(RingEnd::Rings(port.take_tx(), connection)))
    }

    fn new(end: RingEnd) -> OutgoingRing {
        OutgoingRing {
            inner: Mutex::new(OutgoingInner { end, sleepers: 0, wakes: None, spin: Spin::default(), checked: None }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, OutgoingInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a frame; if there is no room, waits up to `limit`. An accepted frame is delivered without any further
    /// call.
    ///
    /// # Errors
    /// [`SendError`] gives the reason.
    pub fn send(&self, frame: &[u8], limit: Duration) -> Result<(), SendError> {
        if self.lock().put(frame)? {
            return Ok(());
        }
        let start = Instant::now();
        if self.poll(frame, SPIN.min(limit))? {
            return Ok(());
        }
        loop {
            let left = limit.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Err(SendError::NoRoom);
            }
            let wakes = self.go_to_sleep();
            let tried = self.lock().put(frame);
            if let (Ok(false), Some(wakes)) = (&tried, wakes) {
                sleep(&wakes, left);
            }
            self.wake_up();
            if tried? {
                return Ok(());
            }
        }
    }

    /// Retries for up to `most`, for a time that adapts to how often polling has recently succeeded. Returns whether
    /// the frame was sent.
    fn poll(&self, frame: &[u8], most: Duration) -> Result<bool, SendError> {
        // Threads that start to poll while this thread polls use a default state.
        let mut spin = std::mem::take(&mut self.lock().spin);
        spin.set_most(most);
        let mut sent = Ok(false);
        spin.poll(|| {
            sent = self.lock().put(frame);
            !matches!(sent, Ok(false))
        });
        self.lock().spin = spin;
        sent
    }

    /// Returns whether a send would not have to wait for room: the next frame would be accepted, or refused for another
    /// reason.
    pub fn has_room(&self) -> bool {
        let mut inner = self.lock();
        // A port that is not opened yet has room.
        let Some((ring, connection)) = inner.opened() else { return true };
        ring.is_ready() || connection.is_some_and(is_closed)
    }

    /// Returns a number that changes when room becomes available.
    pub fn news(&self) -> u64 {
        self.lock().opened().map_or(0, |(ring, _)| ring.mem().indices().2.into())
    }

    /// Requests a wake-up. The caller must check for room once more before it sleeps on the returned descriptors, and
    /// must then call [`OutgoingRing::wake_up`]. Returns `None` if the port is not open, or the process is out of
    /// descriptors.
    pub fn go_to_sleep(&self) -> Option<Arc<Wakes>> {
        let mut inner = self.lock();
        inner.sleepers += 1;
        let wakes = inner.wakes();
        if let Some((ring, _)) = inner.opened() {
            ring.ask_kick();
        }
        wakes
    }

    /// Ends a sleep that [`OutgoingRing::go_to_sleep`] began.
    pub fn wake_up(&self) {
        let mut inner = self.lock();
        inner.sleepers = inner.sleepers.saturating_sub(1);
        if inner.sleepers == 0
            && let Some((ring, _)) = inner.opened()
        {
            ring.disarm();
        }
    }
}

impl OutgoingInner {
    /// Returns the ring and the port's connection; `None` if the port is not open.
    fn opened(&mut self) -> Option<(&mut TxRing, Option<BorrowedFd<'_>>)> {
        match &mut self.end {
            RingEnd::Late(late) => late.opened()?.first_tx(),
            RingEnd::Rings(rings, connection) => Some((rings.first_mut()?, connection.as_ref().map(AsFd::as_fd))),
        }
    }

    /// Puts a frame into the ring and publishes it. Returns whether there was room.
    fn put(&mut self, frame: &[u8]) -> Result<bool, SendError> {
        if let RingEnd::Late(late) = &mut self.end {
            late.open()?;
        }
        let checked = self.checked;
        let (ring, connection) = self.opened().ok_or(SendError::ReceiveOnly)?;
        if frame.is_empty() {
            return Err(SendError::Empty);
        }
        if frame.len() > ring.longest() {
            return Err(SendError::TooLong);
        }
        let rung = ring.kicks().sent();
        let mut sent = ring.send(frame);
        ring.sync();
        if !sent {
            sent = ring.send(frame);
            ring.sync();
        }
        // To save system calls, the connection is checked only if there was no room, or after a kick. After kicks, it
        // is checked at most once per `CHECK`.
        let kicked = ring.kicks().sent() != rung && checked.is_none_or(|last| last.elapsed() >= CHECK);
        if (!sent || kicked) && connection.is_some_and(is_closed) {
            return Err(SendError::Closed);
        }
        if kicked {
            self.checked = Some(Instant::now());
        }
        Ok(sent)
    }

    fn wakes(&mut self) -> Option<Arc<Wakes>> {
        if self.wakes.is_none() {
            let (ring, connection) = self.opened()?;
            let connection = connection.map(|c| copied(c)).transpose().ok()?;
            let room = copied(ring.wake_fd()).ok()?;
            self.wakes = Some(Arc::new(Wakes { room, connection }));
        }
        self.wakes.clone()
    }
}

fn copied(fd: BorrowedFd<'_>) -> Result<OwnedFd, Error> {
    rustix::io::fcntl_dupfd_cloexec(fd, 0).map_err(Error::system("copy a descriptor"))
}

fn sleep(wakes: &Wakes, left: Duration) {
    let mut fds: Vec<PollFd<'_>> = wakes.fds().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
    // A signal may end the sleep early, so the caller checks for room in any case.
    let _ = rustix::event::poll(&mut fds, Some(&left));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RxRing;

    const LONG: Duration = Duration::from_secs(20);

    fn ends() -> (OutgoingRing, Port, Port) {
        let (mut a, b) = Port::pipe_pair(16, 128).unwrap();
        (OutgoingRing::of(&mut a).unwrap(), a, b)
    }

    fn fill_up(to: &OutgoingRing) -> u32 {
        let mut count = 0;
        while to.send(&[7; 60], Duration::ZERO).is_ok() {
            count += 1;
        }
        count
    }

    fn next(rx: &mut RxRing) -> Option<usize> {
        let _ = rx.sync();
        let got = rx.recv(&mut [0; 4096]);
        let _ = rx.sync();
        got
    }

    /// Objective: the reasons why a frame is not sent have different texts, and different errnos for sockets.
    #[test]
    fn each_reason_is_distinct() {
        let (out, _a, _b) = ends();
        let errno = |frame: &[u8]| out.send(frame, LONG).map_err(|e| e.errno());
        assert_eq!(errno(&[]), Err(Errno::INVAL));
        assert_eq!(errno(&[0; 15 * 128 + 1]), Err(Errno::MSGSIZE));
        assert_eq!(errno(&[0; 15 * 128]), Ok(()), "all of the ring");
        let full = out.send(&[0; 60], Duration::ZERO).unwrap_err();
        assert!(matches!(full, SendError::NoRoom) && full.errno() == Errno::AGAIN);
        let (mut watching, _) = Port::pipe_pair(16, 128).unwrap();
        let _ = watching.take_rings();
        let none = OutgoingRing::of(&mut watching).unwrap().send(&[0; 60], LONG).unwrap_err();
        assert!(matches!(none, SendError::ReceiveOnly), "{none}");
    }

    /// Objective: every accepted frame arrives without any further call; room is reported exactly as long as there is
    /// room.
    #[test]
    fn every_accepted_frame_is_sent() {
        let (out, _a, mut b) = ends();
        assert!(out.has_room());
        let news = out.news();
        assert_eq!(fill_up(&out), 15);
        assert!(!out.has_room() && out.news() == news);
        let rx = &mut b.rx()[0];
        assert_eq!(next(rx), Some(60));
        assert!(out.has_room() && out.news() != news);
        assert_eq!(fill_up(&out), 1);
        drop(out);
        assert_eq!(std::iter::from_fn(|| next(rx)).count(), 15);
    }

    /// Objective: several senders wait for room, with frames that need one or several slots. All of them get room as
    /// the receiver reads; a sender with a short time limit gives up.
    #[test]
    fn many_waiting_senders_all_get_room() {
        let (out, _a, mut b) = ends();
        assert_eq!(fill_up(&out), 15);
        assert!(matches!(out.send(&[0; 60], Duration::from_millis(5)), Err(SendError::NoRoom)));
        std::thread::scope(|scope| {
            let send = |len: usize| {
                let frame = vec![1; len];
                (0..200).for_each(|_| out.send(&frame, LONG).unwrap());
            };
            for len in [60, 400, 1000] {
                scope.spawn(move || send(len));
            }
            let rx = &mut b.rx()[0];
            let mut left = 15 + 3 * 200;
            while left > 0 {
                assert!(rx.wait(Duration::ZERO, LONG), "{left} are missing");
                left -= u32::from(next(rx).is_some());
            }
        });
    }
}
