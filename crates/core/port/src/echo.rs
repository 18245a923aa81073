//! An egress that returns frames to their senders through an ingress, with source and destination address swapped.
#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use netvale_fdio::state::Fd;
use netvale_mem::host::HostRx;
use netvale_mem::mapping::PageKind;
use netvale_mem::notify::Doorbell;
use netvale_mem::region::{RegionState, RingSide};
use netvale_mem::{PortMem, PortShape, Region, RegionError, RegionSizes};

use crate::far_end::FarEnd;
use crate::ring_in::RingIngress;
use crate::ring_out::RingEgress;
use crate::{Batch, Ingress, RingCounters};

/// Length of an Ethernet address in bytes.
const ADDRESS: usize = 6;

/// The ingress that returns the frames delivered to the [`RingEgress`] created with it, with their addresses swapped.
pub struct EchoIngress {
    ring: RingIngress<FarEnd>,
    mem: Arc<PortMem>,
}

/// Reason why an echo cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum EchoError {
    /// The ring's memory cannot be allocated, or its size is invalid.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// The doorbell's eventfd cannot be created.
    #[error("cannot create an eventfd: {0}")]
    Doorbell(#[from] std::io::Error),
}

/// Creates both ends of a ring of `slots` slots, in memory that no other process maps. Frames that find no room are
/// left to the code that delivers them, which drops or holds them.
///
/// # Errors
/// [`EchoError`] if the memory or the doorbell cannot be created.
pub fn echo(slots: u32) -> Result<(Arc<RingEgress>, EchoIngress), EchoError> {
    let (shape, sizes) = of(slots);
    let mem = Arc::new(Region::shared("netvale-echo", sizes, PageKind::Ordinary)?.port(shape)?);
    ends(mem, HostRx::new, FarEnd::new)
}

/// Restores another process's echo from `memory`, the saved memory of its region.
///
/// # Errors
/// [`EchoError`] if the memory does not fit a ring of `slots` slots.
pub fn restore(slots: u32, memory: Vec<Fd>) -> Result<(Arc<RingEgress>, EchoIngress), EchoError> {
    let (shape, sizes) = of(slots);
    let state = RegionState { sizes, huge: false, file: None, used_bufs: None, memory };
    let mem = Arc::new(Region::restore(state)?.continue_port(shape, 0, 0, 0)?);
    ends(mem, HostRx::continued, FarEnd::continued)
}

fn of(slots: u32) -> (PortShape, RegionSizes) {
    let shape = PortShape { tx_rings: 0, rx_rings: 1, tx_slots: slots, rx_slots: slots };
    (shape, RegionSizes::for_port(1, slots, netvale_mem::layout::DEFAULT_BUF_SIZE, 0, 0))
}

fn ends(
    mem: Arc<PortMem>,
    host: fn(RingSide, Doorbell) -> HostRx,
    far: fn(Arc<RingEgress>) -> FarEnd,
) -> Result<(Arc<RingEgress>, EchoIngress), EchoError> {
    let side = mem.rx.first().ok_or(RegionError::Exhausted { what: "rings", asked: 1, free: 0 })?.clone();
    let doorbell = Doorbell::new().map_err(std::io::Error::from)?;
    let rx = host(side, doorbell.try_clone()?);
    let egress = Arc::new(RingEgress::new(Arc::clone(&mem), rx, 0, Arc::default()));
    let from = far(Arc::clone(&egress));
    let ingress = RingIngress::new(Arc::clone(&mem), from, doorbell, 0, Arc::default());
    Ok((egress, EchoIngress { ring: ingress, mem }))
}

impl EchoIngress {
    /// The memory region that contains the ring.
    pub fn region(&self) -> Arc<Region> {
        Arc::clone(self.mem.region())
    }
}

impl Ingress for EchoIngress {
    // SAFETY: as for the ring, which keeps frames in its buffers until `release`.
    unsafe fn take(&mut self, batch: &mut Batch) {
        // SAFETY: the caller's contract, passed on to the ring.
        unsafe { self.ring.take(batch) };
        for frame in batch.iter() {
            let (first, len) = frame.piece(0).raw();
            if len >= 2 * ADDRESS {
                // SAFETY: the first 12 bytes of a buffer of the ring, which no other process maps, and which no other
                // code of this process touches from the delivery until the release below; the mapping is writable.
                unsafe { std::ptr::swap_nonoverlapping(first.cast_mut(), first.add(ADDRESS).cast_mut(), ADDRESS) };
            }
        }
    }

