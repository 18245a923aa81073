//! Tests of regions, as the host sees them.

use std::mem::offset_of;

use netvale_abi::NetmapIf;

use super::*;

const SHAPE: PortShape = PortShape { tx_rings: 2, rx_rings: 1, tx_slots: 8, rx_slots: 4 };

fn region() -> Arc<Region> {
    Region::private(RegionSizes::for_port(3, 8, 128, 1, 6)).unwrap()
}

/// Objective: a port's objects come from the pools, and all go back when the port is dropped.
#[test]
fn ports_come_and_go() {
    let r = region();
    let free = r.free();
    for _ in 0..3 {
        let port = Arc::new(r.port(SHAPE).unwrap());
        let b = port.bind("vale0:a", 0..2, 0..1, 3).unwrap();
        assert_eq!(b.extra_bufs(), 3);
        assert_eq!(r.free(), (free.0 - 1, free.1 - 3, free.2 - 20 - 3));
        assert_eq!(port.tx[1].ring.indices(), (0, 0, 7));
        assert_eq!(port.rx[0].ring.indices(), (0, 0, 0));
        let first = port.tx[0].ring.slot(0).buf_idx;
        assert!(first >= 2 && port.rx[0].ring.slot(3).buf_idx != first);
        drop((b, port));
        assert_eq!(r.free(), free);
    }
}

/// Objective: an application that overwrites its slots and its list of extra buffers cannot free buffers of other
/// applications or a buffer twice, or keep the host in a loop; the region still works afterwards.
#[test]
fn scribbled_indices_free_no_foreign_buffers() {
    let r = region();
    let port = Arc::new(r.port(SHAPE).unwrap());
    let b = port.bind("x", 0..2, 0..1, 2).unwrap();
    for i in 0..8 {
        port.tx[0].ring.set_slot_word(i, 5, 0, 0);
        port.tx[1].ring.set_slot_word(i, u32::MAX - i, 0, 0);
    }
    let head = r.load_u32(b.nifp() + offset_of!(NetmapIf, ni_bufs_head) as u64);
    r.store_u32(r.layout().buf_at(head), head);
    drop((b, port));
    let (_, _, bufs) = r.free();
    assert!(bufs < r.layout().sizes.bufs.num);
    assert!(r.pools().bufs.take().is_some());
}

/// Objective: a request that exceeds the region is refused with an error that names the pool or the limit, and nothing
/// leaks.
#[test]
fn exhaustion_is_named() {
    let r = region();
    let free = r.free();
    let big = PortShape { tx_slots: 9, ..SHAPE };
    assert!(matches!(r.port(big), Err(RegionError::Slots { slots: 9, .. })));
    let many = PortShape { tx_rings: 50, ..SHAPE };
    assert!(matches!(r.port(many), Err(RegionError::Exhausted { .. })));
    assert_eq!(r.free(), free);
}

/// Objective: an application whose rings are renewed while another application continues gets a buffer for each slot,
/// and no buffer of the other application, whatever both applications swapped or wrote into their slots.
#[test]
fn renewed_rings_get_no_buffer_of_another() {
    let r = region();
    let ours = r.port(SHAPE).unwrap();
    let other = r.port(PortShape { rx_rings: 0, ..SHAPE }).unwrap();
    let swapped = ours.tx[0].ring.slot(3).buf_idx;
    ours.tx[0].ring.set_slot_word(3, other.tx[1].ring.slot(0).buf_idx, 60, 0);
    other.tx[1].ring.set_slot_word(0, swapped, 60, 0);
    for (slot, nonsense) in [(0, 0), (1, u32::MAX), (2, ours.rx[0].ring.slot(0).buf_idx), (4, swapped)] {
        ours.tx[1].ring.set_slot_word(slot, nonsense, 0xffff, 0xffff);
    }
    ours.tx[0].csb.publish_head(5, 5);
    ours.renew_beside(&other);
    let named = |port: &PortMem| -> Vec<u32> {
        let sides = port.tx.iter().chain(&port.rx);
        sides.flat_map(|s| (0..s.ring.num_slots()).map(|i| s.ring.slot(i).buf_idx)).collect()
    };
    let all: std::collections::BTreeSet<u32> = named(&ours).into_iter().chain(named(&other)).collect();
    assert_eq!(all.len(), 20 + 16, "each buffer once");
    assert!(all.iter().all(|&buf| (2..ours.tx[0].ring.num_bufs()).contains(&buf)));
    assert_eq!((ours.tx[0].csb.head(), ours.tx[0].csb.hwtail(), ours.rx[0].csb.hwtail()), (0, 7, 0));
    assert_eq!(named(&other)[8], swapped, "the other port's buffers stay unchanged");
}
