//! Saved state of rings and their holders. A successor restores the rings from this state.

use std::sync::Arc;

use netvale_fdio::state::Fd;
use netvale_mem::fault::Fault;
use netvale_mem::offsets::OffsetRule;
use netvale_mem::region::RingSide;
use netvale_mem::{PortMem, PortShape, Region};
use netvale_port::HdrLen;
use netvale_port::ring_in::RingIngress;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::holders::Holders;
use super::local::LocalRings;
use super::switched::PortRings;
use crate::refusal::{Refusal, refuse};

/// State of the rings of a port that programs open.
#[derive(Debug, Serialize, Deserialize)]
pub struct PortRingsState {
    /// Number of the region that contains the rings.
    pub region: u32,
    /// Number of tx rings, of rx rings, of slots in each tx ring, and of slots in each rx ring.
    shape: [u32; 4],
    /// Number of host rings at the end of the tx and rx rings.
    host: (u32, u32),
    /// Index of the first ring in the region.
    first: u32,
    /// Length of the virtio-net header in bytes.
    hdr_len: u32,
    /// Whether the daemon cuts frames that are larger than the MTU into segments for the program.
    #[serde(default)]
    is_cut: bool,
    /// For each ring, tx rings first, its offset rule (bits, maximum, initial value); `None` for a ring without
    /// offsets.
    offsets: Vec<Option<[u32; 3]>>,
    /// Holders of each tx ring, then of each rx ring: number of the connection, and whether the connection shares the
    /// ring.
    held: [Vec<Vec<(u64, bool)>>; 2],
    /// The two doorbells of each ring, tx rings first.
    bells: Vec<[Fd; 2]>,
}

/// Returns each ring's offset rule (bits, maximum, initial value); `None` for a ring without offsets.
pub fn offset_rules<'a>(sides: impl Iterator<Item = &'a RingSide>) -> Vec<Option<[u32; 3]>> {
    sides.map(|side| side.offsets.rule().map(|rule| [rule.bits, rule.max, rule.initial])).collect()
}

/// Sets the offset rules of rings, from a result of [`offset_rules`].
pub fn set_offset_rules<'a>(sides: impl Iterator<Item = &'a RingSide>, rules: &[Option<[u32; 3]>]) {
    for (side, rule) in sides.zip(rules) {
        let buf_size = side.ring.buf_size();
        let checked = |[bits, max, initial]: [u32; 3]| OffsetRule { bits, max: max.min(buf_size), initial };
        side.offsets.set(rule.map(checked));
    }
}

fn all(mem: &PortMem) -> impl Iterator<Item = &RingSide> {
    mem.tx.iter().chain(&mem.rx)
}

impl LocalRings {
    /// Saves the rings for a successor.
    ///
    /// # Errors
    /// Fails if the daemon is out of descriptors.
    pub(crate) fn state(&self) -> std::io::Result<PortRingsState> {
        let mem = &self.rings.mem;
        let shape = self.rings.mem.shape();
        let held = [&self.tx_held, &self.rx_held].map(|rings| rings.iter().map(Holders::list).collect());
        Ok(PortRingsState {
            region: self.rings.mem_id,
            shape: [shape.tx_rings, shape.rx_rings, shape.tx_slots, shape.rx_slots],
            host: mem.host_rings(),
            first: mem.csb_first(),
            hdr_len: self.rings.hdr_len.get(),
            is_cut: self.rings.hdr_len.is_cut(),
            offsets: offset_rules(all(mem)),
            held,
            bells: self.rings.bells()?,
        })
    }

    /// Restores rings in their region.
    ///
    /// # Errors
    /// [`Refusal`] if the region has no such rings, or doorbells are missing.
    pub(crate) fn continued(
        region: &Arc<Region>,
        state: PortRingsState,
        fault: Fault,
    ) -> Result<(LocalRings, Vec<RingIngress>), Refusal> {
        let [tx_rings, rx_rings, tx_slots, rx_slots] = state.shape;
        let shape = PortShape { tx_rings, rx_rings, tx_slots, rx_slots };
        if !matches!(state.hdr_len, 0 | 10 | 12) {
            return refuse(
                Errno::INVAL,
                format!("invalid virtio-net header length {}: expected 0, 10 or 12", state.hdr_len),
            );
        }
        let mem = Arc::new(region.continue_port(shape, state.host.0, state.host.1, state.first)?);
        set_offset_rules(all(&mem), &state.offsets);
        let hdr_len = HdrLen::from(state.hdr_len).with_segments_cut(state.is_cut);
        let (rings, ingresses) = PortRings::continued(mem, state.region, hdr_len, fault, state.bells)?;
        let [tx_held, rx_held] = state.held.map(|rings| rings.into_iter().map(Holders::from_list).collect());
        let local = LocalRings { rings, tx_held, rx_held, is_joint: false };
        local.look_who_reads();
        Ok((local, ingresses))
    }
}