    fn release(&mut self) {
        self.ring.release();
    }

    fn arm(&mut self) -> bool {
        self.ring.arm()
    }

    fn disarm(&mut self) {
        self.ring.disarm();
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        self.ring.wake_fd()
    }

    fn woken(&mut self) {
        self.ring.woken();
    }

    fn counters(&self) -> &Arc<RingCounters> {
        self.ring.counters()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Source;
    use crate::tests::{bytes, deliver};

    fn frame(to: u8, from: u8, len: usize) -> Vec<u8> {
        [vec![to; ADDRESS], vec![from; ADDRESS], vec![9; len - 2 * ADDRESS]].concat()
    }

    /// Objective: frames of one or several buffers return in order with their addresses swapped and nothing else
    /// changed; frames that exceed the ring are left to the caller, and the ring has room again once frames are
    /// released.
    #[test]
    fn frames_return_with_their_addresses_swapped() {
        let (egress, ingress) = echo(8).unwrap();
        let mut source = Source::new(Box::new(ingress));
        let mut spare = Box::default();
        assert!(!source.arm());
        for round in 0..5 {
            let sent: Vec<_> = (0..20).map(|i| frame(2 * i, 2 * i + 1, 60 + usize::from(i))).collect();
            let done = deliver(&*egress, &sent, |_| {});
            assert!((1..20).contains(&done), "{round}: {done}");
            let back: Vec<_> = (0..20).map(|i| frame(2 * i + 1, 2 * i, 60 + usize::from(i))).collect();
            assert_eq!(bytes(source.take(&mut spare)), back[..done], "{round}");
            source.release(&mut spare);
        }
        assert_eq!(deliver(&*egress, &[frame(1, 2, 5000)], |_| {}), 1);
        assert_eq!(bytes(source.take(&mut spare)), [frame(2, 1, 5000)]);
        source.release(&mut spare);
        assert_eq!(egress.counters().frames(), source.ingress().counters().frames());
    }

    /// Objective: frames on their way back survive a hand-over, each once; memory of another size is refused.
    #[test]
    fn frames_on_their_way_back_survive_a_handover() {
        let (egress, ingress) = echo(8).unwrap();
        let memory = ingress.region().save().unwrap().memory;
        let mut source = Source::new(Box::new(ingress));
        let mut spare = Box::default();
        assert_eq!(deliver(&*egress, &[frame(1, 2, 60), frame(1, 2, 61)], |_| {}), 2);
        assert_eq!(bytes(source.take(&mut spare)).len(), 2);
        source.release(&mut spare);
        assert_eq!(deliver(&*egress, &[frame(1, 2, 62), frame(1, 2, 63)], |_| {}), 2);
        assert!(restore(64, memory.clone()).is_err() && restore(8, Vec::new()).is_err());
        let (egress, ingress) = restore(8, memory).unwrap();
        let mut source = Source::new(Box::new(ingress));
        assert_eq!(deliver(&*egress, &[frame(1, 2, 64)], |_| {}), 1);
        assert_eq!(bytes(source.take(&mut spare)), [62, 63, 64].map(|len| frame(2, 1, len)));
        source.release(&mut spare);
    }

    /// Objective: a delivery wakes an armed ingress, and does not wake a disarmed one.
    #[test]
    fn a_delivery_wakes_only_an_armed_ingress() {
        let (egress, mut ingress) = echo(8).unwrap();
        ingress.disarm();
        assert!(!ingress.arm());
        assert_eq!(deliver(&*egress, &[frame(1, 2, 60)], |_| {}), 1);
        let mut readable =
            [rustix::event::PollFd::from_borrowed_fd(ingress.wake_fd().unwrap(), rustix::event::PollFlags::IN)];
        assert_eq!(rustix::event::poll(&mut readable, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(1));
    }
}
