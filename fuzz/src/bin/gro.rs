//! Merges arbitrary frames (GRO) and segments the result, which must restore the frames.
//!
//! Input: for each frame, one byte that selects its flow, and five bytes that describe how the frame differs from the
//! flow's previous frame, so that most frames can be merged.
#![cfg_attr(feature = "libfuzzer", no_main)]

use std::sync::Arc;

use netvale_fuzz::{FuzzInput, RingReceiver, fuzz_target};
use netvale_mem::PortMem;
use netvale_port::gro::GroEgress;
use netvale_port::{BATCH, Batch, Egress, Scratch};
use netvale_wire::Offload;
use netvale_wire::segment::complete_checksum;

/// Offset of the IP header in a frame.
const L3: usize = 14;
/// Offset of the TCP header over IPv4.
const V4: usize = L3 + 20;
/// Offset of the TCP header over IPv6.
const V6: usize = L3 + 40;

struct GroReceiver {
    mem: Arc<PortMem>,
    gro: GroEgress,
    scratch: Scratch,
}

/// Creates a ring that accepts no large segments, behind an egress that merges frames. All frames that the egress
/// merges must therefore be segmented again.
fn receiver() -> Option<GroReceiver> {
    let RingReceiver { mem, ring, scratch } = RingReceiver::new()?;
    Some(GroReceiver { mem, gro: GroEgress::new(Arc::new(ring)), scratch })
}

thread_local! {
    static RECEIVER: std::cell::RefCell<Option<GroReceiver>> = std::cell::RefCell::new(receiver());
}

#[derive(Default)]
struct GroFlow {
    seq: u32,
    ident: u16,
}

/// Returns a TCP frame with valid lengths and checksums, unless the input corrupts it.
fn frame(flow: &mut GroFlow, input: &mut FuzzInput<'_>) -> Vec<u8> {
    let [kind, len, skip, spoil_at, spoil] = [(); 5].map(|()| input.byte());
    let v6 = kind & 1 != 0;
    let payload: Vec<u8> = (0..usize::from(len) * 5).map(|i| (i as u8).wrapping_mul(skip | 1)).collect();
    flow.seq = flow.seq.wrapping_add(if kind & 2 != 0 { u32::from(skip) } else { 0 });
    let l4_len = 20 + payload.len();
    let mut f = vec![2u8; L3];
    f[12..].copy_from_slice(if v6 { &[0x86, 0xdd] } else { &[8, 0] });
    if v6 {
        f.extend([0x60, 0, 0, 0]);
        f.extend((l4_len as u16).to_be_bytes());
        f.extend([6, 64]);
        f.extend([1; 32]);
    } else {
        let fragment: u16 = if kind & 4 != 0 { 0x4000 } else { 0 };
        f.extend([0x45, 0]);
        f.extend((20 + l4_len as u16).to_be_bytes());
        f.extend(flow.ident.to_be_bytes());
        f.extend(fragment.to_be_bytes());
        f.extend([64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        let sum = netvale_wire::Sum::of(&f[L3..]).checksum();
        f[24..26].copy_from_slice(&sum.to_be_bytes());
        flow.ident = flow.ident.wrapping_add(if kind & 8 != 0 { 0 } else { 1 });
    }
    f.extend([0, 1, 0, kind >> 6]);
    f.extend(flow.seq.to_be_bytes());
    f.extend([0, 0, 0, 5, 0x50, if kind & 0x10 != 0 { 0x18 } else { 0x10 }, 1, 0, 0, 0, 0, 0]);
    f.extend(&payload);
    flow.seq = flow.seq.wrapping_add(payload.len() as u32);
    finish(&mut f, v6);
    if spoil & 0x80 != 0 {
        let at = usize::from(spoil_at) % f.len();
        f[at] ^= spoil & 0x7f;
        if kind & 0x20 != 0 {
            finish(&mut f, v6);
        }
    }
    f
}

/// Writes the valid checksum into the TCP header.
fn finish(f: &mut [u8], v6: bool) {
    let (l4, addresses) = if v6 { (V6, L3 + 8..V6) } else { (V4, L3 + 12..V4) };
    let pseudo = netvale_wire::Sum::of(&f[addresses]).add_u16(6).add_u16((f.len() - l4) as u16).fold();
    f[l4 + 16..l4 + 18].copy_from_slice(&pseudo.to_be_bytes());
    let _ = complete_checksum(&mut [f], l4 as u16, 16);
}

/// Returns whether a frame was restored. TCP checksums of 0xffff and 0 are equivalent. In packets with the DF bit, the
/// IPv4 identification has no meaning, so it may differ, and so may the header's checksum.
fn same(sent: &[u8], came: &[u8]) -> bool {
    if sent.len() != came.len() {
        return false;
    }
    let v6 = sent[12..14] == [0x86, 0xdd];
    let l4 = if v6 { V6 } else { V4 };
    let clean = |bytes: &[u8]| {
        let mut b = bytes.to_vec();
        if b.len() >= l4 + 18 && b[l4 + 16..l4 + 18] == [0xff, 0xff] {
            b[l4 + 16..l4 + 18].fill(0);
        }
        if !v6 && b.len() >= V4 && b[20] & 0x40 != 0 {
            b[18..20].fill(0);
            b[24..26].fill(0);
        }
        b
    };
    clean(sent) == clean(came)
}

fuzz_target!(|data: &[u8]| {
    RECEIVER.with_borrow_mut(|receiver| {
        let Some(GroReceiver { mem, gro, scratch }) = receiver else { return };
        let mut input = FuzzInput(data);
        let mut flows = [const { GroFlow { seq: 0, ident: 0 } }; 2];
        let mut frames = Vec::new();
        while !input.is_empty() && frames.len() < 64 {
            let flow = input.below(8) / 7;
            frames.push(frame(&mut flows[flow], &mut input));
        }
        let mut batch = Batch::new();
        for f in &frames {
            // SAFETY: the frames outlive the batch.
            unsafe { batch.push(f.as_ptr(), f.len() as u32) };
            batch.set_offload(Offload::None);
        }
        let picks: Vec<u16> = (0..frames.len() as u16).collect();
        assert!(frames.len() <= BATCH);
        assert_eq!(gro.deliver(&batch, &picks, scratch), frames.len());
        let side = &mem.rx[0];
        let mut at = side.csb.head();
        let tail = side.csb.hwtail();
        for f in &frames {
            assert_ne!(at, tail, "a frame was lost");
            let slot = side.ring.slot_word(at);
            let mut came = vec![0; usize::from(slot.len)];
            assert!(side.ring.read(slot.buf_idx, 0, &mut came));
            assert!(same(f, &came), "sent and received differ:\n{f:02x?}\n{came:02x?}");
            at = side.ring.next(at);
        }
        assert_eq!(at, tail, "a frame too many");
        side.csb.publish_head(at, at);
    });
});
