//! The guest's receive queue as a switch's egress: each frame is copied once, into the buffers that the guest's driver
//! has posted (§3.2).
#![allow(unsafe_code)]

use std::sync::Arc;

use netvale_mem::copy::{copy_bytes, prefetch_write};
use netvale_port::soft::{FrameForm, PutResult, SegmentRoom};
use netvale_port::{Batch, DropReason, Egress, FrameRef, RingCounters, Scratch};

use crate::core::{Core, SharedCore};
use crate::memory::Finder;

/// Status bit of a receive descriptor: descriptor done (§3.2.3.1).
const DD: u64 = 1;
/// Status bit: end of packet.
const EOP: u64 = 1 << 1;
/// Status bit: the checksum was not checked.
const IXSM: u64 = 1 << 2;
/// Status bit: the VLAN tag was removed.
const VP: u64 = 1 << 3;
/// Bit position of the status in the descriptor's second word.
const STATUS: u32 = 32;
/// Bit position of the VLAN tag in the descriptor's second word.
const SPECIAL: u32 = 48;
/// Minimum length of a frame on a wire in bytes, without CRC.
const SHORTEST: usize = 60;
/// Offset of a VLAN tag in bytes.
const TAG_AT: usize = 12;
/// Length of a VLAN tag in bytes.
const TAG: usize = 4;
/// Descriptors and their buffers are prefetched this many descriptors before they are filled.
const AHEAD: u32 = 8;
/// Maximum number of descriptors of a frame: the longest frame (16 KiB) in the smallest buffers (256 bytes).
const MOST: usize = 64;

/// A card's receive queue, as the switch's egress.
pub struct E1000Egress {
    shared: Arc<SharedCore>,
}

impl E1000Egress {
    /// Creates the receive queue of a card.
    pub fn new(shared: Arc<SharedCore>) -> E1000Egress {
        E1000Egress { shared }
    }

    fn deliver_to(&self, core: &mut Core, batch: &Batch, picks: &[u16], scratch: &mut Scratch) -> usize {
        let counters = &self.shared.received;
        let mut frames = 0;
        let mut bytes = 0;
        let mut done = 0;
        core.look_for_room();
        let memory = core.memory.clone();
        let mut finder = memory.finder();
        for &pick in picks {
            let Some(frame) = batch.get(usize::from(pick)) else { continue };
            fetch(&mut finder, core);
            let put = if FrameForm::of(&frame, false) == FrameForm::AsIs {
                // SAFETY: `put` passes `n` writable bytes of the guest's memory at `to`.
                put(core, &mut finder, frame.len(), |at, to, n| unsafe { frame.copy_out_raw(at, to, n) })
            } else {
                soften(core, &mut finder, &frame, scratch, counters)
            };
            match put {
                PutResult::Done => {
                    frames += 1;
                    bytes += frame.len() as u64;
                }
                PutResult::TooLong => counters.dropped(DropReason::TooLong, 1),
                PutResult::Full => break,
            }
            done += 1;
        }
        counters.passed(frames, bytes);
        core.received();
        done
    }
}

/// Prefetches a descriptor and its buffer, which will be written soon.
#[inline]
fn fetch(finder: &mut Finder<'_>, core: &Core) {
    if core.e1000.rx.owned() > AHEAD
        && let Some([address, _]) = core.e1000.rx.address(AHEAD).and_then(|at| finder.descriptor(at))
        && let Some(at) = finder.at(address, 1)
    {
        prefetch_write(at);
    }
}

fn soften(
    core: &mut Core,
    finder: &mut Finder<'_>,
    frame: &FrameRef<'_>,
    scratch: &mut Scratch,
    counters: &RingCounters,
) -> PutResult {
    let e1000 = &core.e1000;
    let room = SegmentRoom {
        free: e1000.rx.owned() as usize,
        all: (e1000.rx.count() as usize).saturating_sub(1),
        bytes: e1000.rx_buffer() as usize,
        lead: e1000.rx_crc() as usize,
    };
    scratch.soften_into(frame, counters, &room, |bytes| {
        put(core, finder, bytes.len(), |at, to, n| {
            let rest = bytes.get(at..).unwrap_or(&[]);
            let n = rest.len().min(n);
            // SAFETY: `put` passes `n` writable bytes of the guest's memory at `to`; `rest` is private and has at least
            // as many.
            unsafe { copy_bytes(rest.as_ptr(), to, n) };
            n
        })
    })
}

