//! Copies, for monitors, of frames that bypass the daemon. Programs that move such frames copy them into rings
//! ([`netvale_mem::mirror`]), and tasks of the workers forward the copies.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arc_swap::ArcSwap;
use netvale_mem::host::HostTx;
use netvale_mem::mirror::Moment;
use netvale_mem::notify::Doorbell;
use netvale_mem::region::{RingRanges, RingSide};
use netvale_mem::{PortMem, PortShape, Region};
use netvale_port::domain::TimeDomain;
use netvale_port::ring_in::RingIngress;
use netvale_port::{BATCH, DropReason, Egress, HdrLen, PassResult, Source, Task};
use netvale_switch::ForwardMemory;

use super::workers::Workers;
use crate::refusal::Refusal;
use crate::worker::TaskId;

/// The monitors' names, each with the egress to which copies are delivered.
type CopyTargets = Vec<(String, Arc<dyn Egress>)>;

/// 0, 1, 2, …: the indices of all frames of a batch.
const ALL: [u16; BATCH] = {
    let mut a = [0; BATCH];
    let mut i = 0;
    while i < BATCH {
        a[i] = i as u16;
        i += 1;
    }
    a
};

/// Forwards the copies of one ring's frames to monitors. The program that copies sends no kicks, so the task polls as
/// long as a monitor exists.
struct CopyForwarder {
    source: Source<RingIngress>,
    to: Arc<ArcSwap<CopyTargets>>,
    /// Number of consecutive polls that found no copy.
    idle: u32,
}

/// Polling interval after a poll that found a copy.
const NAP: Duration = Duration::from_micros(50);
/// Number of consecutive polls without a copy after which the polling interval doubles.
const LOOKS: u32 = 16;
/// Maximum number of times that the polling interval doubles.
const DOUBLINGS: u32 = 4;

impl Task<ForwardMemory> for CopyForwarder {
    fn pass(&mut self, work: &mut ForwardMemory) -> PassResult {
        let batch = self.source.take(&mut work.spare);
        let frames = batch.len();
        for (_, egress) in self.to.load().iter() {
            let done = egress.deliver(batch, &ALL[..frames], &mut work.scratch);
            if done < frames {
                egress.counters().dropped(DropReason::NoRoom, (frames - done) as u64);
            }
        }
        self.source.release(&mut work.spare);
        self.idle = if frames == 0 { self.idle.saturating_add(1) } else { 0 };
        PassResult::count(frames)
    }

    fn nap(&self) -> Option<Duration> {
        Some(NAP * (1 << (self.idle / LOOKS).min(DOUBLINGS)))
    }
}

/// A ring whose frames are copied for monitors.
pub(crate) struct MirroredRing<'a> {
    /// The ring whose frames are copied.
    pub of: &'a RingSide,
    /// When frames are copied: when they pass, or when their slots are released.
    pub moment: Moment,
    /// Length of the virtio-net header of the ring's frames.
    pub hdr_len: HdrLen,
}

/// A ring for the copies of another ring's frames. The copy ring remains as long as the port of that other ring, even
/// if there are no monitors, because the program may still be copying when the last monitor ends.
struct CopyRing {
    of: RingSide,
    moment: Moment,
    hdr_len: HdrLen,
    mem: Arc<PortMem>,
    to: Arc<ArcSwap<CopyTargets>>,
    placed: Option<TaskId>,
}

impl CopyRing {
    fn new(region: &Arc<Region>, copied: &MirroredRing<'_>) -> Result<CopyRing, Refusal> {
        let slots = copied.of.ring.num_slots();
        let shape = PortShape { tx_rings: 1, rx_rings: 0, tx_slots: slots, rx_slots: slots };
        Ok(CopyRing {
            of: copied.of.clone(),
            moment: copied.moment,
            hdr_len: copied.hdr_len.clone(),
            mem: Arc::new(region.port(shape)?),
            to: Arc::default(),
            placed: None,
        })
    }

