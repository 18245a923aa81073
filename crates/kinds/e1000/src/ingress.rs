//! The guest's transmit queue as a switch's ingress: packets stay in the guest's memory until they are delivered.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use netvale_mem::copy::{copy_bytes, prefetch_read};
use netvale_port::{Batch, DropReason, Egress, Ingress, RingCounters, Scratch};
use netvale_wire::offload::MAX_HEADERS;

use crate::core::{Core, SharedCore};
use crate::egress::E1000Egress;
use crate::headers::{ROOM, prepare};
use crate::memory::{CardMemory, Finder};
use crate::paravirt::Paravirt;
use crate::tx::{MAX_PIECES, RawDesc, TxPacket, TxReport};

/// Maximum number of descriptors of a batch.
const MOST: usize = 1024;
/// Maximum number of descriptors of a packet: its pieces and contexts. A longer packet is dropped, so that it is not
/// examined again and again.
const MOST_OF_ONE: u32 = 256;
/// Maximum number of packets in a batch; each may have changed headers.
const CHANGED: usize = netvale_port::BATCH;
/// Packets are prefetched this many descriptors before they are read.
const AHEAD: u32 = 8;
/// Minimum length of a frame on a wire in bytes, without CRC. Shorter frames are padded (TCTL.PSP).
const SHORTEST: u32 = 60;
/// Zeros with which short frames are padded.
static PADDING: [u8; SHORTEST as usize] = [0; SHORTEST as usize];

/// A card's transmit queue, as the switch's ingress.
pub struct E1000Ingress {
    shared: Arc<SharedCore>,
    /// The guest's memory, in which the batch's frames are.
    memory: CardMemory,
    /// The core's epoch when the batch was taken.
    epoch: u64,
    /// Descriptors of the batch that must be written back: guest address and content.
    reported: Vec<(u64, RawDesc)>,
    /// Number of descriptors of the batch.
    taken: u32,
    /// Whether the reports of all descriptors in `reported` may be delayed.
    may_wait: bool,
    /// Whether a release failed, so that the batch's descriptors are still to be returned.
    owes: bool,
    /// The epoch and the number of available descriptors at the last check, if that check found no complete packet;
    /// otherwise `None`. No packet can be taken until one of the two numbers changes.
    waits: Option<(u64, u32)>,
    /// Memory for looped-back frames; `None` unless a loopback mode is on.
    scratch: Option<Box<Scratch>>,
    /// Memory for the batch's changed headers.
    heads: FrameHeads,
}

/// Memory for the changed headers ("head") of each frame of a batch. The batch points into this memory, so references
/// exist to one head at a time and never to all.
struct FrameHeads(Vec<[u8; ROOM]>);

impl FrameHeads {
    /// The head for frame `i` of the batch; `None` if no batch has that many frames.
    #[inline]
    fn get(&mut self, i: usize) -> Option<&mut [u8; ROOM]> {
        // SAFETY: inside the vector; this pointer reaches its memory without a reference to the other heads; `self` is
        // borrowed exclusively.
        (i < self.0.len()).then(|| unsafe { &mut *self.0.as_mut_ptr().add(i) })
    }
}

/// Result of reading the descriptors of one packet.
struct DescWalk {
    count: u32,
    may_wait: bool,
    /// Whether the packet is complete.
    ends: bool,
}

impl E1000Ingress {
    /// Creates the transmit queue of a card.
    pub fn new(shared: Arc<SharedCore>) -> E1000Ingress {
        E1000Ingress {
            shared,
            memory: CardMemory::default(),
            epoch: 0,
            reported: Vec::with_capacity(MOST + MOST_OF_ONE as usize),
            taken: 0,
            may_wait: true,
            owes: false,
            waits: None,
            scratch: None,
            heads: FrameHeads(vec![[0; ROOM]; CHANGED]),
        }
    }

    /// Whether there are descriptors, and not only those in which the last check found no packet's end.
    fn has_news(&self, core: &mut Core) -> bool {
        let owned = core.tx_owned();
        owned > 0 && self.waits != Some((core.epoch, owned))
    }

    /// Takes complete packets from the ring into the batch.
    fn collect(&mut self, core: &mut Core, batch: &mut Batch) {
        let owned = core.e1000.tx_owned();
        self.waits = None;
        let memory = core.memory.clone();
        let mut finder = memory.finder();
        self.epoch = core.epoch;
        self.taken = 0;
        self.may_wait = true;
        self.reported.clear();
        while self.taken < owned && (self.taken as usize) < MOST && batch.has_room_for_frags() {
            let position = core.e1000.assembler.position();
            fetch(&mut finder, core, self.taken + AHEAD, owned);
            let Some(walk) = self.walk(core, &mut finder, owned) else {
                core.e1000.assembler.rewind(position);
                self.waits = (self.taken == 0).then_some((core.epoch, owned));
                break;
            };
            self.taken = walk.count;
            self.may_wait = walk.may_wait;
            let head = self.heads.get(batch.len()).filter(|_| walk.ends);
            if let Some(Err(why)) = head.map(|head| push(&mut finder, core, head, batch)) {
                self.shared.sent.dropped(why, 1);
            }
        }
        self.memory = memory;
    }

