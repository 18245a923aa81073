//! netmap's sync kloop: an ioctl in which a thread of the program stays, and which syncs the rings from their CSB
//! entries.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use libc::{POLLIN, c_int, pollfd};
use netvale_abi::nmreq::{
    NETMAP_REQ_OPT_SYNC_KLOOP_EVENTFDS, NETMAP_REQ_OPT_SYNC_KLOOP_MODE, NM_OPT_SYNC_KLOOP_DIRECT_RX,
    NM_OPT_SYNC_KLOOP_DIRECT_TX, NmEventfds, NmreqOptSyncKloopMode, NmreqOption,
};
use netvale_mem::RingMem;
use rustix::io::Errno;

use crate::csb::UserCsb;
use crate::descriptor::{BoundPort, BoundRing, Descriptor, DirectedRing};
use crate::loop_state::LoopState;
use crate::options::{NmOption, RequestOptions};
use crate::{user, wait};

/// Maximum time until the loop notices that it must stop.
const LOOK_UP: Duration = Duration::from_millis(20);

/// Implements `NETMAP_REQ_SYNC_KLOOP_START`: syncs the rings until [`LoopState::stop`]. Without eventfds, the loop
/// sleeps `sleep_us` microseconds between rounds.
///
/// # Errors
/// `ENXIO` if no port is registered, `EINVAL` if the port is not in CSB mode or the number of eventfds is wrong,
/// `EBUSY` if a loop already runs.
pub fn start(descriptor: &Descriptor, sleep_us: u32, options: &mut RequestOptions) -> Result<(), Errno> {
    let bound = descriptor.bound().ok_or(Errno::NXIO)?;
    let csb = bound.csb.get().ok_or(Errno::INVAL)?;
    // In netmap, the modes select the thread that syncs. Here, they have no effect: this thread syncs all rings.
    let direct = options.take(NETMAP_REQ_OPT_SYNC_KLOOP_MODE, |opt| read_mode(opt.addr))?.is_some_and(|mode| mode != 0);
    let rings = bound.tx.len() + bound.rx.len();
    let read = |opt: NmOption| read_eventfds(opt.addr, opt.header.nro_size, rings, direct);
    let eventfds = options.take(NETMAP_REQ_OPT_SYNC_KLOOP_EVENTFDS, read)?.unwrap_or_default();
    let kloop = &descriptor.kloop;
    if !kloop.begin() {
        return Err(Errno::BUSY);
    }
    let nap = if eventfds.is_empty() { Duration::from_micros(sleep_us.into()) } else { LOOK_UP };
    KloopRun { bound: &bound, csb, eventfds, nap: nap.min(LOOK_UP), tails: vec![u32::MAX; rings] }.run(kloop);
    kloop.end();
    Ok(())
}

fn read_mode(addr: u64) -> Result<u32, Errno> {
    let mode = user::read::<NmreqOptSyncKloopMode>(addr)?.mode;
    if mode & !(NM_OPT_SYNC_KLOOP_DIRECT_TX | NM_OPT_SYNC_KLOOP_DIRECT_RX) != 0 {
        return Err(Errno::INVAL);
    }
    Ok(mode)
}

fn read_eventfds(addr: u64, size: u64, rings: usize, direct: bool) -> Result<Vec<NmEventfds>, Errno> {
    let header = size_of::<NmreqOption>() as u64;
    if size != header + (rings * size_of::<NmEventfds>()) as u64 {
        return Err(Errno::INVAL);
    }
    let read = |i: usize| user::read(addr + header + (i * size_of::<NmEventfds>()) as u64);
    let eventfds: Vec<NmEventfds> = (0..rings).map(read).collect::<Result<_, _>>()?;
    // In netmap's direct modes, a ring is synced in the wake-up callback of its ioeventfd: each ring needs one.
    if direct && eventfds.iter().any(|e| e.ioeventfd < 0) {
        return Err(Errno::INVAL);
    }
    Ok(eventfds)
}

struct KloopRun<'a> {
    bound: &'a Arc<BoundPort>,
    csb: &'a UserCsb,
    eventfds: Vec<NmEventfds>,
    nap: Duration,
    /// The last published tail of each ring.
    tails: Vec<u32>,
}

impl KloopRun<'_> {
    fn run(&mut self, state: &LoopState) {
        while !state.is_stopping() {
            if self.round() {
                continue;
            }
            self.ask_kicks(true);
            self.bound.go_to_sleep(POLLIN | libc::POLLOUT);
            if !self.round() && !state.is_stopping() {
                self.sleep();
            }
            self.bound.wake_up(POLLIN | libc::POLLOUT);
            self.ask_kicks(false);
        }
    }

    /// Syncs all rings once. Returns whether any ring has changed.
    fn round(&mut self) -> bool {
        let bound = Arc::clone(self.bound);
        let n = bound.tx.len();
        let tx = (0..n).fold(false, |news, i| self.ring(i, &bound.tx[i], true) | news);
        (0..bound.rx.len()).fold(tx, |news, i| self.ring(n + i, &bound.rx[i], false) | news)
    }

    fn ring<R: DirectedRing>(&mut self, i: usize, lane: &BoundRing<R>, is_tx: bool) -> bool {
        let header: &RingMem = lane.header();
        let (head, cur) = self.csb.head_cur(i);
        let (before, _, tail) = header.indices();
        header.set_indices(head, cur, tail);
        lane.sync();
        // The sync resets an invalid `head`, so `head` is read again.
        let (head, _, tail) = header.indices();
        let n = header.num_slots();
        // In a tx ring, the slot after `tail` is the first slot that the worker has not finished.
        let hwcur = if is_tx { if tail + 1 >= n { 0 } else { tail + 1 } } else { head };
        self.csb.publish(i, hwcur, tail);
        let news = self.tails.get_mut(i).is_some_and(|last| std::mem::replace(last, tail) != tail);
        if news && self.csb.appl_wants_kick(i) {
            self.notify(i);
        }
        news || before != head
    }

    fn notify(&self, i: usize) {
        if let Some(e) = self.eventfds.get(i).filter(|e| e.irqfd >= 0) {
            write_eventfd(e.irqfd);
        }
    }

    fn ask_kicks(&self, wanted: bool) {
        (0..self.tails.len()).for_each(|i| self.csb.want_kick(i, wanted));
    }

    /// Waits until the application kicks, frames arrive, or the loop must check for a stop.
    fn sleep(&self) {
        let kicks = self.eventfds.iter().map(|e| e.ioeventfd).filter(|fd| *fd >= 0);
        let wakes = self.bound.wake_fds(POLLIN | libc::POLLOUT);
        let mut fds: Vec<pollfd> = kicks.chain(wakes).map(|fd| pollfd { fd, events: POLLIN, revents: 0 }).collect();
        if wait::kernel(&mut fds, Some(self.nap), std::ptr::null()).is_ok() {
            let mine = self.eventfds.len();
            fds.iter().take(mine).filter(|f| f.revents & POLLIN != 0).for_each(|f| drain_eventfd(f.fd));
        }
    }
}

/// Writes to the program's eventfd. Errors are ignored: a full counter or a closed descriptor is the program's fault.
fn write_eventfd(fd: RawFd) {
    if let Some(fd) = crate::borrow(fd) {
        let _ = rustix::io::write(fd, &1u64.to_ne_bytes());
    }
}

/// Reads an eventfd that poll(2) has reported as readable. The read blocks only if another reader was faster.
fn drain_eventfd(fd: c_int) {
    let mut count = [0u8; 8];
    if let Some(fd) = crate::borrow(fd) {
        let _ = rustix::io::read(fd, &mut count);
    }
}
