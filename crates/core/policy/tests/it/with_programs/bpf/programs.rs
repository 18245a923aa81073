//! Generates random programs, most of which are valid.

use netvale_policy::bpf::Insn;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

// Valid opcodes by class: frame loads, accesses to scratch memory (`M[]`), arithmetic with a constant or with register
// X, jumps, and the rest.
const LOADS: [u16; 11] = [0x20, 0x28, 0x30, 0x40, 0x48, 0x50, 0x80, 0x81, 0xb1, 0x00, 0x01];
const CELLS: [u16; 4] = [0x02, 0x03, 0x60, 0x61];
const ALU: [u16; 11] = [0x04, 0x14, 0x24, 0x34, 0x44, 0x54, 0x64, 0x74, 0x84, 0x94, 0xa4];
const ALU_X: [u16; 10] = [0x0c, 0x1c, 0x2c, 0x3c, 0x4c, 0x5c, 0x6c, 0x7c, 0x9c, 0xac];
const JUMPS: [u16; 9] = [0x05, 0x15, 0x25, 0x35, 0x45, 0x1d, 0x2d, 0x3d, 0x4d];
const REST: [u16; 4] = [0x07, 0x87, 0x16, 0x06];

/// Generates valid opcodes.
fn code() -> impl Strategy<Value = u16> {
    prop_oneof![
        6 => select(LOADS.to_vec()),
        2 => select(CELLS.to_vec()),
        3 => select(ALU.to_vec()),
        3 => select(ALU_X.to_vec()),
        4 => select(JUMPS.to_vec()),
        1 => select(REST.to_vec()),
    ]
}

/// Generates constants: offsets in a short frame, indices of scratch memory, shifts, and values that may overflow.
fn constant() -> impl Strategy<Value = u32> {
    prop_oneof![
        8 => 0..80_u32,
        2 => 0..5_u32,
        1 => select(vec![31, 32, 0xffff, 0x7fff_ffff, 0x8000_0000, 0xffff_efff, 0xffff_f000, 0xffff_f030, u32::MAX]),
        1 => any::<u32>(),
    ]
}

fn insn() -> impl Strategy<Value = Insn> {
    (code(), 0..6_u8, 0..6_u8, constant()).prop_map(|(code, jt, jf, k)| Insn { code, jt, jf, k })
}

/// Generates programs that differ from valid programs in at most a few instructions.
pub fn nearly_right() -> impl Strategy<Value = Vec<Insn>> {
    let wrong = prop_oneof![3 => Just(None), 1 => any::<usize>().prop_map(Some)];
    (vec(insn(), 1..40), 0..5_u32, wrong).prop_map(|(body, cells, wrong)| {
        let stores = (0..cells).map(|k| Insn { code: 0x02, jt: 0, jf: 0, k });
        let mut insns: Vec<_> = stores.chain(body).collect();
        let len = insns.len();
        for (at, insn) in insns.iter_mut().enumerate() {
            // If `wrong` is set, one instruction stays as generated.
            if wrong.is_none_or(|wrong| wrong % len != at) {
                mend(insn, (len - at - 1) as u32, cells.max(1));
            }
        }
        insns.push(Insn { code: 0x16, jt: 0, jf: 0, k: 0 });
        insns
    })
}

/// Makes an instruction valid that is followed by `after` other instructions, in a program that has written the first
/// `cells` words of scratch memory.
fn mend(insn: &mut Insn, after: u32, cells: u32) {
    match insn.code {
        0x02 | 0x03 | 0x60 | 0x61 => insn.k %= cells,
        0x20 | 0x28 | 0x30 => insn.k = insn.k.min(0xffff_efff),
        0x34 | 0x94 => insn.k = insn.k.max(1),
        0x64 | 0x74 => insn.k %= 32,
        0x05 => insn.k = (insn.k % 4).min(after),
        code if code & 7 == 5 => {
            insn.jt = insn.jt.min(after.min(255) as u8);
            insn.jf = insn.jf.min(after.min(255) as u8);
        }
        _ => {}
    }
}

/// Generates programs of arbitrary instructions.
pub fn arbitrary() -> impl Strategy<Value = Vec<Insn>> {
    let any_insn = any::<(u16, u8, u8, u32)>().prop_map(|(code, jt, jf, k)| Insn { code, jt, jf, k });
    vec(prop_oneof![insn(), any_insn], 0..20)
}
