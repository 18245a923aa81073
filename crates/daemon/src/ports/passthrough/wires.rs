//! Passthrough of a network interface to a virtual machine: the interface's queues send from and receive into the
//! guest's own buffers.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};

use netvale_afxdp::nic::{NicQueue, SendClaim};
use netvale_afxdp::rx_end::RxEnd;
use netvale_afxdp::socket::{BufferLayout, XdpSocket};
use netvale_afxdp::through::{ThroughRx, ThroughTx};
use netvale_afxdp::{Nic, NicError, OpenNicQueue};
use netvale_mem::host::HostTx;
use netvale_mem::lent::InUse;
use netvale_mem::notify::{arm, disarm};
use netvale_port::RingCounters;
use netvale_port::passage::Passage;
use netvale_port::seat::Seat;
use netvale_port::wake::WakeSet;
use netvale_ptnet::backend::{Backend, GuestRings};
use rustix::io::Errno;

/// Forwards frames from a guest's tx ring to a queue of the interface.
pub struct OutwardPassage {
    through: ThroughTx,
    /// Whether the kernel has been asked to signal when the queue has room.
    asked: bool,
}

impl Passage for OutwardPassage {
    #[inline]
    fn pass(&mut self, _counters: &RingCounters) -> usize {
        if self.through.is_given() && !self.through.is_waiting() {
            return 0;
        }
        self.through.pass() as usize
    }

    fn arm(&mut self) -> bool {
        arm(self.through.host().side().csb.kern_need_kick());
        if self.through.is_waiting() {
            self.through.arm();
            self.asked = true;
        }
        // This pass processes the buffers that the kernel returned, and the frames that the guest published, just
        // before the notification was requested.
        let news = self.through.pass() > 0;
        if news {
            self.disarm();
        }
        news
    }

    fn disarm(&mut self) {
        disarm(self.through.host().side().csb.kern_need_kick());
        if std::mem::take(&mut self.asked) {
            self.through.disarm();
        }
    }

    fn has_news(&self) -> bool {
        !self.through.is_given()
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.through.wake_fd())
    }
}

/// Forwards frames from a queue of the interface to a guest's rx ring.
pub struct InwardPassage {
    through: ThroughRx,
}

impl InwardPassage {
    /// Whether the guest has fewer than half of the ring's slots free, in which case the kernel may run out of buffers
    /// for received frames.
    fn lacks_buffers(&self) -> bool {
        let end = self.through.end();
        let n = self.through.end().side().ring.num_slots();
        end.room() < n / 2
    }
}

impl Passage for InwardPassage {
    #[inline]
    fn pass(&mut self, _counters: &RingCounters) -> usize {
        self.through.pass() as usize
    }

    fn arm(&mut self) -> bool {
        if self.lacks_buffers() {
            arm(self.through.end().side().csb.kern_need_kick());
        }
        let news = self.through.pass() > 0;
        if news {
            self.disarm();
        }
        news
    }

    fn disarm(&mut self) {
        disarm(self.through.end().side().csb.kern_need_kick());
    }

    fn has_news(&self) -> bool {
        false
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.through.wake_fd())
    }
}

/// Open sockets and queues of an interface, with the guest's right to send on them.
type OpenQueues = Vec<(Arc<XdpSocket>, Arc<NicQueue>, SendClaim)>;

/// The interface that is the backend of a guest's rings. Each ring uses the queue with the same number.
pub struct NicBackend {
    nic: Arc<Nic>,
    entries: u32,
    /// For each tx ring of the guest, its seat: the place for the ring's forwarding, which remains when the guest
    /// changes.
    pub tx: Vec<Arc<Seat<OutwardPassage>>>,
    /// For each rx ring of the guest, its seat, as for `tx`.
    pub rx: Vec<Arc<Seat<InwardPassage>>>,
    open: Mutex<OpenQueues>,
}

impl NicBackend {
    /// Creates a backend from all queues of an interface. The rings of their sockets will have `entries` entries.
    ///
    /// # Errors
    /// Fails if no descriptors are left.
    pub fn new(nic: Arc<Nic>, entries: u32) -> Result<NicBackend, Errno> {
        let queues = 0..nic.interface().queues;
        let tx = queues.clone().map(|_| Seat::woken().map(Arc::new)).collect::<Result<_, Errno>>()?;
        let rx = queues.map(|_| Seat::woken().map(Arc::new)).collect::<Result<_, Errno>>()?;
        Ok(NicBackend { nic, entries, tx, rx, open: Mutex::default() })
    }