    /// Creates the task that forwards copies. The task skips copies that were in the ring before.
    fn hand_on(&self) -> Result<CopyForwarder, Refusal> {
        let side = self.mem.tx.first().ok_or_else(|| Refusal::internal("a port without rings"))?.clone();
        let bell = Doorbell::new()?;
        let host = self.mem.region().touch(move || {
            let head = side.csb.head();
            let from = if head < side.ring.num_slots() { head } else { 0 };
            let mut host = HostTx::new(side, bell);
            host.complete(from);
            host.disarm();
            host
        })?;
        let header = self.hdr_len.clone();
        let ingress = RingIngress::new(Arc::clone(&self.mem), host, Doorbell::new()?, header, Arc::default());
        Ok(CopyForwarder { source: Source::new(Box::new(ingress)), to: Arc::clone(&self.to), idle: 0 })
    }

    fn set(&self, on: bool) {
        let name = if on { netvale_mem::mirror::name(self.mem.csb_first()) } else { 0 };
        let of = self.of.clone();
        let moment = self.moment;
        // If this fails, the user's memory blocks, and the user is evicted, so missing copies do not matter.
        let _ = self.mem.region().touch(move || of.csb.mirror(moment).store(name, Ordering::Release));
    }
}

/// Copy rings. The key is the address of the region in this process, the copied ring, and the moment of the copy. A
/// copy ring keeps its region alive, so that no other region can get that address.
#[derive(Default)]
pub struct Mirrors(BTreeMap<(usize, u32, Moment), CopyRing>);

fn place_of(region: &Arc<Region>) -> usize {
    Arc::as_ptr(region).addr()
}

impl Mirrors {
    /// Starts to copy a ring's frames to `egress`, which belongs to the monitor `name`.
    ///
    /// # Errors
    /// [`Refusal`]: `ENOMEM` if the region has no room for copies.
    pub(crate) fn add(
        &mut self,
        workers: &mut Workers,
        region: &Arc<Region>,
        domain: TimeDomain,
        copied: &MirroredRing<'_>,
        name: &str,
        egress: &Arc<dyn Egress>,
    ) -> Result<(), Refusal> {
        workers.begin(domain, 1)?;
        let key = (place_of(region), copied.of.csb_index, copied.moment);
        if let Entry::Vacant(free) = self.0.entry(key) {
            free.insert(CopyRing::new(region, copied)?);
        }
        let idle = self.0.get(&key).filter(|beside| beside.placed.is_none());
        let placed = idle.map(CopyRing::hand_on).transpose()?.map(|task| workers.place_for(domain, Box::new(task)));
        let beside = self.0.get_mut(&key).ok_or_else(|| Refusal::internal("a ring for copies vanished"))?;
        beside.placed = placed.or_else(|| beside.placed.take());
        let mut to = CopyTargets::clone(&beside.to.load());
        to.push((name.to_owned(), Arc::clone(egress)));
        beside.to.store(Arc::new(to));
        beside.set(true);
        Ok(())
    }

    /// Stops copying frames for the monitor `name`.
    pub(crate) fn remove(&mut self, workers: &mut Workers, name: &str) {
        let mut idle = Vec::new();
        for beside in self.0.values_mut() {
            let to: CopyTargets = beside.to.load().iter().filter(|(known, _)| known != name).cloned().collect();
            if to.is_empty() {
                beside.set(false);
                idle.extend(beside.placed.take());
            }
            beside.to.store(Arc::new(to));
        }
        workers.retire(&idle);
    }

    /// Removes the copy rings of a port's rings `rings`. This must be called when no program holds the rings any more.
    pub(crate) fn end(&mut self, workers: &mut Workers, of: &PortMem, rings: &RingRanges) {
        let region = place_of(of.region());
        let first = of.csb_first();
        let is_one = |ring: u32| {
            let ring = ring.wrapping_sub(first);
            rings.tx.contains(&ring) || rings.rx.contains(&ring.wrapping_sub(of.shape().tx_rings))
        };
        let mut idle = Vec::new();
        self.0.retain(|(at, ring, _), beside| {
            let gone = *at == region && is_one(*ring);
            if gone {
                beside.set(false);
                idle.extend(beside.placed.take());
            }
            !gone
        });
        workers.retire(&idle);
    }
}
