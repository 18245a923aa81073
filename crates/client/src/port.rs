//! Opening a port and waiting on it.

use std::any::Any;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use netvale_control::attach::{AttachReply, AttachRequest, FLAG_HUGE, FLAG_LOSSLESS};
use netvale_mem::appl::{AppRing, Dir};
use netvale_mem::layout::{DEFAULT_BUF_SIZE, RegionSizes};
use netvale_mem::mapping::Pages;
use netvale_mem::notify::Doorbell;
use netvale_mem::pipe::PipeTx;
use netvale_mem::{Mapping, PortMem, PortShape, Region};
use netvale_portspec::PortSpec;
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::connect::{attach, connect_to, is_closed};
use crate::direct;
use crate::error::Error;
use crate::ring::{RxRing, TxKind, TxRing, relax};

/// How a port is to be opened. Zero in a number means the daemon's default.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Directory of the daemon's sockets; none means the usual one.
    pub run_dir: Option<PathBuf>,
    /// Rings each way.
    pub rings: u32,
    /// Slots a ring.
    pub slots: u32,
    /// Bytes a buffer.
    pub buf_size: u32,
    /// Extra buffers.
    pub extra_bufs: u32,
    /// Bytes of virtio-net header before each frame: 0, 10 or 12.
    pub hdr_len: u32,
    /// Pipes that are to find room in the port's region.
    pub pipes: u32,
    /// Hold senders back instead of dropping when this port's rings are full.
    pub lossless: bool,
    /// Prefer huge pages.
    pub huge: bool,
}

/// An open port. Its rings go away with it.
pub struct Port {
    name: String,
    /// None for the ends of a pipe inside one program, and for an interface that it opened itself.
    conn: Option<OwnedFd>,
    reply: AttachReply,
    map: Arc<Mapping>,
    tx: Vec<TxRing>,
    rx: Vec<RxRing>,
    spin: Duration,
    /// Keeps the memory of a pipe inside one program, or of an interface that it opened itself.
    _local: Option<Arc<dyn Any + Send + Sync>>,
}

/// What to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Room on a tx ring.
    Tx,
    /// Frames on an rx ring.
    Rx,
    /// Either.
    Both,
}

impl Port {
    /// Opens a port by its name in netmap's grammar, e.g. `vale0:a`, `netmap:p{1`, `vale0:a/r`.
    ///
    /// # Errors
    /// [`Error`]: a bad name, no daemon, or the daemon's refusal.
    pub fn open(name: &str) -> Result<Port, Error> {
        Self::open_with(name, &Options::default())
    }

    /// Opens a port with options. In a virtual machine `ptnet-pci:0000:00:05.0` is a ptnet device without a driver. Without a daemon, interfaces (`netmap:eth0`, `netmap:eth0-1`) are opened by this program itself, which
    /// takes the privilege to do so.
    ///
    /// # Errors
    /// As [`Port::open`].
    pub fn open_with(name: &str, options: &Options) -> Result<Port, Error> {
        if let Some(address) = name.strip_prefix("ptnet-pci:") {
            return crate::guest::open_function(address, options.hdr_len);
        }
        // Parsed here for the sake of an error that points at the character; the daemon parses it again.
        let spec = PortSpec::parse(name)?;
        match connect_to(options.run_dir.as_deref()) {
            Err(Error::NoDaemon { .. }) if direct::is_possible(&spec) => direct::open(&spec, options),
            conn => Self::open_on(conn?, name, options),
        }
    }

    /// An interface that this program has opened itself; `keep` is what has to live as long.
    pub(crate) fn direct(
        name: String,
        (reply, map): (AttachReply, Arc<Mapping>),
        (tx, rx): (Vec<TxRing>, Vec<RxRing>),
        keep: Arc<dyn Any + Send + Sync>,
    ) -> Port {
        Port { name, conn: None, reply, map, tx, rx, spin: Duration::ZERO, _local: Some(keep) }
    }

    /// Opens a port on a connection to the daemon.
    pub(crate) fn open_on(conn: OwnedFd, name: &str, options: &Options) -> Result<Port, Error> {
        let flags = if options.lossless { FLAG_LOSSLESS } else { 0 } | if options.huge { FLAG_HUGE } else { 0 };
        let request = AttachRequest {
            name: name.to_owned(),
            flags,
            tx_rings: options.rings,
            rx_rings: options.rings,
            tx_slots: options.slots,
            rx_slots: options.slots,
            buf_size: options.buf_size,
            extra_bufs: options.extra_bufs,
            hdr_len: options.hdr_len,
            pipes: options.pipes,
            ..AttachRequest::default()
        };
        let a = attach(conn.as_fd(), &request)?;
        Ok(Port {
            name: name.to_owned(),
            conn: Some(conn),
            reply: a.reply,
            map: a.map,
            tx: a.tx,
            rx: a.rx,
            spin: Duration::ZERO,
            _local: None,
        })
    }