    /// Connects a guest's rings to the queues.
    ///
    /// # Errors
    /// [`NicError`] that names the step that failed.
    pub fn connect(&self, rings: &GuestRings<'_>) -> Result<(), NicError> {
        let layout = rings.mem.region().layout();
        let buffers =
            BufferLayout { first: layout.buf_pool, stride: layout.sizes.bufs.size, count: layout.sizes.bufs.num };
        for queue in 0..self.nic.interface().queues {
            let opened = self.nic.queue(queue, self.entries, rings.mem.region().mapping(), buffers)?;
            opened.receive()?;
            let sending = self.nic.send_on(queue)?;
            let failed = |what| move |source| NicError::Step { name: self.nic.interface().name.clone(), what, source };
            let (tx, rx) = self.halves(rings, &opened, buffers).map_err(failed("map the rings of a socket"))?;
            let multi_buffer = opened.bind()?.multi_buffer;
            self.put(queue as usize, tx, rx, multi_buffer).map_err(failed("wait for a queue"))?;
            self.open.lock().unwrap_or_else(PoisonError::into_inner).push((opened.socket, opened.queue, sending));
        }
        Ok(())
    }

    fn halves(
        &self,
        rings: &GuestRings<'_>,
        opened: &OpenNicQueue,
        buffers: BufferLayout,
    ) -> Result<(ThroughTx, ThroughRx), Errno> {
        let queue = opened.queue.address().queue as usize;
        let out = self.tx.get(queue).ok_or(Errno::INVAL)?;
        let back = self.rx.get(queue).ok_or(Errno::INVAL)?;
        let receiver = opened.socket.receiver()?;
        let sender = opened.socket.sender()?;
        let (side, wake) = rings.tx(queue)?;
        let host = HostTx::counted(side, wake, Arc::clone(&out.kicks));
        let tx = ThroughTx::new(host, sender, buffers)?.counted(Arc::clone(&out.counters));
        let (side, wake) = rings.rx(queue)?;
        let end = RxEnd::counted(side, wake, Arc::clone(&back.kicks));
        let mut rx = ThroughRx::new(end, receiver, buffers, None).counted(Arc::clone(&back.counters));
        rx.begin();
        Ok((tx, rx))
    }

    fn put(&self, queue: usize, mut tx: ThroughTx, rx: ThroughRx, multi_buffer: bool) -> Result<(), Errno> {
        tx.set_multi_buffer(multi_buffer);
        let seats = self.tx.get(queue).zip(self.rx.get(queue));
        let (out, back) = seats.ok_or(Errno::INVAL)?;
        out.connect(OutwardPassage { through: tx, asked: false })?;
        back.connect(InwardPassage { through: rx })
    }
}

impl Backend for NicBackend {
    fn wake(&self, ring: usize) -> Option<&WakeSet> {
        match ring.checked_sub(self.tx.len()) {
            None => self.tx.get(ring)?.wake.as_ref(),
            Some(ring) => self.rx.get(ring)?.wake.as_ref(),
        }
    }

    fn kick(&self, ring: usize) {
        match ring.checked_sub(self.tx.len()) {
            None => self.tx.get(ring).iter().for_each(|seat| seat.kick()),
            Some(ring) => self.rx.get(ring).iter().for_each(|seat| seat.kick()),
        }
    }

    fn fill(&self, rings: &GuestRings<'_>) -> Result<(), Errno> {
        self.connect(rings).map_err(|why| {
            tracing::warn!(%why, "cannot pass an interface through");
            why.errno()
        })
    }

    fn empty(&self) -> Result<(), InUse> {
        let tx: Vec<_> = self.tx.iter().map(|seat| seat.disconnect()).collect();
        let rx: Vec<_> = self.rx.iter().map(|seat| seat.disconnect()).collect();
        // The host's stack gets the queues back before the last socket descriptors are closed.
        self.open.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let tx = tx.into_iter().map(|passage| passage.map(drop));
        tx.chain(rx.into_iter().map(|passage| passage.map(drop))).fold(Ok(()), Result::and)
    }

    fn kicks(&self, tx: bool, ring: usize) -> (u64, u64, u64) {
        let kicks = if tx { self.tx.get(ring).map(|s| &s.kicks) } else { self.rx.get(ring).map(|s| &s.kicks) };
        kicks.map_or((0, 0, 0), |kicks| (kicks.sent(), kicks.suppressed(), kicks.received()))
    }
}