    /// Returns the batch's descriptors to the driver. Returns false if the core could not be entered; the caller must
    /// then try again.
    fn give_back(&mut self) -> bool {
        if self.taken > 0 {
            let shared = Arc::clone(&self.shared);
            let Ok(mut core) = shared.enter() else {
                self.owes = true;
                shared.set_owes(true);
                return false;
            };
            if std::mem::take(&mut self.owes) {
                shared.set_owes(false);
            }
            if core.epoch == self.epoch {
                let mut finder = self.memory.finder();
                for (address, raw) in &self.reported {
                    finder.sent(*address, *raw);
                }
                core.sent(self.taken, TxReport::of(!self.reported.is_empty(), self.may_wait));
            }
        }
        // The memory is kept mapped only while the batch has frames in it.
        self.memory = CardMemory::default();
        self.taken = 0;
        self.reported.clear();
        true
    }

    /// In a loopback mode, delivers the batch to the receive ring of the same card and empties it. These modes are for
    /// tests; this is the only code on the packet path that allocates.
    fn loop_back(&mut self, batch: &mut Batch) {
        let scratch = self.scratch.get_or_insert_with(|| Box::new(Scratch::new()));
        let picks: Vec<u16> = (0..batch.len() as u16).collect();
        let done = E1000Egress::new(Arc::clone(&self.shared)).deliver(batch, &picks, scratch);
        self.shared.received.dropped(DropReason::NoRoom, (picks.len() - done) as u64);
        batch.clear();
    }

    /// Reads descriptors up to the end of a packet; `None` if the packet's end has not arrived yet. Drops a packet that
    /// fills the ring, because the packet's end cannot arrive, and a packet with more than [`MOST_OF_ONE`] descriptors.
    fn walk(&mut self, core: &mut Core, finder: &mut Finder<'_>, owned: u32) -> Option<DescWalk> {
        let before = self.reported.len();
        let mut walk = DescWalk { count: self.taken, may_wait: self.may_wait, ends: false };
        while walk.count < owned && walk.count - self.taken < MOST_OF_ONE {
            let address = core.e1000.tx.address(walk.count)?;
            walk.count += 1;
            // A descriptor outside the guest's memory is skipped, as after a bus error.
            let Some(raw) = finder.descriptor(address) else { continue };
            let step = core.e1000.tx_step(raw);
            if step.reports {
                self.reported.push((address, raw));
                walk.may_wait &= step.may_wait;
            }
            if step.ends || core.e1000.assembler.is_between() {
                return Some(DescWalk { ends: step.ends, ..walk });
            }
        }
        let is_over = walk.count - self.taken == MOST_OF_ONE || core.e1000.tx_is_full(owned) && self.taken == 0;
        if is_over {
            core.e1000.assembler.give_up();
            return Some(walk);
        }
        self.reported.truncate(before);
        None
    }
}

/// Prefetches the first bytes of a packet, which will be read soon.
#[inline]
fn fetch(finder: &mut Finder<'_>, core: &Core, k: u32, owned: u32) {
    if k < owned
        && let Some([address, _]) = core.e1000.tx.address(k).and_then(|at| finder.descriptor(at))
        && let Some(at) = finder.at(address, 1)
    {
        prefetch_read(at);
    }
}

/// Adds the packet to the batch if it has one piece, at least the shortest length, and no offload; otherwise returns
/// `None`.
#[inline]
fn push_plain(finder: &mut Finder<'_>, core: &mut Core, batch: &mut Batch) -> Option<Result<(), DropReason>> {
    let packet = core.e1000.assembler.packet();
    let &[(address, len)] = packet.pieces() else { return None };
    if !packet.is_plain() || len < SHORTEST {
        return None;
    }
    let Some(at) = finder.at(address, len.into()) else { return Some(Err(DropReason::BadBuffer)) };
    let mut to = [0; 6];
    // SAFETY: there are `len` bytes at `at`, in a window that stays mapped until the ingress drops it after `release`.
    unsafe {
        copy_bytes(at, to.as_mut_ptr(), to.len());
        batch.push(at, len);
    }
    core.e1000.sent(to, len as usize, false);
    Some(Ok(()))
}

