//! An open port ([`Port`]) and its options.

use std::any::Any;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use netvale_control::attach::AttachReply;
use netvale_mem::Mapping;
use netvale_mem::spin::{Spin, poll_for};
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::connect::is_closed;
use crate::error::Error;
use crate::ring::{RxRing, TxRing};

/// Options for opening a port. For every number, zero means the daemon's default.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Directory of the daemon's sockets; `None` means the default directory.
    pub run_dir: Option<PathBuf>,
    /// Number of rings in each direction.
    pub rings: u32,
    /// Slots per ring.
    pub slots: u32,
    /// Buffer size in bytes.
    pub buf_size: u32,
    /// Number of extra buffers.
    pub extra_bufs: u32,
    /// Length in bytes of the virtio-net header before each frame: 0, 10 or 12.
    pub hdr_len: u32,
    /// Number of pipes for which the port's region has room.
    pub pipes: u32,
    /// Whether to hold senders back instead of dropping frames when this port's rings are full.
    pub lossless: bool,
    /// Whether to prefer huge pages for the region.
    pub huge: bool,
}

/// An open port. Dropping this value closes the port and its rings.
pub struct Port {
    name: String,
    /// The connection to the daemon; `None` for the ends of a pipe inside one program, and for an interface that the
    /// program opened without a daemon.
    conn: Option<OwnedFd>,
    reply: AttachReply,
    map: Arc<Mapping>,
    tx: Vec<TxRing>,
    rx: Vec<RxRing>,
    spin: Spin,
    /// Owner of the memory of a pipe inside one program, or of an interface that the program opened without a daemon;
    /// `None` for other ports.
    _local: Option<Arc<dyn Any + Send + Sync>>,
}

/// The events that [`Port::wait`] waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Room on a tx ring.
    Tx,
    /// Frames on an rx ring.
    Rx,
    /// Either event.
    Both,
}

impl Port {
    /// Assembles a port. `keep` owns resources that must exist as long as the port; `None` if the daemon owns them.
    pub(crate) fn new(
        name: String,
        conn: Option<OwnedFd>,
        reply: AttachReply,
        map: Arc<Mapping>,
        tx: Vec<TxRing>,
        rx: Vec<RxRing>,
        keep: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Port {
        Port { name, conn, reply, map, tx, rx, spin: Spin::default(), _local: keep }
    }

    /// Returns the name with which the port was opened.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the daemon's description of the port: sizes, offsets, region number.
    pub fn info(&self) -> &AttachReply {
        &self.reply
    }

    /// Returns the region's mapping.
    pub fn mapping(&self) -> &Arc<Mapping> {
        &self.map
    }

    /// Returns the tx rings.
    pub fn tx(&mut self) -> &mut [TxRing] {
        &mut self.tx
    }

    /// Returns the rx rings.
    pub fn rx(&mut self) -> &mut [RxRing] {
        &mut self.rx
    }

    /// Returns the tx and the rx rings together.
    pub fn rings(&mut self) -> (&mut [TxRing], &mut [RxRing]) {
        (&mut self.tx, &mut self.rx)
    }

    /// Takes the rings out of the port, e.g. to give each ring to a thread. The port must not be dropped before the
    /// rings.
    pub fn take_rings(&mut self) -> (Vec<TxRing>, Vec<RxRing>) {
        (std::mem::take(&mut self.tx), std::mem::take(&mut self.rx))
    }

    /// Takes the tx rings out of the port.
    pub(crate) fn take_tx(&mut self) -> Vec<TxRing> {
        std::mem::take(&mut self.tx)
    }

    /// Returns the first tx ring, and the connection to the daemon (`None` if there is no daemon). Returns `None` if
    /// the port has no tx rings.
    pub(crate) fn first_tx(&mut self) -> Option<(&mut TxRing, Option<BorrowedFd<'_>>)> {
        Some((self.tx.first_mut()?, self.conn.as_ref().map(AsFd::as_fd)))
    }

    /// Sets the maximum time for which [`Port::wait`] polls before it sleeps. The default is zero.
    pub fn set_spin(&mut self, spin: Duration) {
        self.spin.set_most(spin);
    }

    /// Syncs all rings.
    pub fn sync(&mut self) {
        self.tx.iter_mut().for_each(TxRing::sync);
        self.rx.iter_mut().for_each(|r| {
            let _ = r.sync();
        });
    }

    /// Syncs, then waits until a ring is ready or the timeout passes (`None`: no limit). Returns whether a ring is
    /// ready.
    ///
    /// # Errors
    /// [`Error::Closed`] if the daemon has ended or has closed the port.
    pub fn wait(&mut self, interest: Interest, timeout: Option<Duration>) -> Result<bool, Error> {
        self.sync();
        let start = Instant::now();
        if self.is_ready(interest) || poll_for(self, |port| &mut port.spin, |port| port.is_ready(interest)) {
            return Ok(true);
        }
        loop {
            let ready = self.arm(interest);
            let left = timeout.map(|t| t.saturating_sub(start.elapsed()));
            if !ready && left.is_none_or(|l| !l.is_zero()) {
                self.sleep(interest, left)?;
            }
            self.disarm(interest);
            if ready || self.is_ready(interest) {
                return Ok(true);
            }
            if self.conn.as_ref().is_some_and(|c| is_closed(c.as_fd())) {
                return Err(Error::Closed);
            }
            if timeout.is_some_and(|t| start.elapsed() >= t) {
                return Ok(false);
            }
        }
    }

    fn is_ready(&mut self, interest: Interest) -> bool {
        (interest != Interest::Rx && self.tx.iter_mut().any(TxRing::is_ready))
            || (interest != Interest::Tx && self.rx.iter_mut().any(RxRing::is_ready))
    }

    fn arm(&mut self, interest: Interest) -> bool {
        let mut ready = false;
        if interest != Interest::Rx {
            self.tx.iter_mut().for_each(|r| ready |= r.arm());
        }
        if interest != Interest::Tx {
            self.rx.iter_mut().for_each(|r| ready |= r.arm());
        }
        ready
    }

    fn disarm(&self, interest: Interest) {
        if interest != Interest::Rx {
            self.tx.iter().for_each(TxRing::disarm);
        }
        if interest != Interest::Tx {
            self.rx.iter().for_each(RxRing::disarm);
        }
    }

    fn sleep(&self, interest: Interest, left: Option<Duration>) -> Result<(), Error> {
        let mut fds: Vec<PollFd<'_>> = Vec::new();
        if interest != Interest::Rx {
            fds.extend(self.tx.iter().map(|r| PollFd::from_borrowed_fd(r.wake_fd(), PollFlags::IN)));
        }
        if interest != Interest::Tx {
            fds.extend(self.rx.iter().map(|r| PollFd::from_borrowed_fd(r.wake_fd(), PollFlags::IN)));
        }
        fds.extend(self.conn.iter().map(|c| PollFd::from_borrowed_fd(c.as_fd(), PollFlags::IN)));
        let limit = left.map(|d| Timespec { tv_sec: d.as_secs() as i64, tv_nsec: i64::from(d.subsec_nanos()) });
        match rustix::event::poll(&mut fds, limit.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(Error::system("wait for frames")(e)),
        }
    }

    /// Returns the connection to the daemon, which becomes readable when the daemon closes the port; `None` if the port
    /// was opened without a daemon.
    pub fn connection(&self) -> Option<BorrowedFd<'_>> {
        self.conn.as_ref().map(AsFd::as_fd)
    }
}