    /// The two ends of a pipe inside this program (and its forked children): no daemon is involved. `slots` and `buf_size` of 0 mean
    /// 256 slots and the default buffer size.
    ///
    /// # Errors
    /// [`Error::Region`] or [`Error::System`].
    pub fn pipe_pair(slots: u32, buf_size: u32) -> Result<(Port, Port), Error> {
        let slots = if slots == 0 { 256 } else { slots };
        let buf_size = if buf_size == 0 { DEFAULT_BUF_SIZE } else { buf_size };
        let region = Region::shared("netvale-pipe", RegionSizes::for_port(4, slots, buf_size, 0, 0), Pages::Ordinary)?;
        let shape = PortShape { tx_rings: 1, rx_rings: 1, tx_slots: slots, rx_slots: slots };
        let ends = Arc::new((region.port(shape)?, region.port(shape)?));
        let bells = || -> Result<[Doorbell; 2], Error> { Ok([bell()?, bell()?]) };
        // One pair for each direction: frames arrived, room made.
        let (to_b, to_a) = (bells()?, bells()?);
        let a = local_end("{", &ends, &ends.0, &ends.1, &to_b, &to_a)?;
        let b = local_end("}", &ends, &ends.1, &ends.0, &to_a, &to_b)?;
        Ok((a, b))
    }

    /// The name it was opened by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the daemon said of it: sizes, offsets, region number.
    pub fn info(&self) -> &AttachReply {
        &self.reply
    }

    /// The region's mapping.
    pub fn mapping(&self) -> &Arc<Mapping> {
        &self.map
    }

    /// The rings to send on.
    pub fn tx(&mut self) -> &mut [TxRing] {
        &mut self.tx
    }

    /// The rings to receive on.
    pub fn rx(&mut self) -> &mut [RxRing] {
        &mut self.rx
    }

    /// Both at once.
    pub fn rings(&mut self) -> (&mut [TxRing], &mut [RxRing]) {
        (&mut self.tx, &mut self.rx)
    }

    /// Takes the rings out, e.g. to give each to a thread of its own. The port must be kept as long as they are used.
    pub fn take_rings(&mut self) -> (Vec<TxRing>, Vec<RxRing>) {
        (std::mem::take(&mut self.tx), std::mem::take(&mut self.rx))
    }

    /// Takes the rings to send on out of it.
    pub(crate) fn take_tx(&mut self) -> Vec<TxRing> {
        std::mem::take(&mut self.tx)
    }

    /// The first ring to send on, and the connection.
    pub(crate) fn first_tx(&mut self) -> Option<(&mut TxRing, Option<BorrowedFd<'_>>)> {
        Some((self.tx.first_mut()?, self.conn.as_ref().map(AsFd::as_fd)))
    }

    /// How long [`Port::wait`] looks before it sleeps. Zero by default.
    pub fn set_spin(&mut self, spin: Duration) {
        self.spin = spin;
    }

    /// Syncs all rings.
    pub fn sync(&mut self) {
        self.tx.iter_mut().for_each(TxRing::sync);
        self.rx.iter_mut().for_each(|r| {
            let _ = r.sync();
        });
    }

    /// Syncs, then waits until a ring is ready or the time is up (none: no limit). Returns whether one is ready.
    ///
    /// # Errors
    /// [`Error::Closed`] when the daemon is gone.
    pub fn wait(&mut self, interest: Interest, timeout: Option<Duration>) -> Result<bool, Error> {
        self.sync();
        let start = Instant::now();
        loop {
            if self.is_ready(interest) {
                return Ok(true);
            }
            if start.elapsed() >= self.spin {
                break;
            }
            relax(start.elapsed());
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

    /// The connection to the daemon: becomes readable when the daemon closes the port. None for a pipe inside a program.
    pub fn connection(&self) -> Option<BorrowedFd<'_>> {
        self.conn.as_ref().map(AsFd::as_fd)
    }
}

pub(crate) fn bell() -> Result<Doorbell, Error> {
    Doorbell::new().map_err(Error::system("make an eventfd"))
}

fn local_end(
    name: &str,
    ends: &Arc<(PortMem, PortMem)>,
    own: &PortMem,
    peer: &PortMem,
    out: &[Doorbell; 2],
    back: &[Doorbell; 2],
) -> Result<Port, Error> {
    let again = |b: &Doorbell| b.try_clone().map_err(|source| Error::System { what: "duplicate an eventfd", source });
    let [arrived_there, room_here] = [again(&out[0])?, again(&out[1])?];
    let [arrived_here, room_there] = [again(&back[0])?, again(&back[1])?];
    let missing = Error::Inconsistent("a port without rings");
    let (Some(tx), Some(rx), Some(peer_rx)) = (own.tx.first(), own.rx.first(), peer.rx.first()) else {
        return Err(missing);
    };
    let mut pipe =
        PipeTx::new(tx.clone(), peer_rx.clone(), arrived_there).ok_or(Error::Inconsistent("pipe ends apart"))?;
    pipe.resume();
    let ring = AppRing::new(rx.clone(), Dir::Rx, room_there);
    let shape = own.shape();
    let reply = AttachReply {
        buf_size: tx.ring.buf_size(),
        tx_rings: 1,
        rx_rings: 1,
        tx_slots: shape.tx_slots,
        rx_slots: shape.rx_slots,
        num_bufs: tx.ring.num_bufs(),
        ..AttachReply::default()
    };
    Ok(Port {
        name: name.to_owned(),
        conn: None,
        reply,
        map: Arc::clone(own.region().mapping()),
        tx: vec![TxRing { kind: TxKind::Pipe(pipe), wake: room_here, indirect: false }],
        rx: vec![RxRing { ring, wake: arrived_here, nic: None }],
        spin: Duration::ZERO,
        _local: Some(Arc::clone(ends) as Arc<dyn Any + Send + Sync>),
    })
}