/// Adds the complete packet to the batch.
fn push(finder: &mut Finder<'_>, core: &mut Core, head: &mut [u8; ROOM], batch: &mut Batch) -> Result<(), DropReason> {
    if let Some(done) = push_plain(finder, core, batch) {
        return done;
    }
    let packet = core.e1000.assembler.packet();
    if packet.is_absurd || packet.len == 0 {
        return Err(DropReason::EndlessFrame);
    }
    let have = copy_head(finder, packet, head).ok_or(DropReason::BadBuffer)?;
    let done = prepare(&packet.offload, core.e1000.vlan_type(), head, have, packet.len as usize)
        .map_err(|_| DropReason::BadVnetHeader)?;
    let mut pieces = [(std::ptr::null::<u8>(), 0u32); MAX_PIECES + 2];
    let mut count = 0;
    let mut add = |piece: (*const u8, u32)| {
        if let Some(place) = pieces.get_mut(count).filter(|_| piece.1 > 0) {
            *place = piece;
            count += 1;
        }
    };
    add((head.as_ptr(), done.head as u32));
    let mut skip = done.skip as u32;
    for &(address, len) in packet.pieces() {
        let passed = skip.min(len);
        skip -= passed;
        let address = address.checked_add(passed.into()).ok_or(DropReason::BadBuffer)?;
        let len = len - passed;
        if len > 0 {
            add((finder.at(address, len.into()).ok_or(DropReason::BadBuffer)?, len));
        }
    }
    let len = packet.len - done.skip as u32 + done.head as u32;
    add((PADDING.as_ptr(), SHORTEST.saturating_sub(len)));
    let to = [head[0], head[1], head[2], head[3], head[4], head[5]];
    let segmented = packet.offload.segments.is_some();
    // SAFETY: pieces are in windows of `memory`, which stay mapped until the ingress drops `memory` after `release`, in
    // a head without references to it until then, or in a constant.
    let fits = unsafe { batch.push_frags(pieces.get(..count).unwrap_or_default()) };
    if !fits {
        return Err(DropReason::EndlessFrame);
    }
    batch.set_offload(done.offload);
    core.e1000.sent(to, len as usize, segmented);
    Ok(())
}

/// Copies the first bytes of a packet, each read once. Returns their number; `None` if some are outside the guest's
/// memory.
fn copy_head(finder: &mut Finder<'_>, packet: &TxPacket, head: &mut [u8; ROOM]) -> Option<usize> {
    let mut have = 0;
    for &(address, len) in packet.pieces() {
        let n = (len as usize).min(MAX_HEADERS - have);
        if n == 0 {
            break;
        }
        let from = finder.at(address, n as u64)?;
        // SAFETY: `n` bytes in a window of `memory`, which is alive; as many are left in `head`, which is private.
        unsafe { copy_bytes(from, head.as_mut_ptr().add(have), n) };
        have += n;
    }
    Some(have)
}

impl Ingress for E1000Ingress {
    // SAFETY: frames are in windows that `memory` keeps mapped until `release` or the next `take`, in `heads`, or in a
    // constant.
    unsafe fn take(&mut self, batch: &mut Batch) {
        if self.taken > 0 && !self.give_back() {
            return;
        }
        let shared = Arc::clone(&self.shared);
        let Ok(mut core) = shared.enter() else { return };
        if !self.has_news(&mut core) {
            return;
        }
        let is_looped = core.e1000.is_looped();
        self.collect(&mut core, batch);
        drop(core);
        if is_looped {
            self.loop_back(batch);
        } else {
            self.scratch = None;
        }
        if batch.is_empty() {
            // The caller does not release an empty batch, but the descriptors of dropped packets must be returned.
            self.release();
        } else {
            self.shared.sent.passed(batch.len() as u64, batch.bytes());
        }
    }

    fn release(&mut self) {
        // If this fails, `take` tries again before it takes the next batch.
        self.give_back();
    }

    fn arm(&mut self) -> bool {
        if self.taken > 0 {
            return true;
        }
        self.shared.set_asleep(true);
        let shared = Arc::clone(&self.shared);
        let Ok(mut core) = shared.enter() else {
            self.shared.set_asleep(false);
            return true;
        };
        core.paravirt().into_iter().for_each(Paravirt::arm);
        let news = self.has_news(&mut core);
        if news {
            self.shared.set_asleep(false);
            core.paravirt().into_iter().for_each(Paravirt::disarm);
        }
        news
    }

    fn disarm(&mut self) {
        self.shared.set_asleep(false);
        if let Ok(core) = self.shared.enter() {
            core.paravirt().into_iter().for_each(Paravirt::disarm);
        }
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.shared.wake.as_fd())
    }

    fn woken(&mut self) {
        self.shared.wake.drain();
    }

    fn counters(&self) -> &Arc<RingCounters> {
        &self.shared.sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: pointers to heads stay valid, by Miri's rules, when other heads are written and when the vector's
    /// owner moves.
    #[test]
    fn heads_are_apart() {
        let mut heads = FrameHeads(vec![[0; ROOM]; 2]);
        let first = heads.get(0).map(|head| {
            head[0] = 7;
            head.as_ptr()
        });
        let mut moved = heads;
        moved.get(1).unwrap()[0] = 9;
        assert!(moved.get(2).is_none());
        // SAFETY: a byte of a head, which `moved` keeps.
        assert_eq!(first.map(|at| unsafe { *at }), Some(7));
    }
}
