//! Tests with frames as long as the largest buffers.

use std::sync::Arc;

use netvale_abi::slot::NS_MOREFRAG;
use netvale_mem::host::HostRx;
use netvale_mem::layout::RegionSizes;
use netvale_mem::notify::Doorbell;
use netvale_mem::{PortShape, Region};

use super::RingEgress;
use crate::tests::deliver;

/// Objective: the length of a frame as long as the largest buffer exceeds a slot's 16-bit field, so the frame arrives
/// complete in two slots; a frame one byte shorter arrives in one slot. The same holds with a header in front.
#[test]
fn as_long_as_a_buffer() {
    for hdr_len in [0, 10, 12] {
        for (len, slots) in [(65_535, 1), (65_536, 2), (65_550, 2)] {
            let len = len - hdr_len as usize;
            let frame: Vec<u8> = (0..len).map(|i| (i * 7 % 251) as u8).collect();
            let shape = PortShape { tx_rings: 0, rx_rings: 1, tx_slots: 4, rx_slots: 4 };
            let region = Region::private(RegionSizes::for_port(1, 4, 65_536, 0, 0)).unwrap();
            let mem = Arc::new(region.port(shape).unwrap());
            let host = HostRx::new(mem.rx[0].clone(), Doorbell::new().unwrap());
            let egress = RingEgress::new(Arc::clone(&mem), host, hdr_len, Arc::default());
            assert_eq!(deliver(&egress, std::slice::from_ref(&frame), |_| {}), 1);
            let ring = &mem.rx[0].ring;
            let csb = &mem.rx[0].csb;
            assert_eq!(csb.hwtail(), slots, "{len} bytes behind {hdr_len}");
            let mut came = Vec::new();
            for i in 0..slots {
                let slot = ring.slot_word(i);
                let mut part = vec![0; slot.len.into()];
                assert!(ring.read(slot.buf_idx, 0, &mut part));
                assert_eq!(slot.flags & NS_MOREFRAG != 0, i + 1 < slots);
                came.extend(part);
            }
            assert!(came[hdr_len as usize..] == frame, "{len} bytes behind {hdr_len}: {} came", came.len());
        }
    }
}
