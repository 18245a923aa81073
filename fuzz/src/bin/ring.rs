//! Runs the switch with a port whose slots, buffers and indices are arbitrary, with and without virtio-net headers.
//! The switch takes frames from the port and delivers them to the same port. The contents change even during calls.
#![cfg_attr(feature = "libfuzzer", no_main)]

use std::sync::Arc;

use netvale_fuzz::{bounded, fuzz_target, meddle, words};
use netvale_mem::host::{HostRx, HostTx};
use netvale_mem::layout::RegionSizes;
use netvale_mem::notify::Doorbell;
use netvale_mem::{PortMem, PortShape, Region};
use netvale_port::ring_in::RingIngress;
use netvale_port::ring_out::RingEgress;
use netvale_switch::{AttachedPort, ForwardMemory, Forwarder, PassResult, Switch, SwitchSettings};

const SLOTS: u32 = 8;
const BUF: u32 = 128;
/// Maximum number of reads of shared memory for one slot. The slot is checked, and its bytes are read in pieces,
/// possibly after they were read for a checksum.
const A_SLOT: u64 = 64;
/// Maximum number of reads of shared memory by one pass, in addition to the reads for slots.
const A_PASS: u64 = 256;

fn port(switch: &Arc<Switch>, name: &str, hdr_len: u32) -> Option<(Arc<PortMem>, Arc<RingEgress>, Forwarder)> {
    let shape = PortShape { tx_rings: 1, rx_rings: 1, tx_slots: SLOTS, rx_slots: SLOTS };
    let mem = Arc::new(Region::private(RegionSizes::for_port(2, SLOTS, BUF, 0, 0)).ok()?.port(shape).ok()?);
    let bell = || Doorbell::new().ok();
    let egress =
        Arc::new(RingEgress::new(mem.clone(), HostRx::new(mem.rx[0].clone(), bell()?), hdr_len, Arc::default()));
    let id = switch
        .attach(AttachedPort {
            name: name.into(),
            egresses: vec![egress.clone()],
            lossless: false,
            ..AttachedPort::default()
        })
        .ok()?;
    let ingress =
        RingIngress::new(mem.clone(), HostTx::new(mem.tx[0].clone(), bell()?), bell()?, hdr_len, Arc::default());
    Some((mem, egress, Forwarder::new(switch.clone(), id, 0, Box::new(ingress))))
}

thread_local! {
    static WORK: std::cell::RefCell<ForwardMemory> = std::cell::RefCell::default();
}

fuzz_target!(|data: &[u8]| {
    let [kind, rest @ ..] = data else { return };
    let hdr = |k: u8| [0, 10, 12][usize::from(k) % 3];
    let switch = Switch::with("vale0", SwitchSettings { table_entries: 16, ..SwitchSettings::default() });
    let Some((mem, _, mut forwarder)) = port(&switch, "bad", hdr(*kind)) else { return };
    let Some((peer, received, _other)) = port(&switch, "peer", hdr(kind >> 4)) else { return };
    let tx = &mem.tx[0];
    let rx = &peer.rx[0];
    let memory = words(mem.region().mapping());
    let layout = *mem.region().layout();
    let first = layout.ring_pool as usize / 4;
    let end = layout.total as usize / 4;
    let rest = meddle(rest, &memory, first, end - first);
    WORK.with_borrow_mut(|work| {
        for step in rest.chunks(24) {
            let [op, slot, at, len, flags, bytes @ ..] = step else { break };
            let i = u32::from(*slot);
            match op % 4 {
                0 => tx.ring.set_slot_word(i, u32::from(*at), u16::from(*len), u16::from(*flags)),
                1 => drop(tx.ring.write(tx.ring.slot_word(i).buf_idx, u32::from(*at), bytes)),
                2 => tx.csb.publish_head(u32::from(*at) % 10, 0),
                _ => {
                    rx.ring.set_slot_word(i, u32::from(*len), 0, 0);
                    rx.csb.publish_head(u32::from(*at) % 10, 0);
                }
            }
            // A ring of eight slots holds at most eight frames, so after a few passes there must be no frames left.
            let mut passes = 0;
            while let PassResult::Frames(_) =
                bounded(A_PASS + A_SLOT * u64::from(SLOTS), "a pass", || forwarder.pass(work))
            {
                passes += 1;
                // Each of the up to 31 changes that are made between reads may move the head, which permits another
                // pass.
                assert!(passes <= 34, "the same slots were forwarded again and again");
            }
        }
    });
    for i in 0..SLOTS {
        let s = rx.ring.slot_word(i);
        assert!(u32::from(s.len) <= BUF, "a slot longer than its buffer was delivered");
    }
    let _ = received.host().unread();
    netvale_mem::probe::unwatch();
});