/// Writes a frame to as many buffers as it needs. A frame that the receive filter rejects counts as delivered.
fn put(
    core: &mut Core,
    finder: &mut Finder<'_>,
    len: usize,
    mut read: impl FnMut(usize, *mut u8, usize) -> usize,
) -> PutResult {
    let mut head = [0; 18];
    read(0, head.as_mut_ptr(), len.min(18));
    if !core.e1000.takes(&head, len) {
        return PutResult::Done;
    }
    let vet = core.e1000.vlan_type().to_be_bytes();
    let has_tag = len >= TAG_AT + TAG && head[TAG_AT..TAG_AT + 2] == vet;
    let tag = (has_tag && core.e1000.strips_tags()).then(|| u16::from_be_bytes([head[14], head[15]]));
    let stripped = len - if tag.is_some() { TAG } else { 0 };
    let crc = core.e1000.rx_crc() as usize;
    let total = stripped.max(SHORTEST) + crc;
    let size = core.e1000.rx_buffer() as usize;
    let count = total.div_ceil(size);
    if count > MOST || count > core.e1000.rx.owned() as usize {
        core.e1000.rx_missed();
        return PutResult::Full;
    }
    let to = [head[0], head[1], head[2], head[3], head[4], head[5]];
    if count == 1 && tag.is_none() {
        put_one(core, finder, len, total, read);
    } else {
        put_many(core, finder, stripped, total, tag, read);
    }
    core.e1000.rx_done(count as u32, to, len);
    PutResult::Done
}

/// Writes an unchanged frame of `len` bytes, padded to `total` bytes, to one buffer. If the descriptor or the buffer is
/// outside the guest's memory, the frame is lost and the descriptor is used.
#[inline]
fn put_one(
    core: &Core,
    finder: &mut Finder<'_>,
    len: usize,
    total: usize,
    mut read: impl FnMut(usize, *mut u8, usize) -> usize,
) {
    let Some(at) = core.e1000.rx.address(0) else { return };
    let Some([address, _]) = finder.descriptor(at) else { return };
    let Some(to) = finder.at(address, total as u64) else { return };
    let got = read(0, to, len).min(total);
    // SAFETY: there are `total` bytes at `to`, of which `got` are written.
    unsafe { to.add(got).write_bytes(0, total - got) };
    let status = total as u64 | (DD | IXSM | EOP) << STATUS;
    finder.received(at, status);
}

/// Writes a frame of `len` bytes, padded to `total` bytes, to several buffers, or without the frame's tag.
fn put_many(
    core: &Core,
    finder: &mut Finder<'_>,
    len: usize,
    total: usize,
    tag: Option<u16>,
    mut read: impl FnMut(usize, *mut u8, usize) -> usize,
) {
    let size = core.e1000.rx_buffer() as usize;
    let count = total.div_ceil(size);
    let mut places = [None; MOST];
    let mut results = [(0, 0); MOST];
    for (k, place) in places.iter_mut().take(count).enumerate() {
        *place = core.e1000.rx.address(k as u32).and_then(|at| {
            let n = size.min(total - k * size);
            let [address, _] = finder.descriptor(at)?;
            Some((at, finder.at(address, n as u64)?))
        });
    }
    let found = places.iter().take(count).enumerate().filter_map(|(k, place)| Some((k, (*place)?)));
    let mut filled = 0;
    for ((k, (at, to)), result) in found.zip(&mut results) {
        let from = k * size;
        let n = size.min(total - k * size);
        fill(&mut read, len, tag.is_some(), from, to, n);
        let ends = if k + 1 == count { EOP } else { 0 };
        let tagged = tag.map_or(0, |tag| u64::from(tag) << SPECIAL | VP << STATUS);
        *result = (at, n as u64 | (DD | IXSM | ends) << STATUS | tagged);
        filled += 1;
    }
    let results = results.get(..filled).unwrap_or_default();
    // Write the first descriptor's status last, so that the driver does not see an incomplete frame.
    results.iter().rev().for_each(|(at, status)| finder.received(*at, *status));
}

/// Copies `n` bytes to `to`, from offset `from` of a frame that has `len` bytes without the tag to remove. Bytes beyond
/// the frame's end are zeros.
fn fill(
    read: &mut impl FnMut(usize, *mut u8, usize) -> usize,
    len: usize,
    tagged: bool,
    from: usize,
    to: *mut u8,
    n: usize,
) {
    let mut done = 0;
    while done < n {
        let at = from + done;
        let (source, most) = match (tagged, at) {
            (_, at) if at >= len => break,
            (true, at) if at < TAG_AT => (at, TAG_AT - at),
            (true, at) => (at + TAG, len - at),
            (false, at) => (at, len - at),
        };
        // SAFETY: `done` is below `n`, the number of bytes at `to`.
        let got = read(source, unsafe { to.add(done) }, most.min(n - done));
        if got == 0 {
            break;
        }
        done += got;
    }
    // SAFETY: `n - done` bytes are left at `to`; a guest that reads them meanwhile finds zeros or the previous bytes.
    unsafe { to.add(done).write_bytes(0, n - done) };
}

impl Egress for E1000Egress {
    fn deliver(&self, batch: &Batch, picks: &[u16], scratch: &mut Scratch) -> usize {
        // The control thread is executing a register access: frames for a lossless port wait until it is done.
        let Ok(mut core) = self.shared.enter() else { return 0 };
        if !core.e1000.receives() {
            self.shared.received.dropped(DropReason::Idle, picks.len() as u64);
            return picks.len();
        }
        self.deliver_to(&mut core, batch, picks, scratch)
    }

    fn counters(&self) -> &Arc<RingCounters> {
        &self.shared.received
    }
}
