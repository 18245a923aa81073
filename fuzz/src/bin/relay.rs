//! Runs pipes, relays (which move frames from one program's ring to another program's ring) and mirrors (which copy
//! frames for a monitor) in a memory region to which the programs at both ends write arbitrary values, even during
//! calls.
#![cfg_attr(feature = "libfuzzer", no_main)]

use std::sync::Arc;

use netvale_fuzz::{FuzzInput, bounded, fuzz_target, meddle, words};
use netvale_mem::appl::{AppRing, Dir};
use netvale_mem::host::HostTx;
use netvale_mem::mirror::{self, Mirror, Moment};
use netvale_mem::notify::Doorbell;
use netvale_mem::pipe::PipeTx;
use netvale_mem::region::RingSide;
use netvale_mem::relay::{Relay, RelayEnd};
use netvale_mem::{PortMem, PortShape, Region, RegionSizes};

const SLOTS: u32 = 8;
const BUF: u32 = 128;
/// Maximum number of reads of shared memory for one slot, since a slot is checked, moved, and copied for a monitor.
const A_SLOT: u64 = 24;
/// Maximum number of reads of shared memory by one call, in addition to the reads for slots.
const A_CALL: u64 = 64;
const MOST: u64 = A_CALL + A_SLOT * SLOTS as u64;

struct RelayRig {
    region: Arc<Region>,
    port: PortMem,
    copies: PortMem,
    pipe: PipeTx,
    reader: AppRing,
    relay: Relay,
}

fn rig() -> Option<RelayRig> {
    let region = Region::private(RegionSizes::for_port(5, SLOTS, BUF, 0, 0)).ok()?;
    let shape = |tx, rx| PortShape { tx_rings: tx, rx_rings: rx, tx_slots: SLOTS, rx_slots: SLOTS };
    let port = region.port(shape(2, 2)).ok()?;
    let copies = region.port(shape(1, 0)).ok()?;
    let mirror = || Mirror::new(region.mapping(), region.places(), Moment::Passing);
    let bell = || Doorbell::new().ok();
    let side = |rings: &[RingSide], i: usize| rings[i].clone();
    let mut pipe = PipeTx::new(side(&port.tx, 0), side(&port.rx, 0), bell()?)?.mirrored(mirror());
    pipe.resume();
    let reader = AppRing::new(side(&port.rx, 0), Dir::Rx, bell()?).mirrored(mirror());
    let to = RelayEnd::new(side(&port.rx, 1), 0, Arc::new(bell()?), Arc::default());
    let relay = Relay::new(HostTx::new(side(&port.tx, 1), bell()?), to)?;
    Some(RelayRig { region, port, copies, pipe, reader, relay })
}

impl RelayRig {
    /// Writes arbitrary values to a ring, as the programs at both ends may.
    fn write(&self, op: u8, input: &mut FuzzInput<'_>) {
        let sides: Vec<&RingSide> = self.port.tx.iter().chain(&self.port.rx).chain(&self.copies.tx).collect();
        let side = sides[input.below(sides.len())];
        let slot = input.index(SLOTS);
        match op {
            0 => side.ring.set_slot_word(slot, input.index(48), input.half(), input.half()),
            1 => side.csb.publish_head(slot, input.index(SLOTS)),
            2 => side.csb.publish_tail(slot, input.index(SLOTS)),
            3 => {
                let ring = input.index(5);
                let moment = if slot & 1 == 0 { Moment::Passing } else { Moment::Released };
                side.csb.mirror(moment).store(mirror::name(ring % 7), std::sync::atomic::Ordering::Release);
            }
            4 => side.ring.set_indices(slot, input.index(SLOTS), input.index(SLOTS)),
            5 => side.ring.set_ptr(slot, u64::from(input.word())),
            6 => side.ring.set_offset_mask(u64::from(input.word())),
            _ => side.csb.appl_need_kick().store(slot, std::sync::atomic::Ordering::Relaxed),
        }
    }

    /// Calls a function of the pipe, the reader or the relay.
    fn act(&mut self, op: u8, n: u32) {
        match op {
            8 => {
                self.pipe.advance(n);
                assert!(self.pipe.sync() < SLOTS);
            }
            9 => _ = self.pipe.sync_header(),
            10 => {
                self.pipe.arm();
                self.pipe.disarm();
            }
            11 => self.pipe.resume(),
            12 => {
                self.reader.sync();
                self.reader.advance(n);
                self.reader.sync();
            }
            13 => _ = self.reader.sync_header(),
            14 => {
                self.relay.arm();
                self.relay.disarm();
            }
            _ => {
                if let Ok(moved) = self.relay.pass() {
                    let slots = moved.frames + moved.bad_slots + moved.bad_lengths + moved.bad_places;
                    assert!(slots < u64::from(SLOTS) && moved.bytes <= u64::from(SLOTS * BUF));
                }
            }
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some(mut rig) = rig() else { return };
    let region = Arc::clone(&rig.region);
    let memory = words(region.mapping());
    let layout = *region.layout();
    // Only rings and status blocks change, since no decision depends on the contents of buffers.
    let first = layout.ring_pool as usize / 4;
    let end = layout.buf_pool as usize / 4;
    let mut input = FuzzInput(meddle(data, &memory, first, end - first));
    while !input.is_empty() {
        match input.byte() & 0xf {
            op @ 0..8 => rig.write(op, &mut input),
            op => {
                let n = input.index(SLOTS);
                bounded(MOST, "a call", || rig.act(op, n));
            }
        }
        let ends = [rig.pipe.head(), rig.relay.to().hwtail(), rig.relay.from().hwcur()];
        assert!(ends.iter().all(|&i| i < SLOTS) && rig.pipe.space() < SLOTS && rig.reader.space() < SLOTS);
    }
    // Nothing may write to the two reserved buffers.
    let reserved = layout.buf_at(0) as usize / 4..layout.buf_at(2) as usize / 4;
    assert!(reserved.into_iter().all(|i| memory.load(i) == 0), "a reserved buffer was written");
    netvale_mem::probe::unwatch();
});
